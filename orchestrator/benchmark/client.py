"""Sends requests over HTTP and writes down what came back, and when."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import urlsplit

from orchestrator.benchmark.answer import Answer
from orchestrator.benchmark.connection import Clock, Connection
from orchestrator.benchmark.pool import Pool
from orchestrator.benchmark.records import RequestRecord
from orchestrator.benchmark.session import Session
from orchestrator.benchmark.stream import Verdict, spread
from orchestrator.benchmark.workload import PreparedRequest

Deliver = Callable[[RequestRecord], None]

#: Answers that end together are decoded one by one, this far apart, so that no stamp waits long for them.
_DIGEST_PAUSE_S = 0.001
#: One more slice at a time for so many waiting.
_DIGEST_BACKLOG = 64
#: Requests that are made and sent before the loop looks at its sockets again.
_TURNS = 2


@dataclass(frozen=True, slots=True)
class Ending:
    """What is known of an answer at its end, before it is decoded."""

    #: Its end is a success's. The record, which comes later, has the last word.
    succeeded: bool
    finished_s: float


@dataclass(frozen=True, slots=True)
class _Asked:
    request: PreparedRequest
    user: int
    warmup: bool
    targeted_s: float | None
    started_s: float
    finished_s: float
    deliver: Deliver


class Client:
    """Sends requests, without a cap on how many at a time and without proxies. An asynchronous context manager."""

    def __init__(
        self,
        base_url: str,
        *,
        api: str,
        timeout_s: float,
        clock: Clock,
        api_key: str | None = None,
        connections: int = 0,
    ) -> None:
        """`connections` are opened on entering: one for each user. Raises ValueError for a key that no header takes."""
        self._native = api == "native"
        self._timeout_s = timeout_s
        self._clock = clock
        self._connections = connections
        headers = {
            "User-Agent": "sglang-orchestrator",
            "Content-Type": "application/json",
            "Accept": "text/event-stream",
            # A compressed stream is held back until its block is full.
            "Accept-Encoding": "identity",
        }
        if api_key is not None:
            headers["Authorization"] = f"Bearer {api_key}"
        url = base_url.rstrip("/")
        address = urlsplit(url)
        plain = address.scheme == "http" and address.hostname and "@" not in address.netloc
        self._way = Pool(url, headers, clock, self._relieve) if plain else Session(url, headers, clock)
        #: What is to be decoded: answers that have ended, in the order of their ends, and connections that keep much.
        self._kept: deque[tuple[Connection, None] | tuple[Answer, _Asked]] = deque()
        self._digesting: asyncio.TimerHandle | None = None
        self._turns = _TURNS
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def pieces(self) -> int:
        """Events of answers that have come, over all requests; a few of a read of many short ones may be missed."""
        return self._way.pieces

    async def __aenter__(self) -> Client:
        await self._way.open(self._connections)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._way.close()
        self.settle()

    async def send(
        self,
        request: PreparedRequest,
        *,
        user: int,
        warmup: bool,
        deliver: Deliver,
        targeted_s: float | None = None,
    ) -> Ending:
        """Send `request` and read its answer to the end; its record is delivered exactly once, some time later.

        Records come in the order of the answers' ends, the last ones by `settle` or on leaving. A failure of the
        request is a record, never an exception. Cancelling makes a record of kind `cancelled`, then goes on as
        asyncio.CancelledError.
        """
        answer = Answer(native=self._native)
        begun_s = self._clock()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._way.exchange(request, answer)
        except TimeoutError:
            answer.fail(Verdict("timeout"))
        except asyncio.CancelledError:
            answer.fail(Verdict("cancelled", message="cancelled: the level was stopped"))
            raise
        finally:
            started_s = begun_s if answer.started_s is None else answer.started_s
            finished_s = self._clock() if answer.finished_s is None else answer.finished_s
            self._keep((answer, _Asked(request, user, warmup, targeted_s, started_s, finished_s, deliver)))
        return Ending(answer.succeeded, finished_s)

    async def turn(self) -> None:
        """Wait until it is one's turn to make and send a request, when many would at once.

        Between every few of them the loop reads its sockets: the first answers' stamps do not wait for the last
        requests.
        """
        if self._turns > 0 and not self._waiting:
            self._turns -= 1
            if self._turns == 0:
                asyncio.get_running_loop().call_soon(self._next_turns)
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await waiter

    def _next_turns(self) -> None:
        self._turns = _TURNS
        while self._waiting and self._turns:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._turns -= 1
        if self._turns == 0:
            asyncio.get_running_loop().call_soon(self._next_turns)

    def settle(self) -> None:
        """Decode and deliver all that has ended, at once."""
        while self._kept:
            self._digest_one()

    def _relieve(self, connection: Connection) -> None:
        self._keep((connection, None))

    def _keep(self, one: tuple[Connection, None] | tuple[Answer, _Asked]) -> None:
        self._kept.append(one)
        if self._digesting is None:
            self._digesting = asyncio.get_running_loop().call_later(_DIGEST_PAUSE_S, self._digest)

    def _digest(self) -> None:
        self._digesting = None
        for _ in range(1 + len(self._kept) // _DIGEST_BACKLOG):
            if self._kept:
                self._digest_one()
        if self._kept:
            self._digesting = asyncio.get_running_loop().call_later(_DIGEST_PAUSE_S, self._digest)

    def _digest_one(self) -> None:
        kept, asked = self._kept[0]
        if not kept.digest():
            return
        self._kept.popleft()
        if isinstance(kept, Answer) and asked is not None:
            asked.deliver(self._record(kept, asked))

    def _record(self, answer: Answer, asked: _Asked) -> RequestRecord:
        verdict = answer.verdict
        assert verdict is not None, "an answer that is over and decoded has its verdict"
        message = verdict.message
        if verdict.kind == "timeout":
            got = f"{len(answer.event_s)} events had come" if answer.event_s else "nothing had come"
            message = f"no whole answer within {self._timeout_s:g} s; {got}"
        tokens = verdict.output_tokens
        return RequestRecord(
            index=asked.request.index,
            user=asked.user,
            warmup=asked.warmup,
            started_s=asked.started_s,
            finished_s=asked.finished_s,
            event_s=tuple(answer.event_s),
            event_tokens=() if tokens is None else spread(answer.told, tokens),
            prompt_tokens=verdict.prompt_tokens,
            cached_tokens=verdict.cached_tokens,
            output_tokens=tokens,
            tokens_estimated=verdict.tokens_estimated,
            spec_verify_steps=verdict.spec_verify_steps,
            reasoning_tokens=verdict.reasoning_tokens,
            finish_reason=verdict.finish_reason,
            error=None if verdict.kind is None else message or verdict.kind,
            error_kind=verdict.kind,
            error_code=verdict.code,
            warning=verdict.warning or _short(asked.request, verdict),
            targeted_s=asked.targeted_s,
        )


def _short(request: PreparedRequest, verdict: Verdict) -> str | None:
    """A whole answer may still be shorter than the workload says, cut by the context length for one."""
    tokens = verdict.output_tokens
    if not request.exact or tokens is None or verdict.tokens_estimated or tokens >= request.output_tokens:
        return None
    return f"{tokens} of {request.output_tokens} output tokens came; the prompt may not leave room for more"
