"""Which arrivals of an open loop are sent and measured, told the time."""

from __future__ import annotations

import pytest

from orchestrator.benchmark.records import RequestRecord
from orchestrator.benchmark.schedule import OpenSchedule
from orchestrator.workload import Level


def request(targeted_s: float, started_s: float | None = None) -> RequestRecord:
    sent_s = targeted_s if started_s is None else started_s
    return RequestRecord(0, 0, False, sent_s, sent_s + 1, targeted_s=targeted_s)


def schedule(**level: float) -> OpenSchedule:
    return OpenSchedule(Level.model_validate({"min_requests": 3, "min_s": 0.0, "max_s": 100.0, **level}), 0.0)


def test_the_warm_up_lasts_as_long_as_answers_take() -> None:
    plan = schedule(warmup_requests_per_user=2)
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
