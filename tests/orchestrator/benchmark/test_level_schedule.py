import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.benchmark.metrics import window_tokens_per_s
from orchestrator.benchmark.records import RequestRecord
from orchestrator.benchmark.schedule import ClosedSchedule, FailureWatch, OpenSchedule, backoff_s
from orchestrator.workload import Level

TOKENS = 50


def fixed(**level: Any) -> Level:
    """A level whose numbers of requests are all that counts."""
    return Level(**{"half_width": None, "warmup_tolerance": None, **level})


def play(
    level: Level, users: int, slots: int, service_s: Callable[[], float]
) -> tuple[ClosedSchedule, list[RequestRecord]]:
    """A level against an engine of `slots` places and a first-come queue, without clocks or sockets."""
    schedule = ClosedSchedule(level, users, 0.0)
    finishing: list[tuple[float, int, float, float]] = []
    queue: deque[tuple[int, float]] = deque()
    sent = [0] * users
    past = [False] * users
    records: list[RequestRecord] = []

    def serve(now_s: float) -> None:
        while queue and len(finishing) < slots:
            user, asked_s = queue.popleft()
            heapq.heappush(finishing, (now_s + service_s(), user, asked_s, now_s))

    def next_request(user: int, now_s: float) -> None:
        if not past[user] and not schedule.warm_up_again(sent[user], now_s):
            past[user] = True
            schedule.leave_warmup(now_s)
        if not past[user] or schedule.take(now_s):
            sent[user] += 1
            queue.append((user, now_s))

    for user in range(users):
        next_request(user, 0.0)
    serve(0.0)
    while finishing:
        now_s, user, asked_s, began_s = heapq.heappop(finishing)
        stamps = tuple(began_s + (now_s - began_s) * (n + 1) / TOKENS for n in range(TOKENS))
        counts = tuple(float(n + 1) for n in range(TOKENS))
        records.append(RequestRecord(len(records), user, False, asked_s, now_s, stamps, counts, output_tokens=TOKENS))
        next_request(user, now_s)
        serve(now_s)
    return schedule, records


def measured_part(schedule: ClosedSchedule, records: list[RequestRecord]) -> list[RequestRecord]:
    assert schedule.opened_s is not None
    opened_s = schedule.opened_s
    return [r for r in records if r.finished_s > opened_s]


@pytest.mark.parametrize("users", [1, 2, 7, 128])
@pytest.mark.parametrize("warmups", [0, 1, 2])
def test_every_user_warms_up_and_then_the_asked_number_is_measured(users: int, warmups: int) -> None:
    level = fixed(requests_per_user=3, min_s=0, max_s=1000, warmup_requests_per_user=warmups)
    rng = random.Random(users)
    schedule, records = play(level, users, users, lambda: 10 + rng.random())
    measured = measured_part(schedule, records)
    assert len(measured) == 3 * users
    assert len(records) >= (3 + warmups) * users


@pytest.mark.parametrize(("users", "slots"), [(1, 1), (8, 8), (128, 128), (128, 48), (10, 3)])
@pytest.mark.parametrize("requests_per_user", [2, 3, 6])
def test_throughput_in_the_window_is_the_engines_own_rate(users: int, slots: int, requests_per_user: int) -> None:
    """Also where most users queue, and where all requests finish in step."""
    level = fixed(requests_per_user=requests_per_user, min_s=0, max_s=10_000)
    schedule, records = play(level, users, slots, lambda: 10.0)
    rate = window_tokens_per_s(records, schedule.window_s)
    assert rate == pytest.approx(min(users, slots) * TOKENS / 10, rel=0.02)


def test_throughput_in_the_window_is_right_for_answers_of_different_lengths() -> None:
    rng = random.Random(1)
    level = fixed(requests_per_user=8, min_s=0, max_s=10_000)
    schedule, records = play(level, 64, 24, lambda: rng.uniform(2, 18))
    # All 24 places are always busy, and an answer takes 10 s on average.
    assert window_tokens_per_s(records, schedule.window_s) == pytest.approx(24 * TOKENS / 10, rel=0.03)


def test_full_concurrency_is_held_over_the_whole_window() -> None:
    rng = random.Random(2)
    level = fixed(requests_per_user=4, min_s=0, max_s=10_000)
    schedule, records = play(level, 20, 6, lambda: rng.uniform(1, 3))
    assert schedule.window_s is not None
    opened_s, closed_s = schedule.window_s
    for step in range(1, 200):
        at_s = opened_s + (closed_s - opened_s) * step / 200
        assert sum(r.started_s <= at_s < r.finished_s for r in records) == 20


def test_a_queue_that_serves_in_turns_cannot_use_the_budget_up_before_the_load_is_full() -> None:
    level = fixed(requests_per_user=1, min_s=0, max_s=10_000)
    schedule, records = play(level, 128, 48, lambda: 10.0)
    assert len(measured_part(schedule, records)) == 128


def test_min_s_keeps_the_load_up_beyond_the_budget() -> None:
    level = fixed(requests_per_user=1, min_s=95, max_s=1000)
    schedule, _ = play(level, 4, 4, lambda: 10.0)
    assert schedule.window_s is not None
    assert schedule.window_s[1] - schedule.window_s[0] == pytest.approx(100)


def test_nothing_starts_after_max_s_of_the_measured_part() -> None:
    level = fixed(requests_per_user=1000, min_s=0, max_s=95)
    schedule, records = play(level, 4, 4, lambda: 10.0)
    assert schedule.opened_s is not None
    assert max(r.started_s for r in records) < schedule.opened_s + 95
    assert schedule.closed_s == pytest.approx(schedule.opened_s + 100)


def test_a_slow_warm_up_ends_after_max_s() -> None:
    level = fixed(requests_per_user=1, min_s=0, max_s=25, warmup_requests_per_user=1000)
    schedule, records = play(level, 2, 2, lambda: 10.0)
    assert schedule.opened_s == 30
    assert len(records) == 2 * (3 + 1)


def test_what_was_refused_once_is_refused_for_good() -> None:
    schedule = ClosedSchedule(fixed(requests_per_user=1, min_s=5, max_s=50), 1, 0.0)
    schedule.leave_warmup(0.0)
    assert schedule.take(0.0)
    assert not schedule.take(6.0)
    assert not schedule.take(1.0)
    assert schedule.window_s == (0.0, 6.0)


def test_a_window_that_never_opened_or_closed_is_none() -> None:
    schedule = ClosedSchedule(fixed(), 2, 0.0)
    schedule.leave_warmup(1.0)
    assert schedule.window_s is None
    schedule.leave_warmup(2.0)
    assert schedule.window_s is None


# When a level is given up


def record(kind: str | None = "connect", code: int | None = None) -> RequestRecord:
    return RequestRecord(0, 0, False, 0.0, 1.0, error=kind and "why", error_kind=kind, error_code=code)


def see(watch: FailureWatch, *records: RequestRecord) -> str | None:
    reasons = [reason for r in records if (reason := watch.see(r)) is not None]
    return reasons[0] if reasons else None


def test_a_level_whose_requests_all_fail_is_given_up_after_three_per_user() -> None:
    watch = FailureWatch(10)
    assert see(watch, *[record()] * 29) is None
    reason = see(watch, record())
    assert reason is not None
    assert "30 requests in a row failed" in reason
    assert see(FailureWatch(1), *[record()] * 7) is None
    assert see(FailureWatch(1), *[record()] * 8)


def test_a_success_now_and_then_keeps_a_level_going() -> None:
    watch = FailureWatch(1)
    assert see(watch, *[record(None), *[record()] * 7] * 10) is None


def test_the_same_refusal_for_every_prompt_ends_a_level_at_once() -> None:
    reason = see(FailureWatch(100), *[record("http", 400)] * 3)
    assert reason is not None
    assert "refused alike" in reason
    assert see(FailureWatch(100), *[record("stream_error", 400)] * 3)


@pytest.mark.parametrize(
    "records",
    [
        [record("http", 400)] * 2,
        [record("http", 400), record("http", 404), record("http", 400)],
        [record(None), *[record("http", 400)] * 5],
        [record("http", 503)] * 5,
        [record("http", 429)] * 5,
        [record("cancelled")] * 500,
    ],
)
def test_what_may_pass_does_not_end_a_level_at_once(records: list[RequestRecord]) -> None:
    assert see(FailureWatch(100), *records) is None


def test_failures_are_followed_by_growing_bounded_pauses_but_one_is_by_none() -> None:
    pauses = [backoff_s(n) for n in range(40)]
    assert pauses[:2] == [0, 0]
    assert pauses[2] > 0
    assert pauses == sorted(pauses)
    assert max(pauses) == 1.0


def test_the_interval_so_far_narrows_and_stands_still_once_the_window_is_closed() -> None:
    schedule = ClosedSchedule(fixed(requests_per_user=4, min_s=0.0, max_s=60.0, warmup_requests_per_user=0), 1, 0.0)
    rng = random.Random(3)
    pieces = now_s = 0.0
    schedule.leave_warmup(0.0)
    widths = {}
    assert schedule.half_width(0.0) is None
    for tick in range(1, 801):
        now_s = tick * 0.05
        pieces += rng.choice([4, 5, 6])
        schedule.look(now_s, pieces)
        widths[tick] = schedule.half_width(now_s)
    early, late = widths[60], widths[800]
    assert early is not None
    assert late is not None
    assert 0 < late < early < 0.2
    assert OpenSchedule(fixed(), 0.0).half_width(10.0) is None
    while schedule.take(now_s):
        pass
    assert schedule.closed_s == now_s
    for tick in range(801, 1000):
        schedule.look(tick * 0.05, pieces)  # nothing comes any more
    assert schedule.half_width(1000 * 0.05) == late
