"""A server that sends paced events and knows, by the clock that a client reads, when it sent each one.

    python tests/benchmarks/event_server.py

prints its URL. Not SGLang and not a simulation of it: prebuilt bytes in SGLang's form, written as cheaply as Python
can. The first event of an answer goes out at once, one more to every open answer at each step, each with a system
call of its own and a stamp of CLOCK_MONOTONIC just before it. `POST /reset` sets the pace and forgets what was sent,
`GET /truth` tells it.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import re
import time
from typing import cast

import uvloop

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PROMPT_TOKENS = 64


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def _event(payload: object) -> bytes:
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"


def writes(events: int, usage_at_end: bool = True, usage_always: bool = True) -> list[bytes]:
    """An answer of /v1/completions, one token an event, as SGLang 0.5.23 writes it: what each write sends."""
    frame = {"id": "0" * 32, "object": "text_completion", "created": 1796055420, "model": "m"}
    out = []
    for n in range(1, events + 1):
        finish = "length" if n == events else None
        choice = {"index": 0, "text": " 400", "logprobs": None, "finish_reason": finish, "matched_stop": None}
        usage = {"prompt_tokens": PROMPT_TOKENS, "total_tokens": PROMPT_TOKENS + n, "completion_tokens": n}
        details = {"prompt_tokens_details": None, "reasoning_tokens": 0, "completion_tokens_details": None}
        told = usage | details if usage_always else None
        out.append(chunk(_event({**frame, "choices": [choice], "usage": told})))
    out[0] = _HEAD + out[0]
    out[-1] += chunk(_event({**frame, "choices": [], "usage": usage})) if usage_at_end else b""
    out[-1] += chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
    return out


#: What a request asks of the usage: none, at the end, in every event.
_AT_END = re.compile(rb'"include_usage":\s*true')
_ALWAYS = re.compile(rb'"continuous_usage_stats":\s*true')


class Pace:
    """What all connections share: the answer, the open ones, and what was sent."""

    def __init__(self) -> None:
        #: By what is asked for of the usage: at the end, always.
        self.answers: dict[tuple[bool, bool], list[bytes]] = {}
        self.prepare(1)
        self.interval_s = 0.02
        self.open: dict[Connection, None] = {}

    def prepare(self, events: int) -> None:
        """Make the answers, and forget what was sent."""
        for end, always in itertools.product((False, True), repeat=2):
            self.answers[end, always] = writes(events, end, always)
        #: Body, arrival and departures of each request.
        self.truth: list[tuple[bytes, float, list[float]]] = []
        #: Writes that the socket did not take whole.
        self.blocked = 0

    async def run(self) -> None:
        """One step after the other; what a late one missed is not made up for."""
        next_s = time.monotonic()
        while True:
            next_s = max(next_s + self.interval_s, time.monotonic())
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))
            for connection in list(self.open):
                connection.step()


class Connection(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._received = b""
        self._answer: list[bytes] = []
        self._sent_s: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._descriptor = transport.get_extra_info("socket").fileno()

    def connection_lost(self, error: Exception | None) -> None:
        self._pace.open.pop(self, None)

    def data_received(self, data: bytes) -> None:
        now_s = time.monotonic()
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        lines = head.lower().split(b"\r\n")
        length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0)
        if len(body) < length:
            return
        self._received = b""
        verb, path = head.split(b" ", 2)[:2]
        if verb == b"POST" and path == b"/v1/completions":
            self._sent_s = []
            self._answer = self._pace.answers[_AT_END.search(body) is not None, _ALWAYS.search(body) is not None]
            self._pace.open[self] = None
            self.step()
            self._pace.truth.append((body, now_s, self._sent_s))
        else:
            self._tell(verb, path.split(b"?")[0], body)

    def step(self) -> None:
        """Send the next event."""
        number, answer = len(self._sent_s), self._answer
        data = answer[number]
        if number + 1 == len(answer):
            del self._pace.open[self]
        self._sent_s.append(time.monotonic())
        # Past the transport, which would write at the end of the loop's round.
        try:
            written = os.write(self._descriptor, data)
        except BlockingIOError:
            written = 0
        except OSError:
            self._pace.open.pop(self, None)
            return
        if written < len(data):
            self._pace.blocked += 1
            self._transport.write(data[written:])

    def _tell(self, verb: bytes, path: bytes, body: bytes) -> None:
        told: object = None
        if path == b"/v1/models":
            told = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "m", "max_model_len": 4096}]}
        elif path in (b"/get_model_info", b"/model_info"):
            told = {"model_path": "m", "tokenizer_path": "m", "is_generation": True}
        elif path in (b"/server_info", b"/get_server_info", b"/flush_cache", b"/health"):
            told = {}
        elif path == b"/reset":
            asked = json.loads(body)
            self._pace.prepare(asked["events"])
            self._pace.interval_s = asked["interval_ms"] / 1000
            told = {}
        elif path == b"/truth":
            truth = [
                {"key": hashlib.md5(body).hexdigest(), "arrived_s": arrived_s, "sent_s": sent_s}
                for body, arrived_s, sent_s in self._pace.truth
            ]
            told = {"requests": truth, "blocked": self._pace.blocked}
        status = b"404 Not Found" if told is None else b"200 OK"
        data = json.dumps(told).encode()
        head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(data))
        self._transport.write(head + data)


async def serve() -> None:
    """Serve for ever on a free port; prints the URL."""
    pace = Pace()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(pace), "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await pace.run()


if __name__ == "__main__":
    uvloop.run(serve())
