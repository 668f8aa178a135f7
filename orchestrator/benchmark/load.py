"""The load generator: a closed loop of users against one server, at one concurrency."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orchestrator.benchmark.client import Client
from orchestrator.benchmark.connection import Clock
from orchestrator.benchmark.counters import scrape
from orchestrator.benchmark.records import LevelRecord, RequestRecord
from orchestrator.benchmark.schedule import FailureWatch, Schedule, backoff_s
from orchestrator.benchmark.workload import requests
from orchestrator.workload import Workload

_POLL_S = 0.2
_PROGRESS_S = 0.5


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a level is."""

    #: Measured requests that are over; 0 while the level warms up.
    done: int
    #: Measured requests planned; more follow until `min_s` is over.
    total: int
    #: Of the requests finished since the window opened, for the eye: the metric is computed afterwards.
    output_tokens_per_s: float | None
    #: Pieces of answers that have come so far, those of open requests and of the warm-up included.
    pieces: int


OnProgress = Callable[[Progress], None]
ShouldStop = Callable[[], bool]
#: Reads the server's counters; blocking, run in a thread.
Scrape = Callable[[], Mapping[str, float]]


async def run_level(
    base_url: str,
    workload: Workload,
    concurrency: int,
    *,
    model: str = "default",
    on_progress: OnProgress = lambda progress: None,
    should_stop: ShouldStop = lambda: False,
    clock: Clock = time.monotonic,
    api_key: str | None = None,
    counters: Scrape | None = None,
) -> LevelRecord:
    """Hold exactly `concurrency` requests in flight and record each of them.

    No measured request starts later than `max_s` after the window opened, so the measured part lasts at
    most `max_s` plus the request timeout. `should_stop` is polled five times a second; once it is true the
    requests in flight are cancelled and the record says `completed=False`. `counters` reads the server's
    counters before and after (default: its /metrics). Raises nothing for what the server does.
    """
    read = counters or (lambda: scrape(base_url, api_key=api_key))
    before = await asyncio.to_thread(read)
    async with Client(
        base_url,
        api=workload.api,
        timeout_s=workload.request_timeout_s,
        clock=clock,
        api_key=api_key,
        connections=concurrency,
    ) as client:
        level = _Level(client, workload, concurrency, model, clock)
        await level.run(on_progress, should_stop)
    after = {} if level.cancelled else await asyncio.to_thread(read)
    return level.record(before, after)


class _Level:
    """The tasks of one level and what they have recorded."""

    def __init__(self, client: Client, workload: Workload, concurrency: int, model: str, clock: Clock) -> None:
        self._client = client
        self._concurrency = concurrency
        self._clock = clock
        supply = requests(workload, concurrency, model)
        # The first wave is made beforehand, so that all users start together.
        self._supply = itertools.chain(list(itertools.islice(supply, concurrency)), supply)
        self._schedule = Schedule(workload.level, concurrency, clock())
        self._watch = FailureWatch(concurrency)
        self._records: list[RequestRecord] = []
        self._finished_tokens = 0
        self._finished = 0
        self._gave_up: str | None = None
        self.cancelled = False

    async def run(self, on_progress: OnProgress, should_stop: ShouldStop) -> None:
        everyone = asyncio.create_task(self._everyone())
        reported_s = self._clock()
        try:
            while not everyone.done() and self._gave_up is None:
                await asyncio.wait({everyone}, timeout=_POLL_S)
                if should_stop():
                    self.cancelled = not everyone.done()
                    break
                if self._clock() - reported_s >= _PROGRESS_S:
                    reported_s = self._clock()
                    on_progress(self._progress())
        finally:
            everyone.cancel()
            await asyncio.wait({everyone})
        if not everyone.cancelled():
            everyone.result()
        self._client.settle()
        on_progress(self._progress())

    async def _everyone(self) -> None:
        async with asyncio.TaskGroup() as users:
            for user in range(self._concurrency):
                users.create_task(self._user(user))

    async def _user(self, user: int) -> None:
        schedule, clock = self._schedule, self._clock
        failures = sent = 0
        while schedule.warm_up_again(sent, clock()):
            sent += 1
            failures = await self._one(user, True, failures)
        schedule.leave_warmup(clock())
        while schedule.take(clock()):
            failures = await self._one(user, False, failures)

    async def _one(self, user: int, warmup: bool, failures: int) -> int:
        """Send one request; the count of failures in a row after it."""
        await self._client.turn()
        ending = await self._client.send(next(self._supply), user=user, warmup=warmup, deliver=self._keep)
        if ending.succeeded:
            return 0
        # A dead server answers at once: without a pause its users would spin.
        await asyncio.sleep(backoff_s(failures + 1))
        return failures + 1

    def _keep(self, record: RequestRecord) -> None:
        self._records.append(record)
        opened_s = self._schedule.opened_s
        if opened_s is not None and record.finished_s > opened_s and not record.warmup:
            self._finished += 1
            self._finished_tokens += record.output_tokens or 0
        if self._gave_up is None and (reason := self._watch.see(record)) is not None:
            self._gave_up = reason

    def _progress(self) -> Progress:
        opened_s = self._schedule.opened_s
        elapsed_s = 0.0 if opened_s is None else self._clock() - opened_s
        rate = self._finished_tokens / elapsed_s if self._finished_tokens and elapsed_s > 0 else None
        return Progress(self._finished, max(self._schedule.planned, self._finished), rate, self._client.pieces)

    def record(self, before: Mapping[str, float], after: Mapping[str, float]) -> LevelRecord:
        opened_s = self._schedule.opened_s
        records = sorted(
            (
                dataclasses.replace(r, warmup=True)
                if opened_s is not None and r.finished_s <= opened_s and not r.warmup
                else r
                for r in self._records
            ),
            key=lambda r: r.index,
        )
        measured = [r for r in records if not r.warmup]
        whole = not self.cancelled and self._gave_up is None
        now_s = self._clock()
        return LevelRecord(
            concurrency=self._concurrency,
            requests=tuple(records),
            window_s=self._schedule.window_s if whole else None,
            span_s=(
                min((r.started_s for r in measured), default=now_s),
                max((r.finished_s for r in measured), default=now_s),
            ),
            completed=not self.cancelled,
            gave_up=self._gave_up,
            counters_before=before,
            counters_after=after,
        )
