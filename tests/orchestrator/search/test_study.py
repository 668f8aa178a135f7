"""The study: what is launched, what is answered without a launch, what is told to Optuna."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
from optuna.trial import TrialState
from study_bench import Bench, make_config

from orchestrator.config import SweepConfig
from orchestrator.search.study import Outcome, Study, StudyError, Told, Trial, open_storage
from orchestrator.search.trials import MAX_INTERRUPTIONS

pytestmark = pytest.mark.filterwarnings("error")

DONE = Told(Outcome.COMPLETE, 100.0)
#: Every knob of it is one that the rules know, so that most draws are duplicates or refused.
CHAIN = {
    "flags": {
        "speculative-algorithm": {"choices": ["EAGLE3"]},
        "speculative-num-steps": {"choices": [5]},
        "speculative-eagle-topk": {"choices": [1]},
        "speculative-num-draft-tokens": {"choices": [4, 6, 8]},
    }
}
REFUSED = {
    "flags": {
        "speculative-algorithm": {"choices": ["EAGLE3"]},
        "speculative-num-steps": {"choices": [2]},
        "speculative-eagle-topk": {"choices": [4]},
        "speculative-num-draft-tokens": {"choices": [4, 64, 100]},
    }
}


def run(study: Study, told: Any = lambda trial: DONE) -> list[Trial]:
    """Launch until the space is exhausted."""
    launched = [study.ask_baseline()]
    study.tell(0, told(launched[0]))
    while (trial := study.ask()) is not None:
        launched.append(trial)
        assert len(launched) < 60, "launches without end"
        study.tell(trial.ordinal, told(trial))
    return launched


def records(study: Study) -> list[Any]:
    return study._study.get_trials(deepcopy=False)


def test_the_baseline_is_trial_0_and_says_nothing_of_the_parameters(bench: Bench) -> None:
    study = bench.study()
    trial = study.ask_baseline()
    study.tell(0, Told(Outcome.COMPLETE, 63.6))
    assert (trial.ordinal, trial.role, trial.attempt) == (0, "baseline", 1)
    assert trial.candidate.flags == {"speculative-draft-model-path": "d"}
    (record,) = records(study)
    assert (record.state, record.value, record.params) == (TrialState.COMPLETE, 63.6, {})
    assert study.counted() == [0]


@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_each_configuration_of_a_small_space_is_launched_exactly_once(bench: Bench, kind: str) -> None:
    study = bench.study(make_config(sampler={"kind": kind, "seed": 1}))
    launched = run(study)
    configurations = study.configurations
    startable = {configurations.identity(point) for point in configurations.space.points()} - {None}
    identities = [trial.candidate.identity for trial in launched]
    assert len(identities) == len(set(identities))
    assert set(identities) == startable | {configurations.baseline().identity}
    assert [trial.ordinal for trial in launched] == list(range(len(launched)))
    assert study.counted() == list(range(len(launched)))
    # And again on a new day: nothing is left.
    assert bench.study().ask() is None


def test_a_duplicate_is_answered_from_the_store_and_neither_launched_nor_counted(bench: Bench) -> None:
    study = bench.study(make_config(CHAIN))
    told = Told(Outcome.COMPLETE, 849.0, {"ttft_ms.p99@8 <= 4000": -5.0})
    launched = run(study, lambda trial: told)
    # 4, 6 and 8 draft tokens are one server: topk 1 makes 6 of each.
    assert [trial.role for trial in launched] == ["baseline", "candidate"]
    assert study.counted() == [0, 1]
    answers = [r for r in records(study) if r.user_attrs.get("outcome") == Outcome.DUPLICATE]
    assert answers
    for answer in answers:
        assert (answer.state, answer.value) == (TrialState.COMPLETE, 849.0)
        assert answer.constraints == {"ttft_ms.p99@8 <= 4000": -5.0}
        assert answer.user_attrs["reason"] == "same as trial 1"
        assert answer.user_attrs["ordinal"] == 2
    asked = {r.params.get("speculative-num-draft-tokens") for r in records(study)}
    assert {4, 8} <= asked


def test_a_candidate_that_is_the_baseline_is_not_launched(bench: Bench) -> None:
    study = bench.study(make_config({"flags": {"x": {"choices": [None]}}}))
    assert len(run(study)) == 1


def test_a_permanent_failure_is_never_launched_again(bench: Bench) -> None:
    study = bench.study(make_config(CHAIN))
    launched = run(study, lambda t: DONE if t.role == "baseline" else Told(Outcome.FAILED, reason="oom_gpu"))
    assert len(launched) == 2
    study = bench.study(make_config(CHAIN))
    assert study.ask() is None
    for record in records(study)[1:]:
        assert record.state is TrialState.FAIL
        assert record.user_attrs["reason"] in ("oom_gpu", "same as trial 1, which failed")


def test_a_refused_configuration_is_told_as_infeasible_and_not_launched(bench: Bench) -> None:
    study = bench.study(make_config(REFUSED))
    launched = run(study)
    assert [trial.candidate.flags.get("speculative-num-draft-tokens") for trial in launched] == [None, 4]
    refused = [r for r in records(study) if r.user_attrs.get("outcome") == Outcome.REFUSED]
    assert refused
    for record in refused:
        assert record.params["speculative-num-draft-tokens"] in (64, 100)
        assert record.state is TrialState.PRUNED
        assert record.constraints == {"rules": 1.0}
        assert "speculative-num-draft-tokens" in record.user_attrs["reason"]


def test_a_space_of_refusals_alone_is_exhausted(bench: Bench) -> None:
    refused = {"flags": {**REFUSED["flags"], "speculative-num-draft-tokens": {"choices": [64, 100]}}}
    assert len(run(bench.study(make_config(refused)))) == 1


def test_what_runs_now_is_not_launched_a_second_time(bench: Bench) -> None:
    study = bench.study(make_config({"flags": {"schedule-policy": {"choices": ["fcfs", "lpm", "lof"]}}}))
    study.ask_baseline()
    trials = [study.ask(), study.ask(), study.ask()]
    assert all(trials)
    assert len({t.candidate.identity for t in trials if t}) == 3
    assert study.ask() is None
    assert study.running() == [0, 1, 2, 3]
    study.tell(2, Told(Outcome.COMPLETE, 1.0))
    assert study.running() == [0, 1, 3]


def test_a_large_space_is_never_called_exhausted_because_of_duplicates(bench: Bench) -> None:
    """Every value of the finite knob is taken; the rest hides behind one of them."""
    space: dict[str, Any] = {
        "flags": {
            "a": {"choices": [None, *range(1, 60)]},
            "x": {"float": [0.5, 0.9], "when": {"a": 7}},
        }
    }
    study = bench.study(make_config(space))
    study.ask_baseline()
    study.tell(0, DONE)
    known = {study.configurations.identity({"a": a}): DONE for a in (None, *range(1, 60))}
    trial = study._ask_remaining(1, known)
    assert trial is not None
    assert trial.candidate.params["a"] == 7
    assert 0.5 <= trial.candidate.params["x"] <= 0.9


# ---- scores ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 0.0, -1.0, None])
@pytest.mark.parametrize("duplicate", [False, True])
def test_what_is_no_score_is_a_failure_with_a_reason_and_never_a_value(
    bench: Bench, score: float | None, duplicate: bool
) -> None:
    study = bench.study(make_config(CHAIN))
    study.ask_baseline()
    study.tell(0, Told(Outcome.COMPLETE, 5.0))
    trial = study.ask()
    assert trial is not None
    study.tell(trial.ordinal, Told(Outcome.COMPLETE, score))
    if duplicate:
        assert study.ask() is None
    for record in records(study)[1:]:
        assert record.state is TrialState.FAIL
        assert record.values is None
        assert record.user_attrs["reason"]
    assert study._study.best_trial.number == 0
    assert study.counted() == [0, 1]


def test_a_violation_that_is_no_number_is_still_a_violation(bench: Bench) -> None:
    study = bench.study()
    study.ask_baseline()
    study.tell(0, Told(Outcome.COMPLETE, 5.0, {"a": math.inf, "b": math.nan, "c": -1.0}))
    assert records(study)[0].constraints == {"a": 1.0, "b": 1.0, "c": -1.0}


# ---- the budget --------------------------------------------------------------------------------------------

WIDE = {"flags": {"max-running-requests": {"int": [1, 100_000]}}}


def launch(study: Study, told: Told | None) -> int:
    trial = study.ask() if study.launched() else study.ask_baseline()
    assert trial is not None
    if told is not None:
        study.tell(trial.ordinal, told)
    return trial.ordinal


def remaining(study: Study, target: int) -> int:
    return target - len(study.counted())


def test_a_resume_finishes_the_budget_and_does_not_add_to_it(bench: Bench) -> None:
    """200 complete, 3 permanent failures and 1 left running of 500: 297 remain, that one included."""
    config = make_config(WIDE, budget={"trials": 500})
    # Through one session, as a driver does; the storage under it is the same file.
    study = bench.study(config)
    for number in range(203):
        launch(study, Told(Outcome.FAILED, reason="oom_gpu") if number in (7, 77, 177) else DONE)
    open_one = launch(study, None)
    resumed = bench.study(config)
    assert resumed.reconcile(lambda ordinal, attempt: None) == [open_one]
    assert len(resumed.counted()) == 203
    assert remaining(resumed, 500) == 297
    again = resumed.ask_again()
    assert again is not None
    assert (again.ordinal, again.attempt) == (open_one, 2)
    resumed.tell(again.ordinal, DONE)
    assert remaining(resumed, 500) == 296
    assert launch(resumed, DONE) == open_one + 1


def test_interrupted_duplicate_and_refused_trials_use_no_budget(bench: Bench) -> None:
    config = make_config(budget={"trials": 6})
    starts = 0
    study = bench.study(config)
    while remaining(study, 6):
        study = bench.study(config)
        again = study.reconcile(lambda ordinal, attempt: None)
        trial = study.ask_again() or (study.ask() if study.launched() else study.ask_baseline())
        assert trial is not None
        assert not again or trial.ordinal == again[0]
        starts += 1
        # Every second start is cut off.
        if starts % 2 == 0:
            study.tell(trial.ordinal, DONE)
    assert starts == 12
    assert study.counted() == [0, 1, 2, 3, 4, 5]
    # Resumed when done: nothing runs again, nothing remains.
    study = bench.study(config)
    assert study.reconcile(lambda ordinal, attempt: None) == []
    assert study.ask_again() is None
    assert (study.running(), remaining(study, 6)) == ([], 0)


def test_a_trial_that_is_interrupted_each_time_is_given_up_and_counts(bench: Bench) -> None:
    for attempt in range(1, MAX_INTERRUPTIONS + 1):
        study = bench.study()
        study.reconcile(lambda ordinal, attempt: None)
        trial = study.ask_again() or study.ask_baseline()
        assert (trial.ordinal, trial.attempt) == (0, attempt)
    study = bench.study()
    assert study.reconcile(lambda ordinal, attempt: None) == []
    assert study.ask_again() is None
    assert study.counted() == [0]


# ---- one database, several studies -------------------------------------------------------------------------


def test_studies_in_one_database_do_not_mix(bench: Bench) -> None:
    first, second = bench.study(name="nccl-1111"), bench.study(name="nccl-2222")
    launch(first, DONE)
    launch(first, DONE)
    assert second.launched() == {}
    launch(second, DONE)
    assert (first.counted(), second.counted()) == ([0, 1], [0])
    first.claim({"run": "a"})
    assert second.owner() is None
    assert bench.study(name="nccl-1111").owner() == {"run": "a"}


def test_another_direction_is_refused(bench: Bench) -> None:
    bench.study()
    with pytest.raises(StudyError, match=r"maximize.*minimize.*--fresh"):
        bench.study(make_config(score={"metric": "ttft_ms.p99", "concurrency": 8}))


def _wide_space(order: list[Any]) -> SweepConfig:
    flags = {
        "a": {"choices": order},
        "b": {"choices": [True, 1, "x"]},
        "c": {"choices": [["p", "q"], None]},
        "d": {"float": [0.1, 0.7], "step": 0.2, "when": {"b": True}},
    }
    return make_config({"flags": flags}, sampler={"kind": "tpe", "seed": 0, "startup_trials": 3})


def test_a_reordered_list_of_choices_continues_the_same_search(bench: Bench) -> None:
    def ask(study: Study) -> dict[str, Any]:
        trial = study.ask() if study.launched() else study.ask_baseline()
        assert trial is not None
        study.tell(trial.ordinal, Told(Outcome.COMPLETE, 10.0 + trial.ordinal))
        return dict(trial.candidate.params)

    straight = bench.study(_wide_space([None, 1, 2, 4]), name="straight")
    expected = [ask(straight) for _ in range(10)]
    got = []
    for number in range(10):
        order = [[None, 1, 2, 4], [4, 2, 1, None], [2, None, 4, 1]][number % 3]
        got.append(ask(bench.study(_wide_space(order), name="shuffled")))
    assert got == expected


# ---- the terminal ------------------------------------------------------------------------------------------

_QUIET = """
import sys
from study_bench import CONDITIONAL, make_config
from orchestrator.search.study import Outcome, Study, Told, open_storage
for kind in ("tpe", "random"):
    config = make_config(CONDITIONAL, sampler={"kind": kind, "seed": 1})
    study = Study(open_storage(sys.argv[1]), kind, config)
    study.ask_baseline(); study.tell(0, Told(Outcome.COMPLETE, 1.0, {"c": 2.0}))
    for score in (1.0, None, float("nan"), *range(1, 7)):
        trial = study.ask()
        study.tell(trial.ordinal, Told(Outcome.COMPLETE, score, {"c": -1.0}))
    study.ask()
    study = Study(open_storage(sys.argv[1]), kind, config)
    study.reconcile(lambda ordinal, attempt: None)
    study.ask_again()
    study.reconcile(lambda ordinal, attempt: Told(Outcome.COMPLETE, 1.0, {"c": 1.0}))
"""


def test_optuna_prints_nothing(bench: Bench) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", _QUIET, bench.url],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={"PYTHONPATH": ":".join(p for p in sys.path if p)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout + done.stderr == ""


def test_a_storage_that_cannot_be_opened_is_said_without_its_password(tmp_path: Any) -> None:
    for url in (f"sqlite:///{tmp_path}/no/such/folder.db", "nonsense", "nosuchdb://user:geheim@host/db"):
        with pytest.raises(StudyError) as caught:
            open_storage(url)
        assert "geheim" not in str(caught.value)
        assert "\n" not in str(caught.value)
