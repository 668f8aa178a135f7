"""Connections of our own to one plain http server: opened beforehand, used again, never shared by two requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from orchestrator.benchmark.answer import Answer
from orchestrator.benchmark.connection import Clock, Connection
from orchestrator.benchmark.stream import Verdict, one_line
from orchestrator.benchmark.workload import PreparedRequest

CONNECT_TIMEOUT_S = 30.0
#: Below the 5 s after which uvicorn (SGLang's HTTP server) closes an idle connection by default.
KEEPALIVE_S = 4.0
#: So many connections are opened at a time: more would overflow a short queue of the server's.
_OPENING = 64


class Pool:
    """Sends requests, as many at a time as are asked for, each on a connection of its own."""

    def __init__(
        self, base_url: str, headers: Mapping[str, str], clock: Clock, relieve: Callable[[Connection], None]
    ) -> None:
        """`relieve`: see Connection. Raises ValueError for a header that HTTP cannot carry."""
        address = urlsplit(base_url)
        self._host = address.hostname or ""
        self._port = address.port or 80
        self._prefix = address.path
        self._clock = clock
        self._relieve = relieve
        lines = {"Host": address.netloc, **headers}
        if any(not value.isprintable() for value in lines.values()):
            raise ValueError("a header of the requests, the API key for one, holds a line end or the like")
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode("latin-1")
        self._idle: list[tuple[Connection, float]] = []
        self._all: set[Connection] = set()
        self._closed_pieces = 0
        self._opening = asyncio.Semaphore(_OPENING)

    @property
    def pieces(self) -> int:
        """Events that have come so far."""
        return self._closed_pieces + sum(connection.pieces for connection in self._all)

    async def open(self, count: int) -> None:
        """Open `count` connections for later; none or fewer where the server does not take them."""
        for first in range(0, count, _OPENING):
            some = [self._connect() for _ in range(min(_OPENING, count - first))]
            opened = await asyncio.gather(*some, return_exceptions=True)
            self._idle.extend((one, _now_s()) for one in opened if isinstance(one, Connection))
            if any(isinstance(one, BaseException) for one in opened):
                # The requests will say it.
                break

    async def close(self) -> None:
        """Close all connections."""
        for connection in self._all:
            connection.abort()
        self._all.clear()
        # The sockets are closed in the loop's next round.
        await asyncio.sleep(0)

    async def exchange(self, request: PreparedRequest, answer: Answer) -> None:
        """Send `request` and fill `answer` until it is over. A failure is the answer's, never an exception."""
        try:
            connection = self._take() or await self._connect()
        except TimeoutError:
            answer.fail(Verdict("connect", message=f"cannot connect within {CONNECT_TIMEOUT_S:g} s"))
            return
        except OSError as error:
            answer.fail(Verdict("connect", message=one_line(f"cannot connect: {error}")))
            return
        head = b"POST %s HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n" % (
            (self._prefix + request.path).encode(),
            self._headers,
            len(request.body),
        )
        try:
            await connection.ask(head + request.body, answer)
        finally:
            if connection.open:
                self._idle.append((connection, _now_s()))
            else:
                self._forget(connection)

    def _take(self) -> Connection | None:
        """A connection that is open and that the server will not close just now."""
        while self._idle:
            connection, since_s = self._idle.pop()
            if connection.open and _now_s() - since_s < KEEPALIVE_S:
                return connection
            connection.abort()
            self._forget(connection)
        return None

    async def _connect(self) -> Connection:
        async with asyncio.timeout(CONNECT_TIMEOUT_S), self._opening:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(self._clock, self._relieve), self._host, self._port
            )
        self._all.add(connection)
        return connection

    def _forget(self, connection: Connection) -> None:
        if connection in self._all:
            self._all.remove(connection)
            self._closed_pieces += connection.pieces


def _now_s() -> float:
    """The loop's own clock: how long a connection was idle is no measurement."""
    return asyncio.get_running_loop().time()
