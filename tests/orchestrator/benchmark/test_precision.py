"""When a level ends, on a clock of the test's own: soon where it is quiet, later where it is not, and honestly."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from orchestrator.benchmark.precision import Precision, Series, Stability
from orchestrator.benchmark.schedule import ClosedSchedule
from orchestrator.workload import Level

TICK_S = 0.05


def unrest(draw: random.Random, likeness: float, size: float) -> Callable[[], float]:
    """Rates around 100 with a deviation of `size`, each keeping `likeness` of the one before."""
    value = draw.gauss(0, size)

    def rate() -> float:
        nonlocal value
        value = likeness * value + math.sqrt(1 - likeness**2) * draw.gauss(0, size)
        return 100 * (1 + value)

    return rate


def play(level: Level, rate: Callable[[], float], users: int = 4, request_s: float = 0.1) -> tuple[ClosedSchedule, int]:
    """A level whose users are all answered each `request_s`; the requests sent in its window."""
    schedule, now_s, pieces, sent = ClosedSchedule(level, users, 0.0), 0.0, 0.0, 0
    for _ in range(users):
        assert schedule.warm_up_again(0, 0.0)
    due_s, warm = request_s, False
    schedule.look(now_s, pieces)
    while True:
        now_s += TICK_S
        pieces += rate() * TICK_S
        schedule.look(now_s, pieces)
        if now_s < due_s:
            continue
        due_s += request_s
        if not warm:
            warm = True
            for _ in range(users):
                schedule.leave_warmup(now_s)
        for _ in range(users):
            if not schedule.take(now_s):
                return schedule, sent
            sent += schedule.opened_s is not None


def level(**more: float | None) -> Level:
    return Level.model_validate({"requests_per_user": 3, "min_s": 2.0, "max_s": 120.0, "half_width": 0.02, **more})


def test_a_quiet_level_ends_early_and_a_noisy_one_goes_on() -> None:
    spent = {}
    for size in (0.02, 0.2, 2.0):
        schedule, sent = play(level(), unrest(random.Random(7), 0.0, size))
        assert schedule.window_s is not None
        spent[size] = (sent, schedule.window_s[1] - schedule.window_s[0], schedule.ended_by)
    assert spent[0.02][2] == spent[0.2][2] == "precise"
    assert spent[0.02][1] < 3
    assert spent[0.2][0] > 3 * spent[0.02][0]
    assert spent[2.0][2] == "max_s"
    assert spent[2.0][1] == pytest.approx(120, abs=0.2)


def test_without_a_target_the_minimum_ends_a_level_and_a_most_of_requests_any() -> None:
    noisy = unrest(random.Random(7), 0.0, 2.0)
    schedule, sent = play(level(half_width=None, min_s=0.0), noisy)
    assert (schedule.ended_by, sent) == ("requests", 2 * 4)
    schedule, sent = play(level(max_requests_per_user=50), noisy)
    assert (schedule.ended_by, sent) == ("max_requests", 49 * 4)


@pytest.mark.parametrize(("likeness", "size", "at_least"), [(0.0, 0.1, 0.92), (0.5, 0.1, 0.9), (0.9, 0.05, 0.84)])
def test_looking_until_it_is_precise_leaves_the_interval_honest(likeness: float, size: float, at_least: float) -> None:
    """Of levels that ended because they were precise enough, how many have the truth in their interval."""
    draw, held, ended = random.Random(11), 0, 0
    for _ in range(250):
        series, precision, rate = Series(), Precision(0.02), unrest(draw, likeness, size)
        now_s = pieces = 0.0
        series.add(now_s, pieces)
        while now_s < 60:
            now_s += TICK_S
            pieces += rate() * TICK_S
            series.add(now_s, pieces)
            if now_s >= 5 and precision.reached(series, 0.0, now_s):
                ended += 1
                found = series.half_width(0.0, now_s)
                assert found is not None
                held += abs(pieces / now_s - 100) <= found * pieces / now_s
                break
    assert ended >= 100
    assert held / ended > at_least


def test_few_pieces_or_few_samples_are_never_precise() -> None:
    few_pieces, few_samples = Series(), Series()
    for tick in range(200):
        few_pieces.add(tick * TICK_S, tick / 4)
    for tick in range(20):
        few_samples.add(tick * 0.5, tick * 1000)
    assert few_pieces.half_width(0.0, 10.0) is None
    assert few_samples.half_width(0.0, 9.5) is None
    assert Series().half_width(0.0, 1.0) is None


def test_the_warm_up_goes_on_until_the_rate_is_stable() -> None:
    def speeding_up(seconds: float) -> Callable[[], float]:
        ticks = iter(range(10**6))
        return lambda: min(100.0, 5.0 + 95.0 * next(ticks) * TICK_S / seconds)

    soon, _ = play(level(), lambda: 100.0)
    late, _ = play(level(), speeding_up(20))
    assert (soon.stable, late.stable) == (True, True)
    assert soon.opened_s is not None
    assert late.opened_s is not None
    assert soon.opened_s < 0.6
    # Still rising by more than a tenth from quarter to quarter at 15 s; level from 20 s on.
    assert 12 < late.opened_s < 35


def test_a_rate_that_never_settles_is_measured_all_the_same_and_told() -> None:
    ticks = iter(range(10**6))
    schedule, _ = play(level(max_s=8.0), lambda: 2.0 ** (next(ticks) * TICK_S))
    assert schedule.stable is False
    assert schedule.opened_s == pytest.approx(8.0, abs=TICK_S)


def test_without_a_tolerance_the_window_opens_with_the_last_users_first_request() -> None:
    schedule, _ = play(level(warmup_tolerance=None), lambda: 100.0)
    assert schedule.stable is None
    assert schedule.opened_s == pytest.approx(0.1)


def test_a_standing_server_has_no_stable_rate() -> None:
    series, stability = Series(), Stability(0.1, 0.0)
    for tick in range(400):
        series.add(tick * TICK_S, 0.0)
        assert not stability.reached(series, tick * TICK_S)


def test_pieces_between_samples_are_shared_out() -> None:
    series = Series()
    series.add(1.0, 0)
    series.add(2.0, 10)
    assert [series.until(at) for at in (0.0, 1.0, 1.25, 2.0, 9.0)] == [0, 0, 2.5, 10, 10]
