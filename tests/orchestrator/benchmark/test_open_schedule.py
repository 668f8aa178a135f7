"""Which arrivals of an open loop are sent and measured, told the time."""

from __future__ import annotations

import pytest

from orchestrator.benchmark.records import RequestRecord
from orchestrator.benchmark.schedule import OpenSchedule
from orchestrator.workload import Level


def request(targeted_s: float, started_s: float | None = None) -> RequestRecord:
    sent_s = targeted_s if started_s is None else started_s
    return RequestRecord(0, 0, False, sent_s, sent_s + 1, targeted_s=targeted_s)


def schedule(**level: float | None) -> OpenSchedule:
    return OpenSchedule(Level.model_validate({"min_requests": 3, "min_s": 0.0, "max_s": 100.0, **level}), 0.0)


def test_the_warm_up_lasts_as_long_as_answers_take() -> None:
    plan = schedule(warmup_requests_per_user=2, warmup_tolerance=None)
    plan.look(1.0, 0)
    assert plan.opened_s is None
    plan.answered(1.5)
    plan.answered(9.0)  # the first one counts: later ones may have waited
    plan.look(2.9, 0)
    assert plan.opened_s is None
    plan.look(3.0, 0)
    assert plan.opened_s == 3.0


def test_a_server_that_never_answers_is_measured_after_max_s() -> None:
    plan = schedule(max_s=5.0)
    plan.look(4.9, 0)
    assert plan.opened_s is None
    plan.look(5.0, 0)
    assert plan.opened_s == 5.0


def test_the_window_ends_with_the_last_turn_that_was_taken() -> None:
    plan = schedule(warmup_requests_per_user=0, min_requests=3)
    assert plan.take(0.1)
    plan.look(0.2, 0)
    assert [plan.take(t) for t in (0.15, 1.0, 2.0, 3.5, 4.0, 5.0)] == [True, True, True, True, False, False]
    assert plan.window_s == (0.2, 3.5)
    assert plan.ended_by == "requests"
    assert [plan.warmup(request(t)) for t in (0.1, 0.15, 1.0)] == [True, True, False]
    # A request that left late belongs to its turn.
    assert plan.warmup(request(0.15, started_s=0.9))


def test_time_is_a_minimum_and_a_limit() -> None:
    plan = schedule(warmup_requests_per_user=0, min_requests=1, min_s=2.0)
    plan.look(0.0, 0)
    assert [plan.take(t) for t in (0.5, 1.9, 2.0)] == [True, True, False]
    limited = schedule(warmup_requests_per_user=0, min_requests=1000, max_s=3.0)
    limited.look(0.0, 0)
    assert [limited.take(t) for t in (2.9, 3.0)] == [True, False]
    assert (limited.ended_by, limited.window_s) == ("max_s", (0.0, pytest.approx(2.9)))


def test_the_warm_up_lasts_until_the_number_in_flight_has_settled() -> None:
    plan = schedule(warmup_requests_per_user=1)
    for second in range(1, 8):
        plan.answered(1.0 + 0.25 * second)  # fuller and fuller
        plan.look(second, 0)
    assert plan.opened_s is None
    for second in range(8, 40):
        plan.answered(3.0)
        plan.look(second, 0)
    # Five times what the latest answers took.
    assert plan.opened_s == pytest.approx(15, abs=1)
    assert plan.stable is True


def test_a_server_that_cannot_keep_up_never_settles() -> None:
    plan = schedule(warmup_requests_per_user=1, max_s=60.0)
    for second in range(1, 61):
        plan.answered(0.5 * second)  # half of what is offered: an answer waits for half of the time passed
        plan.look(second, 0)
    assert (plan.opened_s, plan.stable) == (60.0, False)


def test_a_window_lasts_ten_answers_unless_only_requests_count() -> None:
    for half_width, ends_s in ((0.02, 20.0), (None, 3.0)):
        plan = schedule(warmup_requests_per_user=0, half_width=half_width)
        plan.look(0.0, 0)
        plan.answered(2.0)
        taken = [turn for turn in range(1, 30) if plan.take(float(turn))]
        assert taken[-1] == pytest.approx(ends_s, abs=1)


def test_a_level_without_a_prompt_left_ends_with_the_last_one_sent() -> None:
    plan = schedule(warmup_requests_per_user=0, min_requests=10)
    plan.look(0.0, 0)
    assert [plan.take(t, left) for t, left in ((1.0, True), (2.0, True), (3.0, False), (4.0, True))] == [
        True, True, False, False,
    ]  # fmt: skip
    assert (plan.ended_by, plan.window_s) == ("prompts", (0.0, 2.0))
    # Where nothing more is wanted, that is the reason.
    done = schedule(warmup_requests_per_user=0, min_requests=1)
    done.look(0.0, 0)
    assert [done.take(1.0, True), done.take(2.0, False)] == [True, False]
    assert done.ended_by == "requests"
    # All of them were warm-up.
    cold = schedule()
    assert [cold.take(0.5, True), cold.take(0.6, False)] == [True, False]
    assert (cold.ended_by, cold.window_s) == ("prompts", None)
