"""What a failed start comes to: tried again, infeasible, or the study's end; bounded, and the same after a kill."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from conductor_desk import Desk

from launchers.errors import (
    BadArgument,
    GpuBusyByOther,
    InvalidCombination,
    LaunchError,
    ModelUnavailable,
    NcclNvls,
    NcclUnknown,
    OutOfMemory,
    PortTaken,
    UnknownFailure,
    WatchdogHang,
)
from orchestrator.analysis.rows import Outcome
from orchestrator.conductor import StudyFailed
from orchestrator.offered_load import Load

MakeDesk = Callable[..., Desk]


def kinds(*errors: type[LaunchError]) -> list[str]:
    return [error.kind for error in errors]


# ---- tried again


@pytest.mark.parametrize("kind", kinds(PortTaken, WatchdogHang))
def test_what_another_start_may_not_meet_is_tried_once_more_and_then_given_up(desk: MakeDesk, kind: str) -> None:
    d = desk()
    d.run("a")
    first = d.fail("b", kind, "the port is taken")
    # It has no end yet: it costs no budget, and its file says why.
    assert (d.conductor.remaining, d.conductor.ended) == (3, None)
    assert d.outcome(1) == Outcome("interrupted", kind, "the port is taken", "loading weights")
    again = d.fail("c", kind)
    assert (again.ordinal, again.attempt, again.flags) == (1, 2, first.flags)
    assert d.outcome(1).state == "failed"
    assert d.conductor.remaining == 2
    assert d.optuna_states() == ["COMPLETE", "FAIL", "FAIL"]
    later = d.run("d")
    assert later is not None
    assert later.ordinal == 2


def test_a_second_start_that_goes_well_is_all_that_counts(desk: MakeDesk) -> None:
    d = desk()
    d.run("a")
    d.fail("b", PortTaken.kind)
    assert d.run("c", rate=321.0) is not None
    assert d.outcome(1) == Outcome("complete")
    assert d.study._study.trials[-1].value == 321.0
    assert d.conductor.remaining == 2


def test_retries_come_before_new_trials_and_stay_within_the_budget(desk: MakeDesk) -> None:
    d = desk(nodes=4)
    d.run("a")
    plans = [d.conductor.next(f"n{i}") for i in range(3)]
    assert all(plans)
    failed = plans[0]
    assert failed is not None
    d.end("n0", d.start(failed), Outcome("failed", PortTaken.kind, "taken"))
    # Another node is free to take it; the one new trial that a careless count would allow is not handed out.
    again = d.conductor.next("n3")
    assert again is not None
    assert (again.ordinal, again.attempt) == (failed.ordinal, 2)
    assert d.conductor.next("n0") is None
    assert d.conductor.ended is None


def test_an_unknown_nccl_failure_is_looked_into_on_its_second_start(desk: MakeDesk) -> None:
    d = desk()
    d.run("a")
    first = d.fail("b", NcclUnknown.kind)
    assert "NCCL_DEBUG" not in first.env
    second = d.run("c")
    assert second is not None
    assert second.env == {**first.env, "NCCL_DEBUG": "INFO"}
    third = d.run("d")
    assert third is not None
    assert "NCCL_DEBUG" not in third.env


def test_a_hang_keeps_its_levels_unscored_and_its_retry_measures_the_rest(desk: MakeDesk) -> None:
    d = desk()
    d.run("a")
    plan = d.conductor.next("b")
    assert plan is not None
    start = d.start(plan)
    d.measure("b", plan, start, Load(1), rate=900.0)
    # The level that it hung in is worth nothing, and is measured again.
    d.measure("b", plan, start, Load(4), rate=900.0, failed=12)
    d.end("b", start, Outcome("failed", WatchdogHang.kind, "it hangs"))
    assert d.optuna_states() == ["COMPLETE", "FAIL", "WAITING"]
    again = d.conductor.next("c")
    assert again is not None
    assert d.kept[1] == {Load(1)}
    d.end("c", d.start(again), Outcome("failed", WatchdogHang.kind, "it hangs"))
    rows = d.store.trials()[1]
    assert [row.level.load for row in rows if row.level] == [Load(1), Load(4)]
    assert {row.outcome.state for row in rows} == {"failed"}
    assert [trial.value for trial in d.study._study.trials[1:]] == [None, None]


# ---- infeasible


@pytest.mark.parametrize("kind", kinds(OutOfMemory, NcclNvls))
def test_what_cannot_run_is_told_as_a_violated_constraint(desk: MakeDesk, kind: str) -> None:
    d = desk()
    d.run("a")
    d.fail("b", kind)
    assert d.outcome(1).state == "infeasible"
    assert d.optuna_states() == ["COMPLETE", "PRUNED"]
    told = d.study._study.trials[1]
    assert any(violation > 0 for violation in told.constraints.values())
    assert told.user_attrs["reason"] == kind
    assert d.conductor.remaining == 2


def test_neighbours_that_fail_with_opposite_advice_are_both_infeasible_for_good(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One fraction asks for less memory, the next for more: neither is started again, in this run or another."""
    monkeypatch.setattr("orchestrator.search.study.MAX_DRAWS", 3)
    space = {"flags": {"mem-fraction-static": {"choices": [0.84, 0.85]}}}
    d = desk(changes={"space": space, "budget": {"trials": 9}})
    d.run("a")
    started = [d.fail("b", OutOfMemory.kind, "lower"), d.fail("c", OutOfMemory.kind, "raise")]
    assert sorted(plan.flags["mem-fraction-static"] for plan in started) == [0.84, 0.85]
    assert d.conductor.next("d") is None
    assert d.conductor.ended == "exhausted"
    assert [d.outcome(n).state for n in (1, 2)] == ["infeasible", "infeasible"]
    later = desk(changes={"space": space, "budget": {"trials": 9}})
    assert later.conductor.resume() == []
    assert later.conductor.next("e") is None
    # Drawn again, they are answered from what is known, so that the search learns to keep away.
    answers = later.study._study.trials[3:]
    assert {trial.state.name for trial in answers} <= {"PRUNED"}
    assert all(trial.user_attrs["outcome"] == "duplicate" for trial in answers)


# ---- the study's end


@pytest.mark.parametrize("kind", kinds(BadArgument, GpuBusyByOther))
def test_what_every_trial_will_meet_ends_the_study_and_is_tried_again_once_mended(desk: MakeDesk, kind: str) -> None:
    d = desk()
    d.run("a")
    with pytest.raises(StudyFailed, match=rf"trial 1 .*\({kind}\): unrecognized arguments: --foo"):
        d.fail("b", kind, "unrecognized arguments: --foo")
    assert d.conductor.ended == "failed"
    assert d.conductor.next("c") is None
    assert d.outcome(1).failure_kind == kind
    # The configuration had no part in it.
    later = desk()
    assert later.conductor.resume() == [1]
    assert later.run("d") is not None
    assert later.outcome(1) == Outcome("complete")


def test_a_study_that_ends_so_again_and_again_gives_the_trial_up(desk: MakeDesk) -> None:
    desk().run("a")
    for _ in range(3):
        d = desk()
        d.conductor.resume()
        with pytest.raises(StudyFailed, match="trial 1 "):
            d.fail("b", GpuBusyByOther.kind, "pid 77 holds GPU 0")
    last = desk()
    assert last.conductor.resume() == []
    assert last.outcome(1) == Outcome("failed", GpuBusyByOther.kind, "pid 77 holds GPU 0", "loading weights")


# ---- the baseline


def test_three_failures_of_the_baseline_end_the_study_with_the_reason(desk: MakeDesk) -> None:
    d = desk()
    for attempt in (1, 2):
        assert d.fail("a", UnknownFailure.kind).attempt == attempt
        assert d.conductor.ended is None
    with pytest.raises(StudyFailed, match=r"baseline, started 3 times, failed \(unknown\): it died.*--fresh"):
        d.fail("a", UnknownFailure.kind)
    assert d.conductor.next("b") is None
    with pytest.raises(StudyFailed, match="baseline, started 3 times, failed"):
        desk().conductor.resume()


def test_a_baseline_may_fail_twice(desk: MakeDesk) -> None:
    d = desk()
    d.fail("a", PortTaken.kind)
    d.fail("a", UnknownFailure.kind)
    assert d.run("a") is not None
    candidate = d.conductor.next("b")
    assert candidate is not None
    assert candidate.ordinal == 1


def test_failures_of_the_baseline_are_counted_over_runs(desk: MakeDesk) -> None:
    for _ in range(2):
        d = desk()
        d.conductor.resume()
        d.fail("a", UnknownFailure.kind)
    last = desk()
    assert last.conductor.resume() == [0]
    with pytest.raises(StudyFailed, match="started 3 times"):
        last.fail("a", UnknownFailure.kind)


@pytest.mark.parametrize("kind", kinds(OutOfMemory, InvalidCombination))
def test_a_baseline_that_cannot_run_ends_the_study_at_once(desk: MakeDesk, kind: str) -> None:
    d = desk()
    with pytest.raises(StudyFailed, match=rf"baseline failed \({kind}\): it does not fit.*--fresh"):
        d.fail("a", kind, "it does not fit")
    assert d.conductor.next("b") is None
    with pytest.raises(StudyFailed, match="does not fit"):
        desk().conductor.resume()


def test_a_baseline_without_its_model_runs_once_the_model_is_there(desk: MakeDesk) -> None:
    d = desk()
    with pytest.raises(StudyFailed, match="trial 0 failed for a reason that other trials will meet too"):
        d.fail("a", ModelUnavailable.kind)
    later = desk()
    assert later.conductor.resume() == [0]
    assert later.run("a") is not None


# ---- killed in between


def test_interruptions_and_failures_are_counted_apart(desk: MakeDesk) -> None:
    desk().run("a")
    for end in (Outcome("interrupted"), Outcome("failed", PortTaken.kind, "taken"), Outcome("interrupted")):
        d = desk()
        d.conductor.resume()
        plan = d.conductor.next("b")
        assert plan is not None
        assert plan.ordinal == 1
        d.end("b", d.start(plan), end)
    # An interruption takes no retry away, and a failure is no third interruption.
    last = desk()
    assert last.conductor.resume() == [1]
    again = last.run("b")
    assert again is not None
    assert (again.ordinal, again.attempt) == (1, 4)
    assert last.outcome(1) == Outcome("complete")


@pytest.mark.parametrize("when", ["before it is told", "before it is asked again"])
def test_a_failure_killed_half_told_is_counted_all_the_same(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    d = desk()
    d.run("a")

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(d.study, "_tell" if when == "before it is told" else "_enqueue_again", killed)
        with pytest.raises(KeyboardInterrupt):
            d.fail("b", PortTaken.kind)
    later = desk()
    assert later.conductor.resume() == [1]
    later.fail("b", PortTaken.kind)
    assert later.outcome(1).state == "failed"
    assert later.study.running() == []


def test_a_kill_during_the_second_start_is_not_taken_for_a_second_failure(desk: MakeDesk) -> None:
    d = desk()
    d.run("a")
    d.fail("b", PortTaken.kind)
    assert d.conductor.next("c") is not None
    later = desk()
    assert later.conductor.resume() == [1]
    assert later.conductor.next("d") is not None
    again = desk()
    assert again.conductor.resume() == [1]
    assert again.run("e") is not None
    assert again.outcome(1) == Outcome("complete")
