"""The load generator: a closed loop of users, or an open one of arrivals, against one server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import itertools
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from orchestrator.benchmark.arrivals import arrivals_s
from orchestrator.benchmark.client import Client
from orchestrator.benchmark.client_watch import ClientWatch
from orchestrator.benchmark.connection import Clock
from orchestrator.benchmark.counter_series import CounterSeries, Page
from orchestrator.benchmark.counters import page, scrape
from orchestrator.benchmark.datasets.prompts import Prompts
from orchestrator.benchmark.records import Conduct, LevelRecord, Reading, RequestRecord
from orchestrator.benchmark.schedule import ClosedSchedule, FailureWatch, OpenSchedule, backoff_s
from orchestrator.benchmark.workload import PreparedRequest, requests
from orchestrator.offered_load import Load
from orchestrator.workload import Workload

#: Between two looks at what has come; and so many of them until `should_stop` is asked.
_LOOK_S, _LOOKS_A_POLL = 0.05, 4
_PROGRESS_S = 0.5
#: An open loop has connections open beforehand for the requests of so many seconds.
_READY_S = 4.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a level is."""

    #: Measured requests that are over; 0 while the level warms up.
    done: int
    #: Measured requests planned; more follow until `min_s` is over and the rate is known well enough.
    total: int
    #: Of the requests finished since the window opened, for the eye: the metric is computed afterwards.
    output_tokens_per_s: float | None
    #: Pieces of answers that have come so far, those of open requests and of the warm-up included.
    pieces: int
    #: Half of the 95 % interval of the rate of pieces since the window opened, as a share of it; None while too little
    #: has come, and in an open loop, whose rate is what is offered.
    half_width: float | None = None


OnProgress = Callable[[Progress], None]
ShouldStop = Callable[[], bool]
#: Reads the server's counters; blocking, run in a thread.
Scrape = Callable[[], Mapping[str, float]]


async def run_level(
    base_url: str,
    workload: Workload,
    load: Load,
    *,
    prompts: Prompts | None = None,
    model: str = "default",
    on_progress: OnProgress = lambda progress: None,
    should_stop: ShouldStop = lambda: False,
    clock: Clock = time.monotonic,
    api_key: str | None = None,
    counters: Scrape | None = None,
    pages: Page | None = None,
) -> LevelRecord:
    """Offer `load` and record each request. `prompts`: see `requests`.

    A closed loop holds exactly `load.concurrency` requests in flight; an open one sends each at its turn, whatever
    the server does. No measured request starts later than `max_s` after the window opened, so the measured part lasts
    at most `max_s` plus the request timeout. `should_stop` is polled five times a second; once it is true the
    requests in flight are cancelled and the record says `completed=False`. `counters` reads the server's
    counters before and after (default: its /metrics), `pages` their text once a second in between (default: the same,
    and nothing where `counters` are given). Raises nothing for what the server does.
    """
    read = counters or (lambda: scrape(base_url, api_key=api_key))
    if pages is None and counters is None:
        pages = functools.partial(page, base_url, api_key=api_key)
    before = await asyncio.to_thread(read)
    series = None if pages is None else CounterSeries(pages, clock)
    async with Client(
        base_url,
        api=workload.api,
        timeout_s=workload.request_timeout_s,
        clock=clock,
        api_key=api_key,
        connections=load.concurrency
        or min(workload.arrivals.max_in_flight, math.ceil(_READY_S * (load.request_rate or 0))),
    ) as client:
        supply = requests(workload, load.stem, model, prompts)
        level = (_Users if load.closed else _Arrivals)(client, workload, load, supply, clock)
        with series or contextlib.nullcontext():
            await level.run(on_progress, should_stop)
    after = {} if level.cancelled else await asyncio.to_thread(read)
    return level.record(before, after, series.readings() if series else ())


class _Level(ABC):
    """The tasks of one level and what they have recorded."""

    schedule: ClosedSchedule | OpenSchedule

    def __init__(
        self, client: Client, workload: Workload, load: Load, supply: Iterator[PreparedRequest], clock: Clock
    ) -> None:
        self._client = client
        self._load = load
        self._clock = clock
        # The first wave is made beforehand, so that all users start together.
        self._supply = itertools.chain(list(itertools.islice(supply, load.concurrency or 1)), supply)
        #: The one that is sent next; None where none is left.
        self._next = next(self._supply, None)
        self._failures = FailureWatch(load.concurrency or 1)
        self._watch = ClientWatch()
        self._records: list[RequestRecord] = []
        self._finished_tokens = 0
        self._finished = 0
        self._gave_up: str | None = None
        self.cancelled = False

    @abstractmethod
    async def _send_all(self) -> None:
        """Send every request of the level, and wait for the answers."""

    async def run(self, on_progress: OnProgress, should_stop: ShouldStop) -> None:
        everything = asyncio.create_task(self._send_all())
        watch = asyncio.create_task(self._watch.run())
        reported_s = self._clock()
        try:
            for look in itertools.count(1):
                if everything.done() or self._gave_up is not None:
                    break
                await asyncio.wait({everything}, timeout=_LOOK_S)
                self.schedule.look(self._clock(), self._client.pieces)
                self._follow()
                if look % _LOOKS_A_POLL == 0 and should_stop():
                    self.cancelled = not everything.done()
                    break
                if self._clock() - reported_s >= _PROGRESS_S:
                    reported_s = self._clock()
                    on_progress(self._progress())
        finally:
            everything.cancel()
            watch.cancel()
            await asyncio.wait({everything, watch})
        if not everything.cancelled():
            everything.result()
        self._client.settle()
        on_progress(self._progress())

    def _pop(self) -> PreparedRequest:
        """The next request; there is one."""
        request, self._next = self._next, next(self._supply, None)
        assert request is not None, "asked for only where one is left"
        return request

    def _follow(self) -> None:
        self._watch.follow(self.schedule.opened_s is not None, self.schedule.closed_s is not None)

    def _keep(self, record: RequestRecord) -> None:
        self._records.append(record)
        opened_s = self.schedule.opened_s
        if opened_s is not None and record.finished_s > opened_s and not record.warmup:
            self._finished += 1
            self._finished_tokens += record.output_tokens or 0
        if self._gave_up is None and (reason := self._failures.see(record)) is not None:
            self._gave_up = reason

    def _progress(self) -> Progress:
        opened_s, now_s = self.schedule.opened_s, self._clock()
        elapsed_s = 0.0 if opened_s is None else now_s - opened_s
        rate = self._finished_tokens / elapsed_s if self._finished_tokens and elapsed_s > 0 else None
        total = max(self.schedule.planned, self._finished)
        return Progress(self._finished, total, rate, self._client.pieces, self.schedule.half_width(now_s))

    def record(
        self, before: Mapping[str, float], after: Mapping[str, float], series: tuple[Reading, ...]
    ) -> LevelRecord:
        schedule = self.schedule
        records = sorted(
            (dataclasses.replace(r, warmup=True) if not r.warmup and schedule.warmup(r) else r for r in self._records),
            key=lambda r: r.index,
        )
        measured = [r for r in records if not r.warmup]
        whole = not self.cancelled and self._gave_up is None
        now_s = self._clock()
        return LevelRecord(
            load=self._load,
            requests=tuple(records),
            window_s=schedule.window_s if whole else None,
            span_s=(
                min((r.started_s for r in measured), default=now_s),
                max((r.finished_s for r in measured), default=now_s),
            ),
            completed=not self.cancelled,
            gave_up=self._gave_up,
            counters_before=before,
            counters_after=after,
            series=series,
            conduct=Conduct(
                warmup_s=None if schedule.opened_s is None else schedule.opened_s - schedule.begun_s,
                warmup_stable=schedule.stable,
                ended_by=schedule.ended_by,
                client_cpu_share=self._watch.cpu_share,
                client_lag_ms=self._watch.lag_ms,
            ),
        )


class _Users(_Level):
    """A closed loop: each user sends again once it is answered."""

    schedule: ClosedSchedule

    def __init__(
        self, client: Client, workload: Workload, load: Load, supply: Iterator[PreparedRequest], clock: Clock
    ) -> None:
        super().__init__(client, workload, load, supply, clock)
        assert load.concurrency is not None
        self._concurrency = load.concurrency
        self.schedule = ClosedSchedule(workload.level, self._concurrency, clock())

    async def _send_all(self) -> None:
        async with asyncio.TaskGroup() as users:
            for user in range(self._concurrency):
                users.create_task(self._user(user))

    async def _user(self, user: int) -> None:
        schedule, clock = self.schedule, self._clock
        failures = sent = 0
        while self._next is not None and schedule.warm_up_again(sent, clock()):
            sent += 1
            failures = await self._one(self._pop(), user, True, failures)
        schedule.leave_warmup(clock())
        self._follow()
        while schedule.take(clock(), self._next is not None):
            failures = await self._one(self._pop(), user, False, failures)
        self._follow()

    async def _one(self, request: PreparedRequest, user: int, warmup: bool, failures: int) -> int:
        """Send one request; the count of failures in a row after it."""
        await self._client.turn()
        ending = await self._client.send(request, user=user, warmup=warmup, deliver=self._keep)
        if ending.succeeded:
            return 0
        # A dead server answers at once: without a pause its users would spin.
        await asyncio.sleep(backoff_s(failures + 1))
        return failures + 1


class _Arrivals(_Level):
    """An open loop: each request is sent at its turn."""

    schedule: OpenSchedule

    def __init__(
        self, client: Client, workload: Workload, load: Load, supply: Iterator[PreparedRequest], clock: Clock
    ) -> None:
        super().__init__(client, workload, load, supply, clock)
        assert load.request_rate is not None
        self._turns_s = arrivals_s(workload.arrivals, load.request_rate, load.stem)
        self._places = asyncio.Semaphore(workload.arrivals.max_in_flight)
        self.schedule = OpenSchedule(workload.level, clock())

    async def _send_all(self) -> None:
        begun_s, clock = self.schedule.begun_s, self._clock
        async with asyncio.TaskGroup() as requests_open:
            for turn_s in self._turns_s:
                targeted_s = begun_s + turn_s
                # Also where it is late: the answers are to be read meanwhile.
                await asyncio.sleep(0)
                # A timer of the loop counts from the beginning of a round of it, and fires early where that took long.
                while (left_s := targeted_s - clock()) > 0 and not self.schedule.ends_before(targeted_s):
                    await asyncio.sleep(min(left_s, _LOOK_S))
                if not self.schedule.take(targeted_s, self._next is not None):
                    break
                # Without a place the request is late, and those behind it too: the lag tells.
                await self._places.acquire()
                requests_open.create_task(self._one(self._pop(), targeted_s))
            self._follow()

    async def _one(self, request: PreparedRequest, targeted_s: float) -> None:
        begun_s = self._clock()
        try:
            ending = await self._client.send(request, user=0, warmup=False, deliver=self._keep, targeted_s=targeted_s)
        finally:
            self._places.release()
        if ending.succeeded:
            self.schedule.answered(ending.finished_s - begun_s)
