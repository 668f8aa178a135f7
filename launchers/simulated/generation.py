"""Generation requests between HTTP and the engine: admitted, streamed or awaited, aborted when left."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import Any

from aiohttp import web

from launchers.simulated.bodies import Asked, BadRequest
from launchers.simulated.broken import FROM_THE_START, breaking_bytes
from launchers.simulated.driver import Driver
from launchers.simulated.faults import Garbled, StreamError, StreamShape
from launchers.simulated.request import Finish, Request, Sampling
from launchers.simulated.settings import END_CHANCE, Settings
from launchers.simulated.sink import Sink
from launchers.simulated.tokens import TokenSource, seed_of
from launchers.simulated.trouble import Trouble
from launchers.simulated.wire import DONE, Head, Wire

#: Set by the server's own warm-up, whose requests no fault counts.
WARMUP_HEADER = "X-Simulated-Warmup"


class Generation:
    """The requests inside, by id."""

    def __init__(self, settings: Settings, driver: Driver, trouble: Trouble) -> None:
        self.settings = settings
        self.driver = driver
        self.inside: dict[str, Request] = {}
        self._trouble = trouble
        self._rng = random.Random(settings.seed)
        self._epoch_offset_s = time.time() - driver.clock()
        self._streams = 0
        self._stream_interval = int(settings.flags.get("stream-interval", 1))

    async def answer(self, http: web.Request, asked: Asked, wire: Wire) -> web.StreamResponse:
        """Run one request and answer it, streamed or whole. Aborts it when its client goes away."""
        if wire.head.rid in self.inside:
            raise BadRequest(f"Duplicate request ID detected: {wire.head.rid}")
        request = self._new_request(wire.head.rid, asked.input_ids, asked.sampling, asked.stream)
        if WARMUP_HEADER not in http.headers:
            self._trouble.began()
        try:
            if asked.stream:
                return await self._stream(http, request, wire)
            await self._submitted(request)
            return reply(wire.body(request))
        finally:
            self._leave(request)

    async def one_token(self, timeout_s: float) -> bool:
        """Run a health check's request of one token; whether it came in time."""
        request = self._new_request(f"HEALTH_CHECK_{self._rid()}", (0,), Sampling(1, True), streaming=False)
        request.counted = False
        try:
            await asyncio.wait_for(self._submitted(request), timeout_s)
        except TimeoutError:
            return False
        finally:
            self._leave(request)
        return True

    def abort(self, rid: str, everything: bool) -> None:
        """Abort the requests whose id begins with `rid`, or every one."""
        for name, request in list(self.inside.items()):
            if everything or (rid and name.startswith(rid)):
                self.driver.abort(request)

    async def _stream(self, http: web.Request, request: Request, wire: Wire) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        response.enable_chunked_encoding()
        await response.prepare(http)
        sink = Sink(http)
        fault = self._stream_fault()
        interval = self._stream_interval
        unsent = 0

        def on_tokens(request: Request, gained: int) -> None:
            nonlocal unsent
            unsent += gained
            finished = request.finish is not None
            if unsent < interval and not finished and len(request.output_ids) > gained:
                return
            sink.send(wire.grown(request, unsent))
            unsent = 0
            if finished:
                sink.close()

        def broken(request: Request, gained: int) -> None:
            assert fault is not None
            if fault.shape is StreamShape.NO_DONE or (
                len(request.output_ids) < fault.after_tokens and request.finish is None
            ):
                on_tokens(request, gained)
                return
            if data := breaking_bytes(fault.shape):
                sink.send(data)
            request.on_tokens = None
            sink.cut() if fault.shape is StreamShape.CUT else sink.close()
            self.driver.abort(request)

        request.on_tokens = on_tokens if fault is None else broken
        if fault is not None and fault.shape in FROM_THE_START:
            if data := breaking_bytes(fault.shape):
                sink.send(data)
            sink.close()
            request.finish = Finish.ABORT
        else:
            self._admit(request)
        await sink.drained_until_closed()
        if fault is None:
            await response.write_eof(wire.end(request))
        elif fault.shape is StreamShape.NO_DONE:
            await response.write_eof(wire.end(request).removesuffix(DONE))
        elif fault.shape is not StreamShape.CUT:
            await response.write_eof()
        return response

    def _stream_fault(self) -> StreamError | None:
        fault = self.settings.fault
        if not isinstance(fault, StreamError):
            return None
        self._streams += 1
        return fault if self._streams % fault.every == 0 else None

    def _new_request(self, rid: str, input_ids: tuple[int, ...], sampling: Sampling, streaming: bool) -> Request:
        settings = self.settings
        garbled = isinstance(settings.fault, Garbled)
        seed = seed_of(settings.seed + garbled, input_ids)
        chance = 0.0 if sampling.ignore_eos else END_CHANCE
        return Request(
            rid,
            input_ids,
            sampling.max_new_tokens,
            TokenSource(seed, settings.limits.vocab_size, chance),
            random.Random(seed) if settings.times.speculative else self._rng,
            streaming=streaming,
            arrived_s=self.driver.clock(),
        )

    def _submitted(self, request: Request) -> asyncio.Future[None]:
        """Submit; the future is done when the request has finished."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_tokens(request: Request, gained: int) -> None:
            if request.finish is not None and not done.done():
                done.set_result(None)

        request.on_tokens = on_tokens
        self._admit(request)
        return done

    def _admit(self, request: Request) -> None:
        self.inside[request.rid] = request
        self.driver.submit(request)

    def _leave(self, request: Request) -> None:
        """Forget a request; abort it if its client went away before the end."""
        if self.inside.get(request.rid) is request:
            del self.inside[request.rid]
        if request.finish is None:
            request.on_tokens = None
            self.driver.abort(request)

    def head(self, asked: Asked, model: str | None) -> Head:
        """What stays the same over the answer."""
        tree = self.settings.times.tree
        return Head(
            rid=asked.rid or self._rid(),
            created_s=time.time(),
            epoch_offset_s=self._epoch_offset_s,
            model=model or self.settings.served_model_name,
            proposed_drafts=tree.draft_tokens - 1 if tree else None,
        )

    def _rid(self) -> str:
        return f"{self._rng.getrandbits(128):032x}"


def reply(data: Any, status: int = 200) -> web.Response:
    """A JSON answer, spaced as SGLang's."""
    body = json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()
    return web.Response(body=body, status=status, content_type="application/json")
