"""A trial that has its end of which nothing can be read: it is told, and the same command measures it again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conductor_desk import Desk

from orchestrator import sweep
from orchestrator.journal import main
from orchestrator.kept_study import open_study
from orchestrator.lock import owner_of_this_process
from orchestrator.status import status_of
from orchestrator.study_folder import dump

MakeDesk = Callable[..., Desk]


def finished(desk: MakeDesk, folder: Path) -> Desk:
    """A study whose budget is used up: a baseline, three settings of which one cannot run."""
    study = desk()
    (folder / "study.yaml").write_text(dump(study.config))
    (folder / "study.id").write_text("id-1\n")
    study.run("a", 100.0)
    study.run("b", 1892.9)
    study.fail("c", "out_of_memory")
    study.run("d", 90.0)
    assert study.run("e") is None
    return study


def lose(study: Desk, *trials: int) -> None:
    for trial in trials:
        file = study.store.trial_file(trial)
        file.write_bytes(file.read_bytes()[:3000])
        shutil.rmtree(study.store.levels_folder(trial))


@pytest.mark.parametrize("how", ["damaged", "gone"])
def test_it_is_told_with_what_optuna_was_told(desk: MakeDesk, tmp_path: Path, how: str) -> None:
    lose(study := finished(desk, tmp_path), 1, 2)
    if how == "gone":
        study.store.trial_file(1).unlink()
        study.store.trial_file(2).unlink()
    kept = open_study(tmp_path)
    assert kept.lost == [1, 2]
    lines = {line.trial: line for line in kept.journal()}
    assert (lines[1].state, lines[1].reason) == ("stopped", "lost")
    assert lines[1].finding == (
        "its file is lost or damaged (Optuna was told 1,892.9); the same command measures it again"
    )
    assert "(Optuna was told that it cannot run: out of memory)" in lines[2].finding
    assert [lines[n].state for n in (0, 3)] == ["done", "done"]
    assert None not in lines
    note = "the files of trials 1, 2 are lost or damaged: they are measured again by the same command"
    assert note in kept.notes
    status = status_of(tmp_path)
    assert (status.state, status.snapshot.done, note in status.notes) == ("unknown", 2, True)


def test_a_sweep_that_is_at_work_leaves_it_to_the_next_run(desk: MakeDesk, tmp_path: Path) -> None:
    study = finished(desk, tmp_path)
    study.study.claim(owner_of_this_process("run"))
    lose(study, 3)
    [line] = [line for line in open_study(tmp_path).journal() if line.trial == 3]
    assert line.finding.endswith("the next run measures it again")


def test_the_next_run_measures_it_again_and_nothing_else(desk: MakeDesk, tmp_path: Path) -> None:
    study = finished(desk, tmp_path)
    flags = study.store.trials()[1][0].trial.requested_flags
    lose(study, 1)
    again = desk()
    assert again.conductor.resume() == [1]
    assert again.conductor.lost == [1]
    assert not again.conductor.nothing_left()
    assert (again.conductor.done, again.conductor.planned) == (3, 4)
    [line] = [line for line in open_study(tmp_path).journal() if line.trial == 1]
    assert (line.state, line.reason, line.attempt) == ("pending", "lost", 2)
    assert "(Optuna was told 1,892.9); to be measured again" in line.finding
    plan = again.run("a", 1900.0)
    assert plan is not None
    assert (plan.ordinal, plan.attempt, plan.flags) == (1, 2, flags)
    assert again.run("b") is None
    assert again.conductor.ended == "budget"
    assert sorted(again.store.trials()) == [0, 1, 2, 3]
    assert open_study(tmp_path).lost == []
    # A run that comes after has nothing to do.
    last = desk()
    assert last.conductor.resume() == []
    assert last.conductor.nothing_left()


def test_a_run_that_is_killed_before_it_measures_it_asks_for_it_once(desk: MakeDesk, tmp_path: Path) -> None:
    lose(finished(desk, tmp_path), 1)
    desk().conductor.resume()
    again = desk()
    assert again.conductor.resume() == [1]
    assert again.conductor.lost == []
    assert [plan.ordinal for plan in iter(lambda: again.run("a"), None)] == [1]


def test_without_the_baseline_it_is_the_first_that_runs(desk: MakeDesk, tmp_path: Path) -> None:
    lose(finished(desk, tmp_path), 0, 3)
    again = desk()
    assert again.conductor.resume() == [0, 3]
    assert [plan.ordinal for plan in iter(lambda: again.run("a"), None)] == [0, 3]
    assert again.conductor.ended == "budget"


def test_a_trial_that_was_interrupted_too_often_is_not_lost(desk: MakeDesk, tmp_path: Path) -> None:
    study = desk()
    study.run("a")
    for _ in range(3):
        assert study.conductor.next("b") is not None
        study = desk()
        study.conductor.resume()
    assert study.conductor.lost == []
    assert study.outcome(1).failure_kind == "interrupted"


def test_without_optunas_storage_it_is_asked_for_and_nothing_is_invented(
    desk: MakeDesk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finished(desk, tmp_path)
    elsewhere = tmp_path / "elsewhere.db"
    (tmp_path / "study.db").rename(elsewhere)
    kept = open_study(tmp_path)
    assert not kept.memory
    assert any("Optuna's storage was not found: give --storage URL" in note for note in kept.notes)
    assert [(line.trial, line.state) for line in kept.journal()] == [
        (0, "done"),
        (1, "done"),
        (2, "infeasible"),
        (3, "done"),
    ]
    status = status_of(tmp_path)
    assert (status.state, status.snapshot.done) == ("unknown", 4)
    assert main([str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["not_launched"], len(told["unread"])) == ([], 1)
    found = open_study(tmp_path, f"sqlite:///{elsewhere}")
    assert (found.memory, found.notes, len(found.attempts)) == (True, (), 4)


def test_the_storage_may_come_by_a_variable(
    desk: MakeDesk, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(desk, tmp_path)
    (tmp_path / "study.db").rename(tmp_path / "elsewhere.db")
    monkeypatch.setenv("ORCHESTRATOR_STORAGE", f"sqlite:///{tmp_path}/elsewhere.db")
    assert main([str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unread"] == []
    assert main([str(tmp_path), "--json", "--storage", f"sqlite:///{tmp_path}/typo.db"]) == 0
    assert len(json.loads(capsys.readouterr().out)["unread"]) == 1


def test_a_sweep_takes_the_variable_and_hands_it_on_to_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setenv("ORCHESTRATOR_STORAGE", "postgresql://me:secret@host/name")
    monkeypatch.setattr(sweep, "_configured", lambda options: seen.append((options.storage, dict(os.environ))) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        sweep.main([str(tmp_path / "space.yaml")])
    [(storage, environment)] = seen
    assert storage == "postgresql://me:secret@host/name"
    assert "ORCHESTRATOR_STORAGE" not in environment


def test_a_storage_that_is_not_there_is_not_made(desk: MakeDesk, tmp_path: Path) -> None:
    finished(desk, tmp_path)
    kept = open_study(tmp_path, f"sqlite:///{tmp_path}/typo.db")
    assert not kept.memory
    assert not (tmp_path / "typo.db").exists()


def test_of_a_study_that_has_measured_nothing_nothing_is_missing(desk: MakeDesk, tmp_path: Path) -> None:
    study = desk()
    (tmp_path / "study.yaml").write_text(dump(study.config))
    (tmp_path / "study.id").write_text("id-1\n")
    (tmp_path / "study.db").unlink()
    kept = open_study(tmp_path)
    assert (kept.memory, kept.notes) == (True, ())
    assert [(line.role, line.state) for line in kept.journal()] == [("baseline", "pending")]
