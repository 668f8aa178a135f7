"""The conductor hands out trials within the budget and keeps what comes back: write, then tell."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from conductor_desk import Desk

from orchestrator.analysis.rows import Outcome
from orchestrator.conductor import StudyFailed
from orchestrator.offered_load import Load
from orchestrator.plan import Report
from orchestrator.results.files import StoreError


def test_the_budget_is_used_exactly_and_the_baseline_comes_first(desk: Callable[..., Desk]) -> None:
    d = desk()
    plans = [d.run(f"tune-{i}") for i in range(4)]
    assert [p.ordinal for p in plans if p] == [0, 1, 2, 3]
    assert plans[0] is not None
    assert plans[0].flags == {}
    assert d.run("tune-5") is None
    assert d.conductor.ended == "budget"
    assert sorted(d.store.trials()) == [0, 1, 2, 3]


def test_candidates_wait_until_the_baseline_has_started_once(desk: Callable[..., Desk]) -> None:
    d = desk(nodes=2)
    plan = d.conductor.next("a")
    assert plan is not None
    assert d.conductor.next("b") is None
    assert d.conductor.ended is None
    d.conductor.report("a", Report("ready", start=d.start(plan)))
    assert d.conductor.next("b") is not None
    # No third one: there are two nodes.
    assert d.conductor.next("c") is None


def test_nodes_together_never_go_past_the_budget(desk: Callable[..., Desk]) -> None:
    d = desk(nodes=8)
    assert d.run("first") is not None
    assert [d.conductor.next(f"n{i}") is not None for i in range(8)] == [True] * 3 + [False] * 5
    assert d.conductor.ended is None


def test_a_measured_level_is_on_disk_when_the_next_one_begins(desk: Callable[..., Desk]) -> None:
    d = desk()
    plan = d.conductor.next("a")
    assert plan is not None
    start = d.start(plan)
    d.measure("a", plan, start, Load(1))
    assert [r.level.load for r in d.store.levels(0) if r.level] == [Load(1)]
    assert d.kept[0] == {Load(1)}
    assert d.store.level_requests_file(0, Load(1)).exists()


def test_optuna_hears_of_a_trial_only_when_its_file_is_there(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    d = desk()
    told: list[bool] = []
    tell = d.study.tell

    def watched(ordinal: int, what: Any) -> None:
        told.append(d.store.trial_file(ordinal).exists())
        tell(ordinal, what)

    monkeypatch.setattr(d.study, "tell", watched)
    d.run("a")
    assert told == [True]


def test_a_disk_that_refuses_leaves_the_trial_open_for_the_next_run(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    d = desk()
    plan = d.conductor.next("a")
    assert plan is not None
    start = d.start(plan)
    d.measure("a", plan, start, Load(1))

    def full(*arguments: Any) -> None:
        raise StoreError("cannot write: No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(d.store, "finish_trial", full)
        with pytest.raises(StoreError):
            d.end("a", start, Outcome("complete"))
    assert d.optuna_states() == ["RUNNING"]
    again = desk()
    assert again.conductor.resume() == [0]
    assert again.optuna_states() == ["FAIL", "WAITING"]


def test_an_interrupted_trial_runs_again_and_keeps_its_level(desk: Callable[..., Desk]) -> None:
    d = desk()
    d.run("a")
    plan = d.conductor.next("b")
    assert plan is not None
    start = d.start(plan)
    d.measure("b", plan, start, Load(1), rate=50.0)
    d.end("b", start, Outcome("interrupted"))
    assert d.conductor.ended == "stopped"
    assert d.conductor.next("c") is None

    later = desk()
    assert later.conductor.resume() == [1]
    assert later.conductor.remaining == 3
    again = later.run("d", rate=70.0)
    assert again is not None
    assert (again.ordinal, again.attempt, again.flags) == (plan.ordinal, 2, plan.flags)
    rows = later.store.trials()[1]
    rates = {r.level.load.concurrency: r.level.metrics.output_tokens_per_s for r in rows if r.level}
    assert rates == {1: 50.0, 4: 70.0}
    assert [r.start.attempt for r in rows] == [1, 2]


def test_a_trial_that_is_interrupted_three_times_is_given_up(desk: Callable[..., Desk]) -> None:
    desk().run("a")
    for attempt in (1, 2, 3):
        d = desk()
        d.conductor.resume()
        plan = d.conductor.next("b")
        assert plan is not None
        assert (plan.ordinal, plan.attempt) == (1, attempt)
        d.end("b", d.start(plan), Outcome("interrupted"))
    last = desk()
    assert last.conductor.resume() == []
    assert last.store.trials()[1][0].outcome.failure_kind == "interrupted"
    plan = last.conductor.next("c")
    assert plan is not None
    assert plan.ordinal == 2


def test_a_trial_that_every_run_was_killed_in_has_its_end_on_disk(desk: Callable[..., Desk]) -> None:
    desk().run("a")
    for _ in range(3):
        d = desk()
        d.conductor.resume()
        plan = d.conductor.next("b")
        assert plan is not None
        d.measure("b", plan, d.start(plan), Load(1))
    last = desk()
    assert last.conductor.resume() == []
    rows = last.store.trials()[1]
    assert rows[0].outcome.failure_kind == "interrupted"
    assert rows[0].trial.requested_flags == plan.flags
    assert [r.level.load for r in rows if r.level] == [Load(1)]


def test_a_study_whose_baseline_failed_says_so_when_it_is_resumed(desk: Callable[..., Desk]) -> None:
    for _ in range(3):
        d = desk()
        d.conductor.resume()
        assert d.conductor.next("a") is not None
    with pytest.raises(StudyFailed, match="interrupted 3 times"):
        desk().conductor.resume()


def test_a_finished_file_that_was_not_told_is_told_not_run_again(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    d = desk()

    def killed(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(d.study, "tell", killed)
        with pytest.raises(KeyboardInterrupt):
            d.run("a", rate=321.0)
    later = desk()
    assert later.conductor.resume() == []
    assert later.optuna_states() == ["COMPLETE"]
    assert later.study._study.trials[0].value == 321.0


def test_a_failed_candidate_counts_and_is_no_score(desk: Callable[..., Desk]) -> None:
    d = desk()
    d.run("a")
    d.fail("b", "requests_failed")
    assert d.optuna_states() == ["COMPLETE", "FAIL"]
    assert d.conductor.remaining == 2
    assert d.conductor.ended is None


def test_a_node_lost_for_good_is_a_failed_trial(desk: Callable[..., Desk]) -> None:
    d = desk()
    d.run("a")
    assert d.conductor.next("b") is not None
    d.conductor.end("b", None)
    assert d.store.trials()[1][0].outcome.failure_kind == "node_lost"


def test_a_server_that_could_not_be_stopped_ends_the_study(desk: Callable[..., Desk]) -> None:
    d = desk()
    plan = d.conductor.next("a")
    assert plan is not None
    start = dataclasses.replace(d.start(plan), stop_proven=False)
    for load in plan.ladder:
        d.measure("a", plan, start, load)
    with pytest.raises(StudyFailed, match="could not be stopped on vm"):
        d.end("a", start, Outcome("complete"))
    # What was measured is kept all the same.
    assert d.store.trials()[0][0].outcome.state == "complete"


def test_constraints_are_told_to_optuna(desk: Callable[..., Desk]) -> None:
    d = desk()
    d.run("a", ttft_ms=50.0)
    d.run("b", ttft_ms=100.0)
    first, second = d.study._study.trials
    assert first.constraints == {"ttft_ms.p99@4 <= 150": pytest.approx(-50.0)}
    assert second.constraints == {"ttft_ms.p99@4 <= 150": pytest.approx(50.0)}


def test_a_level_with_failed_requests_is_no_score(desk: Callable[..., Desk]) -> None:
    d = desk()
    d.run("a")
    d.run("b", rate=900.0, failed=12)
    assert d.optuna_states() == ["COMPLETE", "FAIL"]


def test_no_trial_begins_that_would_end_after_the_time_budget(desk: Callable[..., Desk]) -> None:
    d = desk(changes={"budget": {"trials": 4, "time": "60s"}})
    assert d.run("a", took_s=25.0) is not None
    assert d.run("b", took_s=25.0) is not None
    # 50 s are over, and a trial takes 25.
    assert d.conductor.next("c") is None
    assert d.conductor.ended == "time"


def test_a_space_that_is_used_up_ends_the_search_well(desk: Callable[..., Desk]) -> None:
    d = desk(changes={"budget": {"trials": 50}})
    count = 0
    while d.run(f"t{count}"):
        count += 1
    # Six configurations and the baseline.
    assert count == 7
    assert d.conductor.ended == "exhausted"
    identities = [rows[0].trial.identity for rows in d.store.trials().values()]
    assert len(set(identities)) == 7


def test_resuming_a_study_that_is_done_hands_out_nothing(desk: Callable[..., Desk]) -> None:
    d = desk()
    while d.run(f"t{d.now}"):
        pass
    later = desk()
    assert later.conductor.resume() == []
    assert later.conductor.nothing_left()
    assert later.conductor.ended == "budget"


def test_the_time_left_is_estimated_from_the_trials_so_far(desk: Callable[..., Desk]) -> None:
    d = desk()
    assert d.conductor.left_s() is None
    d.run("a", took_s=30.0)
    assert d.conductor.left_s() == pytest.approx(90.0)
    d.nodes = 3
    assert d.conductor.left_s() == pytest.approx(30.0)
