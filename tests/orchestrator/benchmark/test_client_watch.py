"""What the load generator tells of itself, on clocks of the test's own."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from orchestrator.benchmark.client_watch import ClientWatch


def test_the_share_of_a_core_is_that_of_the_window_alone() -> None:
    cpu, wall = iter([5.0, 6.5]), iter([100.0, 102.0])
    watch = ClientWatch(lambda: next(cpu), lambda: next(wall))
    for opened, closed in ((False, False), (True, False), (True, False), (True, True), (True, True)):
        watch.follow(opened, closed)
    assert watch.cpu_share == pytest.approx(0.75)
    assert watch.lag_ms is None


def test_a_window_of_less_than_a_second_tells_no_share() -> None:
    cpu, wall = iter([5.0, 5.9]), iter([100.0, 100.9])
    watch = ClientWatch(lambda: next(cpu), lambda: next(wall))
    assert watch.cpu_share is None
    watch.follow(True, False)
    assert watch.cpu_share is None
    watch.follow(True, True)
    assert watch.cpu_share is None


class Loop:
    """An event loop of the test's own time, which stalls for `stall_s` every `every_s`; the window is open from
    `opens_s` to `closes_s`, and the watch is told so as soon as the loop runs.
    """

    def __init__(self, stall_s: float, every_s: float, *, opens_s: float = 0.0, closes_s: float = 30.0) -> None:
        self.now_s = 0.0
        self._stall_s, self._every_s, self._next_s = stall_s, every_s, every_s
        self._opens_s, self._closes_s = opens_s, closes_s
        self.watch = ClientWatch(lambda: 0.0, lambda: self.now_s, self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.now_s > self._next_s:
            self._next_s += self._every_s
            self.now_s += self._stall_s
        self.watch.follow(self.now_s >= self._opens_s, self.now_s >= self._closes_s)
        if self.now_s >= self._closes_s + 5:
            raise asyncio.CancelledError

    def lag_ms(self) -> float | None:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(self.watch.run())
        return self.watch.lag_ms


@pytest.mark.parametrize(
    ("stall_s", "every_s", "low_ms", "high_ms"),
    [
        (0.0, 3.0, 0.0, 0.001),
        # A sixth of the time: of the ticks of 3 s those of 500 ms are late, by all of it at most.
        (0.5, 3.0, 450.0, 500.0),
        (0.3, 5.0, 240.0, 300.0),
        # A single one in half a minute is one tick in a hundred late by 700 ms and more.
        (1.0, 29.0, 650.0, 750.0),
        # Shorter than a tick it swallows none, and one in a hundred and fifty is not one in a hundred.
        (0.018, 3.0, 0.0, 0.001),
    ],
)
def test_a_stall_counts_for_every_tick_that_it_swallowed(
    stall_s: float, every_s: float, low_ms: float, high_ms: float
) -> None:
    lag_ms = Loop(stall_s, every_s).lag_ms()
    assert lag_ms is not None
    assert low_ms <= lag_ms <= high_ms


def test_stalls_before_and_after_the_window_do_not_count() -> None:
    assert Loop(0.5, 4.0, opens_s=5.0, closes_s=7.5).lag_ms() == pytest.approx(0.0, abs=1e-6)


def test_a_stall_into_which_the_window_opens_or_closes_counts() -> None:
    opening = Loop(3.0, 4.0, opens_s=2.0, closes_s=7.5).lag_ms()
    closing = Loop(3.0, 4.0, opens_s=2.0, closes_s=6.0).lag_ms()
    assert opening == pytest.approx(2960, abs=50)
    assert closing == pytest.approx(2960, abs=50)


def test_a_timer_that_fires_early_is_in_time() -> None:
    times = (0.0199 * n for n in range(10_000))

    async def story() -> ClientWatch:
        now_s = next(times)

        async def sleep(seconds: float) -> None:
            nonlocal now_s
            now_s = next(times)
            watch.follow(True, now_s >= 10)
            if now_s >= 11:
                raise asyncio.CancelledError

        watch = ClientWatch(lambda: 0.0, lambda: now_s, sleep)
        with contextlib.suppress(asyncio.CancelledError):
            await watch.run()
        return watch

    assert asyncio.run(story()).lag_ms == 0.0


def test_fewer_ticks_than_a_percentile_takes_tell_no_lag() -> None:
    assert Loop(0.0, 4.0, opens_s=1.0, closes_s=1.9).lag_ms() is None
