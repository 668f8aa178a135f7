"""A driver killed with KILL before any of its writes: nothing is lost, nothing runs twice, nothing else is asked."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState
from study_bench import Bench, make_config

from orchestrator.config import SweepConfig
from orchestrator.search.candidate import Candidate
from orchestrator.search.distributions import from_optuna
from orchestrator.search.study import Outcome, Study, Told, Trial
from orchestrator.search.trials import answered_draws

pytestmark = pytest.mark.filterwarnings("error")

#: Enough of everything: conditions, servers that are the same, and settings that are refused.
SPACE: dict[str, Any] = {
    "flags": {
        "max-running-requests": {"choices": [48, 128]},
        "schedule-policy": {"choices": ["fcfs", "lpm"]},
        "speculative-algorithm": {"choices": [None, "EAGLE3"]},
        "speculative-num-steps": {"int": [2, 5], "when": {"speculative-algorithm": "EAGLE3"}},
        "speculative-eagle-topk": {"choices": [1, 4], "when": {"speculative-algorithm": "EAGLE3"}},
        "speculative-num-draft-tokens": {"choices": [4, 8, 64], "when": {"speculative-algorithm": "EAGLE3"}},
    },
    "env": {"NCCL_MIN_CTAS": {"choices": [None, 4]}},
}
KINDS = [
    {"kind": "random", "seed": 5},
    {"kind": "tpe", "seed": 5, "startup_trials": 4},
]
CONFIGS = {str(kind["kind"]): make_config(SPACE, sampler=kind) for kind in KINDS}


def score(trial: Trial) -> float:
    """A recorded value: of the configuration alone, whoever measures it and whenever."""
    return 1.0 + int(trial.candidate.identity, 16) % 1000


def told_for(trial: Trial) -> Told:
    failed = int(trial.candidate.identity, 16) % 7 == 0 and trial.role == "candidate"
    if failed:
        return Told(Outcome.FAILED, reason="oom_gpu")
    return Told(Outcome.COMPLETE, score(trial), {"ttft_ms.p99@8 <= 4000": float(score(trial)) - 500})


def next_trial(study: Study) -> Trial | None:
    """What a driver launches next."""
    return study.ask_again() or (study.ask() if study.launched() else study.ask_baseline())


def step(study: Study) -> tuple[int, dict[str, Any]]:
    """Launch one trial to its end; its ordinal and parameters."""
    trial = next_trial(study)
    assert trial is not None
    study.tell(trial.ordinal, told_for(trial))
    return trial.ordinal, dict(trial.candidate.params)


def launch_only(study: Study) -> None:
    next_trial(study)


def discard(result: object) -> None:
    """For the body of a driver that dies."""


def launched_candidate(study: Study, record: Any) -> Candidate:
    """The configuration of a launched trial, from its record."""
    knobs = {k.name: k for k in study.configurations.space.knobs}
    return study.configurations.candidate(
        {name: from_optuna(knobs[name], value) for name, value in record.params.items()}
    )


def states(study: Study) -> list[TrialState]:
    return [t.state for t in study._study.get_trials(deepcopy=False)]


def straight(config: SweepConfig, ordinals: int) -> list[tuple[int, dict[str, Any]]]:
    """What an uninterrupted search asks."""
    study = Study(optuna.storages.InMemoryStorage(), "straight", config)
    return [step(study) for _ in range(ordinals)]


class Disk:
    """The result files: what a trial's driver wrote before it told Optuna."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, trial: Trial) -> None:
        told = told_for(trial)
        text = "failed" if told.score is None else str(told.score)
        (self._folder / f"{trial.ordinal}.result").write_text(text)

    def finished(self, ordinal: int, attempt: int) -> Told | None:
        path = self._folder / f"{ordinal}.result"
        if not path.exists():
            return None
        text = path.read_text()
        if text == "failed":
            return Told(Outcome.FAILED, reason="oom_gpu")
        return Told(Outcome.COMPLETE, float(text), {"ttft_ms.p99@8 <= 4000": float(text) - 500})


def waiting(study: Study) -> list[Any]:
    return [t for t in study._study.get_trials(deepcopy=False) if t.state is TrialState.WAITING]


class Kills:
    """A database as it is now, handed out again for each kill."""

    def __init__(self, bench: Bench, config: SweepConfig) -> None:
        self._bench, self._config = bench, config
        self._kept = bench.file.with_suffix(".kept")
        shutil.copy(bench.file, self._kept)

    def at_each_write(
        self, body: Callable[[Study], None], first: Callable[[Study], None] = lambda study: None
    ) -> Iterator[tuple[int, bool, Study]]:
        """For each write of `body`: its number, whether it was the last, and the study after a kill before it.

        The last kill comes after all writes.
        """
        write, killed = 0, True
        while killed:
            shutil.copy(self._kept, self._bench.file)
            for path in self._bench.file.parent.glob("*.result"):
                path.unlink()
            killed = self._bench.dies(body, self._config, write, first)
            yield write, not killed, self._bench.study(self._config)
            write += 1


@pytest.mark.parametrize(("kind", "before"), [("random", 0), ("tpe", 4)])
def test_a_kill_before_any_write_of_an_ask_asks_the_same_and_loses_nothing(
    bench: Bench, kind: str, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the ask, after each suggestion, after each note: the same trial runs next, once."""
    # Few draws: each has some ten writes.
    monkeypatch.setattr("orchestrator.search.study.MAX_DRAWS", 2)
    config = CONFIGS[kind]
    expected = straight(config, before + 3)
    study = bench.study(config)
    for _ in range(before):
        step(study)
    relaunched = []
    for write, last, resumed in Kills(bench, config).at_each_write(launch_only):
        again = resumed.reconcile(lambda ordinal, attempt: None)
        assert TrialState.RUNNING not in states(resumed), write
        assert again == ([before] if last else []), write
        assert len(waiting(resumed)) == len(again), write
        relaunched.append(again)
        got = [step(resumed) for _ in range(3)]
        assert got == expected[before:], write
        attempts = [t.user_attrs["attempt"] for t in resumed.launched()[before]]
        assert attempts == ([1, 2] if last else [1]), write
    assert len(relaunched) > 5


@pytest.mark.parametrize(("kind", "before"), [("random", 0), ("tpe", 4)])
def test_a_kill_before_any_write_of_a_tell_takes_the_result_from_its_file(bench: Bench, kind: str, before: int) -> None:
    """The file is written first; a trial with one is told from it and never launched again."""
    config = CONFIGS[kind]
    expected = straight(config, before + 3)
    study = bench.study(config)
    for _ in range(before):
        step(study)
    disk = Disk(bench.file.parent)

    def write_file(study: Study) -> None:
        trial = next_trial(study)
        assert trial is not None
        disk.write(trial)

    def tell(study: Study) -> None:
        (record,) = study.launched()[before]
        trial = Trial(before, record.number, record.user_attrs["role"], 1, launched_candidate(study, record))
        study.tell(before, told_for(trial))

    kills = 0
    for write, _, resumed in Kills(bench, config).at_each_write(tell, write_file):
        on_disk = disk.finished(before, 1)
        assert on_disk is not None
        assert resumed.reconcile(disk.finished) == [], write
        assert TrialState.RUNNING not in states(resumed), write
        assert before in resumed.counted(), write
        (record,) = resumed.launched()[before]
        assert record.value == on_disk.score, write
        assert record.constraints == dict(on_disk.violations or {}), write
        assert record.user_attrs["outcome"] == on_disk.outcome, write
        assert [step(resumed), step(resumed)] == expected[before + 1 :], write
        kills += 1
    assert kills > 2


def test_a_kill_before_any_write_of_a_relaunch_keeps_the_parameters(bench: Bench) -> None:
    """Taken from the queue, suggested in part: the parameters are those of the first attempt, once."""
    config = CONFIGS["tpe"]
    expected = straight(config, 9)
    study = bench.study(config)
    for _ in range(7):
        step(study)
    bench.dies(launch_only, config)
    resumed = bench.study(config)
    assert resumed.reconcile(lambda ordinal, attempt: None) == [7]
    for write, last, later in Kills(bench, config).at_each_write(launch_only):
        popped = write > 0
        assert later.reconcile(lambda ordinal, attempt: None) == [7], write
        assert TrialState.RUNNING not in states(later), write
        assert len(waiting(later)) == 1, write
        trial = later.ask_again()
        assert trial is not None
        assert (trial.ordinal, trial.attempt) == (7, 3 if popped else 2), write
        assert (7, dict(trial.candidate.params)) == expected[7], write
        later.tell(7, told_for(trial))
        assert step(later) == expected[8], write
        assert write <= 8 or last


def test_a_kill_before_any_write_of_a_retry_retries_once(bench: Bench) -> None:
    """Whether its failure was told, half told or asked again: it is started once more, with what it had."""
    config = CONFIGS["random"]
    expected = straight(config, 4)
    study = bench.study(config)
    for _ in range(2):
        step(study)
    failure = Told(Outcome.RETRIED, reason="port_conflict")
    writes = 0
    for write, _, resumed in Kills(bench, config).at_each_write(lambda study: study.tell(2, failure), launch_only):
        assert resumed.reconcile(lambda ordinal, attempt: failure if attempt == 1 else None) == [2], write
        assert TrialState.RUNNING not in states(resumed), write
        again = next_trial(resumed)
        assert again is not None
        assert (again.ordinal, again.attempt, again.failures) == (2, 2, ("port_conflict",)), write
        assert (2, dict(again.candidate.params)) == expected[2], write
        assert again.last_failure
        resumed.tell(2, Told(Outcome.FAILED, reason="port_conflict"))
        assert step(resumed) == expected[3], write
        writes += 1
    assert writes > 3


def test_a_kill_before_any_write_of_a_resume_leaves_a_resume(bench: Bench) -> None:
    config = CONFIGS["random"]
    expected = straight(config, 5)
    study = bench.study(config)
    for _ in range(3):
        step(study)
    bench.dies(launch_only, config)
    writes = 0
    for write, _, resumed in Kills(bench, config).at_each_write(
        lambda study: discard(study.reconcile(lambda ordinal, attempt: None))
    ):
        assert resumed.reconcile(lambda ordinal, attempt: None) == [3], write
        (queued,) = waiting(resumed)
        assert (queued.user_attrs["ordinal"], queued.user_attrs["attempt"]) == (3, 2), write
        assert [step(resumed), step(resumed)] == expected[3:], write
        writes += 1
    assert writes > 3


def test_a_trial_that_waits_survives_any_number_of_resumes(bench: Bench) -> None:
    config = CONFIGS["random"]
    step(bench.study(config))
    bench.dies(launch_only, config)
    for _ in range(5):
        study = bench.study(config)
        assert study.reconcile(lambda ordinal, attempt: None) == [1]
        (queued,) = waiting(study)
        assert queued.user_attrs["attempt"] == 2


def test_an_exhausted_samplers_pick_survives_a_kill(bench: Bench) -> None:
    """The configuration taken beside the sampler is asked as well after a kill between its queueing and its start."""
    config = CONFIGS["random"]
    study = bench.study(config)
    step(study)
    known: dict[str, Told | None] = dict.fromkeys(
        str(study.configurations.identity(p)) for p in list(study.configurations.space.points())[5:]
    )
    wanted = bench.study(config, name="straight")._ask_remaining(1, known)
    assert wanted is not None
    for write, last, resumed in Kills(bench, config).at_each_write(
        lambda study: discard(study._ask_remaining(1, known))
    ):
        again = resumed.reconcile(lambda ordinal, attempt: None)
        assert again == ([] if write == 0 else [1]), write
        trial = resumed.ask_again() or resumed._ask_remaining(1, known)
        assert trial is not None
        assert trial.ordinal == 1
        assert trial.candidate == wanted.candidate, write
        assert trial.attempt == (1 if write <= 1 else 2), (write, last)


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_an_interrupted_search_asks_what_an_uninterrupted_one_asks(
    bench: Bench, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """31 ordinals, cut off at every third one at another write of the ask, or while the trial ran."""
    # Few draws, so that points taken beside the sampler are among them too.
    monkeypatch.setattr("orchestrator.search.study.MAX_DRAWS", 5)
    config = CONFIGS[kind]
    memory = Study(optuna.storages.InMemoryStorage(), "straight", config)
    expected = [step(memory) for _ in range(31)]
    whole = memory._study.get_trials(deepcopy=False)
    outcomes = {t.user_attrs["outcome"] for t in whole}
    assert outcomes == {Outcome.DUPLICATE, Outcome.REFUSED, Outcome.FAILED, Outcome.COMPLETE}
    got = []
    kills, amid_draws = 0, 0
    for ordinal in range(31):
        study = bench.study(config)
        if ordinal % 3 == 1:
            # Even ones late in the ask, after draws that were answered, where it has as many writes.
            write = None if ordinal % 2 else (2, 14, 17, 20, 23)[ordinal // 6]
            kills += bench.dies(launch_only, config, write)
            study = bench.study(config)
            study.reconcile(lambda ordinal, attempt: None)
            launched = ordinal in study.launched()
            amid_draws += not launched and answered_draws(study._study.trials, ordinal) > 0
        got.append(step(study))
    assert kills >= 7
    assert amid_draws > 0
    assert got == expected
    assert bench.study(config).counted() == list(range(31))
