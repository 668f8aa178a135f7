"""Sends one request over HTTP and writes down what came back, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

import aiohttp

from orchestrator.benchmark.records import RequestRecord
from orchestrator.benchmark.stream import NativeStream, OpenAIStream, Verdict, error_body, one_line, spread
from orchestrator.benchmark.workload import PreparedRequest

Clock = Callable[[], float]
Deliver = Callable[[RequestRecord], None]

#: An answer with another status than 200 is read up to here for its message.
_ERROR_BODY_BYTES = 65536
_CONNECT_TIMEOUT_S = 30.0
#: Below the 5 s after which uvicorn (SGLang's HTTP server) closes an idle connection by default.
_KEEPALIVE_S = 4.0


class Client:
    """An HTTP session without a cap on connections and without proxies. An asynchronous context manager."""

    def __init__(self, base_url: str, *, api: str, timeout_s: float, clock: Clock, api_key: str | None = None) -> None:
        self._base_url = base_url.rstrip("/")
        self._stream = NativeStream if api == "native" else OpenAIStream
        self._timeout_s = timeout_s
        self._clock = clock
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream",
            # A compressed stream is held back until its block is full.
            "Accept-Encoding": "identity",
        }
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._session: aiohttp.ClientSession | None = None
        #: Pieces of answers that have come, over all requests.
        self.pieces = 0

    async def __aenter__(self) -> Client:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S),
            headers=self._headers,
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=2**18,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(
        self,
        request: PreparedRequest,
        *,
        user: int,
        warmup: bool,
        deliver: Deliver,
        targeted_s: float | None = None,
    ) -> RequestRecord:
        """Send `request`, read its answer to the end and deliver its record, exactly once.

        A failure of the request is a record, never an exception. Cancelling delivers a record of kind
        `cancelled`, then goes on as asyncio.CancelledError.
        """
        answer = self._stream()
        event_s: list[float] = []
        told: list[int] = []
        started_s = self._clock()

        def record(verdict: Verdict) -> RequestRecord:
            tokens = verdict.output_tokens
            return RequestRecord(
                index=request.index,
                user=user,
                warmup=warmup,
                started_s=started_s,
                finished_s=self._clock(),
                event_s=tuple(event_s),
                event_tokens=() if tokens is None else spread(told, tokens),
                prompt_tokens=verdict.prompt_tokens,
                cached_tokens=verdict.cached_tokens,
                output_tokens=tokens,
                tokens_estimated=verdict.tokens_estimated,
                spec_verify_steps=verdict.spec_verify_steps,
                reasoning_tokens=verdict.reasoning_tokens,
                finish_reason=verdict.finish_reason,
                error=None if verdict.kind is None else verdict.message or verdict.kind,
                error_kind=verdict.kind,
                error_code=verdict.code,
                warning=verdict.warning or _short(request, verdict),
                targeted_s=targeted_s,
            )

        def note(outputs: list[int]) -> None:
            if outputs:
                self.pieces += len(outputs)
                event_s.extend([self._clock()] * len(outputs))
                told.extend(outputs)

        try:
            async with asyncio.timeout(self._timeout_s):
                verdict = await self._exchange(request, answer, note)
        except asyncio.CancelledError:
            deliver(record(Verdict("cancelled", message="cancelled: the level was stopped")))
            raise
        except TimeoutError:
            got = f"{len(event_s)} events had come" if event_s else "nothing had come"
            verdict = Verdict("timeout", message=f"no whole answer within {self._timeout_s:g} s; {got}")
        done = record(verdict)
        deliver(done)
        return done

    async def _exchange(
        self, request: PreparedRequest, answer: OpenAIStream | NativeStream, note: Callable[[list[int]], None]
    ) -> Verdict:
        assert self._session is not None, "a Client is used inside `async with`"
        cut: str | None = None
        status: int | None = None
        try:
            async with self._session.post(self._base_url + request.path, data=request.body) as response:
                status = response.status
                if status != 200:
                    body = await response.content.read(_ERROR_BODY_BYTES)
                    message, _ = error_body(body)
                    return Verdict("http", status, one_line(f"HTTP {status} {response.reason}: {message}"))
                read = response.content.readany
                feed = answer.feed
                while chunk := await read():
                    note(feed(chunk))
        except aiohttp.ClientConnectorError as error:
            return Verdict("connect", message=one_line(f"cannot connect: {error}"))
        except aiohttp.ConnectionTimeoutError:
            return Verdict("connect", message=f"cannot connect within {_CONNECT_TIMEOUT_S:g} s")
        except (aiohttp.ClientError, ConnectionError, ValueError) as error:
            # ValueError: aiohttp's own complaints about a malformed answer or URL.
            cut = f"{type(error).__name__}: {error}"
            if status != 200:
                return Verdict("cut", status, one_line(f"the connection broke before an answer: {cut}"))
        late, verdict = answer.finish(cut)
        note(late)
        return verdict


def _short(request: PreparedRequest, verdict: Verdict) -> str | None:
    """A whole answer may still be shorter than the workload says, cut by the context length for one."""
    tokens = verdict.output_tokens
    if not request.exact or tokens is None or verdict.tokens_estimated or tokens >= request.output_tokens:
        return None
    return f"{tokens} of {request.output_tokens} output tokens came; the prompt may not leave room for more"
