"""The HTTP side of the twin: SGLang's endpoints over the driver. Imports aiohttp, so it is imported late."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from aiohttp import web

from launchers.simulated.bodies import BadRequest, parse_chat, parse_completion, parse_native
from launchers.simulated.driver import Driver
from launchers.simulated.generation import Generation, reply
from launchers.simulated.info import model_info, models, server_info
from launchers.simulated.log import Log
from launchers.simulated.metrics_text import HttpCounts, metrics_text
from launchers.simulated.native_wire import NativeWire
from launchers.simulated.openai_wire import ChatWire, CompletionWire
from launchers.simulated.settings import Settings
from launchers.simulated.startup import StartupTime
from launchers.simulated.trouble import Trouble

FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)
#: A health check that gets no token within this fails (0.5.23).
HEALTH_TIMEOUT_S = 20.0
#: It polls for its token once in this long; divided by the speed-up, as all waiting of the start is.
HEALTH_POLL_S = 1.0
#: Paths that need no API key.
_OPEN_PATHS = ("/health", "/metrics", "/ready")
_MAX_BODY_BYTES = 1 << 28

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Handlers and their state. `ready` and `draining` are set by whoever runs the life cycle."""

    def __init__(self, settings: Settings, startup: StartupTime, driver: Driver, log: Log, trouble: Trouble) -> None:
        self.settings = settings
        self.startup = startup
        self.driver = driver
        self.generation = Generation(settings, driver, trouble)
        self.ready = False
        self.draining = False
        self._log = log
        self._requests: Counter[tuple[str, str]] = Counter()
        self._responses: Counter[tuple[str, str, int]] = Counter()
        self._cache_report = bool(settings.flags.get("enable-cache-report"))

    def application(self) -> web.Application:
        """The aiohttp application with every route."""
        app = web.Application(middlewares=[self._middleware], client_max_size=_MAX_BODY_BYTES)
        app.on_response_prepare.append(self._on_prepare)
        get, post = app.router.add_get, app.router.add_post
        for path in ("/health", "/health_generate"):
            get(path, self.health)
        get("/ready", self.readiness)
        get("/v1/models", self.list_models)
        get("/v1/models/{model:.+}", self.one_model)
        for path in ("/model_info", "/get_model_info"):
            get(path, self.tell_model)
        for path in ("/server_info", "/get_server_info"):
            get(path, self.tell_server)
        if self.settings.flags.get("enable-metrics"):
            get("/metrics", self.metrics)
        for add in (get, post):
            add("/flush_cache", self.flush_cache)
        post("/generate", self.generate)
        post("/v1/completions", self.completions)
        post("/v1/chat/completions", self.chat)
        post("/abort_request", self.abort_request)
        post("/freeze_gc", self.freeze_gc)
        return app

    # --- around every request

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._requests[request.path, request.method] += 1
        key = self.settings.flags.get("api-key")
        if key and not request.path.startswith(_OPEN_PATHS) and request.headers.get("Authorization") != f"Bearer {key}":
            return reply({"error": "Unauthorized"}, status=401)
        try:
            return await handler(request)
        except BadRequest as error:
            return reply(_refusal(request.path, error), status=400)
        except web.HTTPException as error:
            if error.status in (404, 405):
                return reply({"detail": error.reason}, status=error.status)
            raise

    async def _on_prepare(self, http: web.Request, response: web.StreamResponse) -> None:
        response.headers["Server"] = "sglang-simulated"
        self._responses[http.path, http.method, response.status] += 1
        peer = http.transport.get_extra_info("peername") if http.transport else None
        address = f"{peer[0]}:{peer[1]}" if peer else "unknown"
        reason = HTTPStatus(response.status).phrase
        self._log.line(f'INFO:     {address} - "{http.method} {http.path_qs} HTTP/1.1" {response.status} {reason}')

    # --- telling

    async def health(self, http: web.Request) -> web.Response:
        """One token through the engine; 503 before the warm-up ends and while draining."""
        if not self.ready or self.draining:
            return web.Response(status=503)
        if not await self.generation.one_token(HEALTH_TIMEOUT_S):
            return web.Response(status=503)
        await asyncio.sleep(HEALTH_POLL_S / self.settings.speedup)
        return web.Response()

    async def readiness(self, http: web.Request) -> web.Response:
        """As /health, without generating anything."""
        return web.Response(status=200 if self.ready and not self.draining else 503)

    async def list_models(self, http: web.Request) -> web.Response:
        """The one model."""
        return reply(models(self.settings, time.time()))

    async def one_model(self, http: web.Request) -> web.Response:
        """The model by name, or 404."""
        asked = http.match_info["model"]
        known = models(self.settings, time.time())["data"][0]
        if asked == known["id"]:
            return reply(known)
        error = {
            "message": f"The model '{asked}' does not exist",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
        return reply({"error": error}, status=404)

    async def tell_model(self, http: web.Request) -> web.Response:
        """/model_info."""
        return reply(model_info(self.settings))

    async def tell_server(self, http: web.Request) -> web.Response:
        """/server_info."""
        host = {"step_resyncs": float(self.driver.resyncs), "max_step_late_s": self.driver.max_late_s}
        info = server_info(self.settings, self.startup, self.driver.engine, self.ready, host)
        return reply(info)

    async def metrics(self, http: web.Request) -> web.Response:
        """Prometheus text."""
        text = metrics_text(self.settings, self.driver.engine, HttpCounts(self._requests, self._responses))
        return web.Response(text=text, content_type="text/plain", charset="utf-8")

    async def flush_cache(self, http: web.Request) -> web.Response:
        """200 when flushed; 400 with the same text while requests are inside."""
        flushed = self.driver.engine.flush()
        if flushed:
            self._log.first_rank("Cache flushed successfully!")
        else:
            engine = self.driver.engine
            self._log.first_rank(
                f"Cache not flushed because there are pending requests. #queue-req: {len(engine.waiting)}, "
                f"#running-req: {engine.running_count}"
            )
        return web.Response(text=FLUSHED, status=200 if flushed else 400)

    async def freeze_gc(self, http: web.Request) -> web.Response:
        """Part of SGLang's own warm-up."""
        return web.Response(text="Garbage collection frozen.\n")

    async def abort_request(self, http: web.Request) -> web.Response:
        """Abort one request by id, or all."""
        body = await _json(http)
        if not isinstance(body, dict):
            raise BadRequest("body: should be an object", "Bad Request")
        self.generation.abort(str(body.get("rid") or ""), bool(body.get("abort_all")))
        return web.Response()

    # --- generating

    async def generate(self, http: web.Request) -> web.StreamResponse:
        """The native API."""
        asked = parse_native(await _json(http), self.settings.limits)
        head = self.generation.head(asked, self.settings.served_model_name)
        incremental = bool(self.settings.flags.get("incremental-streaming-output"))
        return await self.generation.answer(http, asked, NativeWire(head, incremental))

    async def completions(self, http: web.Request) -> web.StreamResponse:
        """OpenAI's text completions."""
        body = await _json(http)
        asked = parse_completion(body, self.settings.limits, self._cache_report)
        return await self.generation.answer(
            http, asked, CompletionWire(self.generation.head(asked, _model(body)), asked.usage)
        )

    async def chat(self, http: web.Request) -> web.StreamResponse:
        """OpenAI's chat completions."""
        body = await _json(http)
        asked = parse_chat(body, self.settings.limits, self._cache_report)
        return await self.generation.answer(
            http, asked, ChatWire(self.generation.head(asked, _model(body)), asked.usage)
        )


def _refusal(path: str, error: BadRequest) -> dict[str, Any]:
    """SGLang's error object: plain for the OpenAI API and for malformed bodies, wrapped for the native one."""
    if path.startswith("/v1/") or error.kind == "Bad Request":
        return {"object": "error", "message": error.message, "type": error.kind, "param": None, "code": 400}
    return {"error": {"message": error.message}}


async def _json(http: web.Request) -> Any:
    if http.path.startswith("/v1/") and http.content_type != "application/json":
        raise BadRequest("Unsupported Media Type: Only 'application/json' is allowed", "Bad Request")
    try:
        return json.loads(await http.read())
    except ValueError as error:
        raise BadRequest(f"The body is not JSON: {error}", "Bad Request") from error


def _model(body: Any) -> str | None:
    """The model a request names: SGLang echoes it, whatever it is."""
    model = body.get("model") if isinstance(body, dict) else None
    return model if isinstance(model, str) else None
