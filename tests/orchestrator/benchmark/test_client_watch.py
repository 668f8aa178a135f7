"""What the load generator tells of itself, on clocks of the test's own."""

from __future__ import annotations

import asyncio
import itertools

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


def test_a_timer_that_fires_late_is_lag_while_the_window_is_open() -> None:
    """By the watch's clock each pause of 20 ms takes 50, and the one in which the window opens 100."""
    ticks = itertools.count()

    async def story() -> ClientWatch:
        watch = ClientWatch(lambda: 0.0, lambda: 0.05 * next(ticks))
        task = asyncio.create_task(watch.run())
        # More ticks than a percentile takes.
        for _ in range(70):
            await asyncio.sleep(0.02)
        assert watch.lag_ms is None
        watch.follow(True, False)
        async with asyncio.timeout(60):
            while watch.lag_ms is None:
                await asyncio.sleep(0.02)
        task.cancel()
        return watch

    lag_ms = asyncio.run(story()).lag_ms
    assert lag_ms is not None
    assert 29.9 < lag_ms < 80.1
