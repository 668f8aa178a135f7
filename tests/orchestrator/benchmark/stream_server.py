"""A small streaming server for tests: each test says how it answers; it counts what is in flight."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from aiohttp import web

Answer = Callable[["StreamServer", web.Request, int], Awaitable[web.StreamResponse]]


def event(payload: object) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def completion(text: str, tokens: int | None = None, finish: str | None = None) -> bytes:
    """An event of /v1/completions; `tokens` is the usage so far."""
    usage = None if tokens is None else {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": 5 + tokens}
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    return event({"id": "x", "object": "text_completion", "choices": [choice], "usage": usage})


def good_answer(tokens: int = 4) -> list[bytes]:
    """A whole answer of one token per event."""
    events = [completion(" a", n, "length" if n == tokens else None) for n in range(1, tokens + 1)]
    return [*events, DONE]


async def stream(request: web.Request, parts: Iterable[bytes]) -> web.StreamResponse:
    """Answer 200 and the parts, each written by itself."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for part in parts:
        await response.write(part)
        await asyncio.sleep(0)
    await response.write_eof()
    return response


async def good(server: StreamServer, request: web.Request, number: int) -> web.StreamResponse:
    """The answer of a server without faults."""
    return await stream(request, good_answer())


class StreamServer:
    """Serves /v1/completions and /generate on a free port. An asynchronous context manager.

    `answer` is called with the server, the request and its number, from 0 in order of arrival.
    """

    def __init__(self, answer: Answer = good) -> None:
        self._answer = answer
        self.in_flight = 0
        self.most_in_flight = 0
        self.arrived = 0
        #: Requests whose client went away before the answer was whole.
        self.abandoned = 0
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []

    async def __aenter__(self) -> StreamServer:
        app = web.Application(client_max_size=2**24)
        app.router.add_post("/v1/completions", self._handle)
        app.router.add_post("/generate", self._handle)
        # The default would wait a minute for requests that a test left hanging.
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, backlog=1024)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Close the port and every connection."""
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        number = self.arrived
        self.arrived += 1
        self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._answer(self, request, number)
        except (asyncio.CancelledError, ConnectionError):
            self.abandoned += 1
            raise
        finally:
            self.in_flight -= 1
