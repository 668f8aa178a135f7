"""A database that another program holds, for a moment or for ever, and one that is broken."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from optuna.trial import TrialState
from study_bench import Bench

from orchestrator.search.storage import Patience
from orchestrator.search.study import Outcome, Study, StudyError, Told

DONE = Told(Outcome.COMPLETE, 5.0)


@pytest.fixture
def other(bench: Bench) -> Iterator[sqlite3.Connection]:
    """Another program's connection to the same file."""
    bench.study()
    connection = sqlite3.connect(bench.file, check_same_thread=False, isolation_level=None)
    yield connection
    connection.close()


def test_a_lock_of_a_second_is_waited_for(bench: Bench, other: sqlite3.Connection) -> None:
    study = bench.study()
    other.execute("BEGIN EXCLUSIVE")
    timer = threading.Timer(1.0, lambda: other.execute("ROLLBACK"))
    timer.start()
    try:
        trial = study.ask_baseline()
        study.tell(trial.ordinal, DONE)
    finally:
        timer.join()
    assert study.counted() == [0]
    assert len(study._study.trials) == 1


@pytest.mark.parametrize("locked_call", range(9))
def test_each_call_is_made_again_and_has_its_effect_once(
    bench: Bench, other: sqlite3.Connection, locked_call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locked out at its n-th call of the storage, until it pauses the first time; random draws stay the same."""
    expected = _asked(bench.study(name="undisturbed"))
    study = bench.study(patience=Patience(busy_s=0.01, tries=3, pause_s=1.0))
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        other.execute("ROLLBACK")

    monkeypatch.setattr("orchestrator.search.storage.time", SimpleNamespace(sleep=pause))
    calls = [0]
    inner = Patience.call

    def counted(self: Patience, function: object, *arguments: object, **named: object) -> object:
        calls[0] += 1
        if calls[0] == locked_call * 3 + 1:
            other.execute("BEGIN EXCLUSIVE")
        return inner(self, function, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Patience, "call", counted)
    # Optuna tries to create a trial five times of its own accord, with pauses of its own.
    monkeypatch.setattr("optuna.storages._rdb.storage.time", SimpleNamespace(sleep=lambda seconds: None))
    assert _asked(study) == expected
    assert pauses == [1.0]


def _asked(study: Study) -> list[tuple[int, dict[str, object], int]]:
    study.ask_baseline()
    study.tell(0, DONE)
    trial = study.ask()
    assert trial is not None
    study.tell(1, DONE)
    return [(r.number, r.params, len(r.user_attrs)) for r in study._study.trials]


def test_a_lock_for_ever_ends_with_a_way_out_and_the_study_goes_on_when_it_is_gone(
    bench: Bench, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = bench.study(patience=Patience(busy_s=0.01, tries=3, pause_s=0.01))
    study.ask_baseline()
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StudyError, match=r"locked by another program.*on disk.*same command again") as caught:
        study.tell(0, DONE)
    assert "\n" not in str(caught.value)
    with pytest.raises(StudyError, match="locked"):
        study.claim({"run": "a"})
    with pytest.raises(StudyError, match="locked"):
        bench.study(patience=Patience(busy_s=0.01, tries=2, pause_s=0.01))
    other.execute("ROLLBACK")
    study.tell(0, DONE)
    assert [t.state for t in study._study.trials] == [TrialState.COMPLETE]


def test_a_broken_database_is_said_in_one_line(bench: Bench) -> None:
    study = bench.study()
    study.ask_baseline()
    bench.file.write_bytes(b"no database at all " * 500)
    with pytest.raises(StudyError, match=r"database failed: .*What was measured is on disk") as caught:
        study.tell(0, DONE)
    assert "\n" not in str(caught.value)
    with pytest.raises(StudyError) as caught:
        bench.study()
    assert "\n" not in str(caught.value)
