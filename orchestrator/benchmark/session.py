"""The way over aiohttp, for what `pool` does not speak: TLS."""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp

from orchestrator.benchmark.answer import ERROR_BODY_BYTES, Answer
from orchestrator.benchmark.connection import Clock
from orchestrator.benchmark.pool import CONNECT_TIMEOUT_S, KEEPALIVE_S
from orchestrator.benchmark.stream import Verdict, error_body, one_line
from orchestrator.benchmark.workload import PreparedRequest


class Session:
    """An HTTP session without a cap on connections, without proxies, cookies and redirects."""

    def __init__(self, base_url: str, headers: Mapping[str, str], clock: Clock) -> None:
        self._base_url = base_url
        self._headers = headers
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        #: Events that have come so far.
        self.pieces = 0

    async def open(self, count: int) -> None:
        """Make it ready; its connections are opened when they are needed."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
            headers=self._headers,
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=2**18,
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def exchange(self, request: PreparedRequest, answer: Answer) -> None:
        """Send `request` and fill `answer` until it is over. A failure is the answer's, never an exception."""
        try:
            await self._exchange(request, answer)
        finally:
            answer.finished_s = self._clock()

    async def _exchange(self, request: PreparedRequest, answer: Answer) -> None:
        assert self._session is not None, "a Client is used inside `async with`"
        status: int | None = None
        cut: str | None = None
        answer.started_s = self._clock()
        try:
            async with self._session.post(
                self._base_url + request.path, data=request.body, allow_redirects=False
            ) as response:
                status = response.status
                if status != 200:
                    message, _ = error_body(await response.content.read(ERROR_BODY_BYTES))
                    answer.fail(Verdict("http", status, one_line(f"HTTP {status} {response.reason}: {message}")))
                    return
                read = response.content.readany
                while chunk := await read():
                    self.pieces += chunk.count(b"\n\n")
                    answer.take_body(chunk, self._clock())
        except aiohttp.ClientConnectorError as error:
            answer.fail(Verdict("connect", message=one_line(f"cannot connect: {error}")))
            return
        except aiohttp.ConnectionTimeoutError:
            answer.fail(Verdict("connect", message=f"cannot connect within {CONNECT_TIMEOUT_S:g} s"))
            return
        except (aiohttp.ClientError, ConnectionError, ValueError) as error:
            # ValueError: aiohttp's own complaints about a malformed answer or URL.
            cut = f"{type(error).__name__}: {error}"
            if status != 200:
                message = one_line(f"the connection broke before an answer: {cut}")
                answer.fail(Verdict("cut", status, message))
                return
        answer.end_body(cut)
