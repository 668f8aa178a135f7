"""A connection of our own to an HTTP server: a stamp for each read, and as little else as can be."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import cast

from orchestrator.benchmark.answer import Answer
from orchestrator.benchmark.skim import EVENT_END

Clock = Callable[[], float]

#: A longer read may hold several events.
_ONE_EVENT_BYTES = 400
#: Bytes of an answer that are kept before some are decoded though it is still streaming.
_KEEP_BYTES = 2**14


class Connection(asyncio.Protocol):
    """Carries one request at a time. `pieces` counts the events that have come, about."""

    def __init__(self, clock: Clock, relieve: Callable[[Connection], None]) -> None:
        """`relieve` is told of a connection that keeps much of an answer; it is to call `digest` soon."""
        self._clock = clock
        self._relieve = relieve
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._ended: asyncio.Future[None] | None = None
        self._reads: list[bytes] = []
        self._reads_s: list[float] = []
        self._lazy = False
        self._kept = 0
        self._descriptor = -1
        self.pieces = 0
        #: It takes a request.
        self.open = False

    async def ask(self, request: bytes, answer: Answer) -> None:
        """Write a whole request and fill `answer` until it is over. Cancelling closes the connection."""
        assert self._transport is not None, "not connected"
        self._answer = answer
        self._lazy = False
        self._kept = 0
        self._reads, self._reads_s = answer.reads, answer.reads_s
        self._ended = asyncio.get_running_loop().create_future()
        answer.started_s = self._clock()
        self._write(request)
        try:
            await self._ended
        except BaseException:
            self.abort()
            raise
        finally:
            self._answer = self._ended = None
        if not answer.reusable:
            self.abort()

    def _write(self, request: bytes) -> None:
        """Write now: the transport would write once all that is ready in the loop has run, later than `started_s`."""
        assert self._transport is not None
        written = 0
        if self._descriptor >= 0:
            # What the socket does not take, or why it is broken, is the transport's.
            with contextlib.suppress(OSError):
                written = os.write(self._descriptor, request)
        if written < len(request):
            self._transport.write(request[written:])

    def digest(self) -> bool:
        """Decode some of the answer that streams; whether there is no more to decode now."""
        answer = self._answer
        if answer is None:
            return True
        done = answer.digest()
        if answer.over:
            # It turned out to be none.
            self._end(self._clock())
        return done

    def abort(self) -> None:
        """Close it at once."""
        self.open = False
        self._lazy = False
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        socket = transport.get_extra_info("socket")
        self._descriptor = -1 if socket is None else socket.fileno()
        self.open = True

    def data_received(self, data: bytes) -> None:
        now_s = self._clock()
        if not self._lazy:
            self._take(data, now_s)
            return
        self._reads.append(data)
        self._reads_s.append(now_s)
        length = len(data)
        self.pieces += 1 if length < _ONE_EVENT_BYTES else data.count(b"\n\n")
        self._kept += length
        if not data.endswith(EVENT_END):
            self._look(now_s)
        elif self._kept > _KEEP_BYTES:
            self._kept = 0
            self._relieve(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        self._lazy = False
        answer = self._answer
        if answer is not None and not answer.over:
            how = "the server closed the connection" if error is None else f"{type(error).__name__}: {error}"
            answer.closed(how)
            self._end(self._clock())

    def _take(self, data: bytes, now_s: float) -> None:
        answer = self._answer
        if answer is None or answer.over:
            # Nobody asked for it.
            self.abort()
            return
        answer.take(data, now_s)
        self.pieces += data.count(b"\n\n")
        self._lazy = answer.lazy
        if answer.over:
            self._end(now_s)

    def _look(self, now_s: float) -> None:
        answer = self._answer
        assert answer is not None
        answer.look_for_end()
        if answer.over:
            self._end(now_s)
        elif self._kept > _KEEP_BYTES:
            self._kept = 0
            self._relieve(self)
        self._lazy = answer.lazy and not answer.over

    def _end(self, now_s: float) -> None:
        self._lazy = False
        if self._answer is not None and self._ended is not None and not self._ended.done():
            self._answer.finished_s = now_s
            self._ended.set_result(None)
