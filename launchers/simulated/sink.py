"""A streamed body written straight to the connection: one write for each step, chunk frames made here."""

from __future__ import annotations

import asyncio

from aiohttp import web

#: Bytes in the connection's buffer from which on events are held back until it has drained.
HIGH_WATER_BYTES = 1 << 16


class Sink:
    """Chunked server-sent events on a response whose headers are out.

    `send` never waits: it is called from within an engine step. `drained_until_closed` runs beside it in the
    request's handler and passes on what a slow reader made wait.
    """

    def __init__(self, http: web.Request) -> None:
        self._http = http
        transport = http.transport
        if transport is None:
            raise ConnectionResetError("the client has gone")
        self._transport = transport
        self._held: list[bytes] | None = None
        self._closed = False
        self._wake = asyncio.Event()

    def send(self, data: bytes) -> None:
        """Write one chunk, or hold it back while the reader is slow."""
        frame = b"%x\r\n%b\r\n" % (len(data), data)
        if self._held is not None:
            self._held.append(frame)
            return
        transport = self._transport
        if transport.is_closing():
            return
        transport.write(frame)
        if transport.get_write_buffer_size() > HIGH_WATER_BYTES:
            self._held = []
            self._wake.set()

    def close(self) -> None:
        """No further chunk will be sent."""
        self._closed = True
        self._wake.set()

    def cut(self) -> None:
        """Break the connection within the body."""
        self._transport.close()
        self.close()

    async def drained_until_closed(self) -> None:
        """Return when `close` was called and everything sent has been passed on."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._held is not None:
                await self._http.writer.drain()
                held, self._held = self._held, None
                if held and not self._transport.is_closing():
                    self._transport.write(b"".join(held))
                    if self._transport.get_write_buffer_size() > HIGH_WATER_BYTES:
                        self._held = []
            if self._closed:
                return
