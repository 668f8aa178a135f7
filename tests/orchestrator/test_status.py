"""Where a study stands, asked from another shell."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conductor_desk import Desk
from snapshots import SNAPSHOT

from orchestrator import lock
from orchestrator.live_file import LiveFile, live_path
from orchestrator.status import STOPPED, main, status_of
from orchestrator.study_command import BAD_USAGE, DONE, FAILED
from orchestrator.study_folder import dump

COMMAND = "python -m orchestrator.sweep small.yaml --trials 4"


@pytest.fixture
def study(desk: Callable[..., Desk], tmp_path: Path) -> Desk:
    """A study of which two trials are over and the third runs."""
    study = desk()
    (tmp_path / "study.yaml").write_text(
        f"# As run by small.yaml: launcher resolved, `simulated:` merged in where it applies.\n{dump(study.config)}"
    )
    (tmp_path / "study.id").write_text("id-1\n")
    study.run("a")
    study.run("b", rate=120.0)
    plan = study.conductor.next("c")
    assert plan is not None
    study.measure("c", plan, study.start(plan), plan.ladder[0])
    return study


def live_file(folder: Path, at: float | None = None, **owner: Any) -> LiveFile:
    said: list[str] = []
    own = lock.owner_of_this_process("run-1") | owner
    return LiveFile(live_path(folder), own, COMMAND, said.append, lambda: time.time() if at is None else at)


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}


def test_a_running_sweep_is_shown_as_it_shows_itself_and_left_alone(
    study: Desk, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    live_file(tmp_path).begin(SNAPSHOT)
    before = stamps(tmp_path)
    assert main([str(tmp_path)]) == DONE
    assert stamps(tmp_path) == before
    out = capfd.readouterr().out
    assert "The sweep runs: process" in out
    assert "measuring C=32" in out
    assert "3 of 16 trials" in out
    assert status_of(tmp_path).snapshot == SNAPSHOT


def test_a_killed_sweep_is_called_so_and_what_it_measured_is_shown(
    study: Desk, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    live_file(tmp_path, at=time.time() - 180, started=1.0).begin(SNAPSHOT)
    assert main([str(tmp_path)]) == STOPPED
    out = capfd.readouterr().out
    assert "The sweep was last heard of 3 min ago; process" in out
    assert "is not running any more" in out
    assert f"Continue with: {COMMAND}" in out
    # Of the files: two trials are over, and nothing is measured now.
    status = status_of(tmp_path)
    assert (status.state, status.snapshot.done, status.snapshot.nodes) == ("killed", 2, ())
    assert status.snapshot.results.score.best == 120.0
    assert status.snapshot.node_hours == SNAPSHOT.node_hours


def test_a_sweep_that_runs_and_is_silent_is_late(study: Desk, tmp_path: Path) -> None:
    live_file(tmp_path, at=time.time() - 100).begin(SNAPSHOT)
    status = status_of(tmp_path)
    assert (status.state, status.late, status.code) == ("running", True, DONE)
    assert "still runs: it may be stopped" in status.text


@pytest.mark.parametrize(("state", "code"), [("finished", DONE), ("interrupted", STOPPED), ("failed", STOPPED)])
def test_how_a_sweep_ended_is_told_with_its_reason(study: Desk, tmp_path: Path, state: Any, code: int) -> None:
    live = live_file(tmp_path)
    live.begin(SNAPSHOT)
    live.end(state, "the reason.")
    status = status_of(tmp_path)
    assert (status.state, status.code) == (state, code)
    assert status.text.endswith("ago): the reason.")


def test_a_study_without_a_live_file_is_told_by_its_files(study: Desk, tmp_path: Path) -> None:
    status = status_of(tmp_path)
    assert (status.state, status.code, status.heard_of_s) == ("unknown", STOPPED, None)
    assert status.command == "python -m orchestrator.sweep small.yaml"
    assert (status.snapshot.done, status.snapshot.planned) == (2, 4)
    (tmp_path / "study.lock").write_text(json.dumps(lock.owner_of_this_process("run-1")))
    assert status_of(tmp_path).state == "running"
    text = (tmp_path / "study.yaml").read_text()
    (tmp_path / "study.yaml").write_text(text.replace("small.yaml", "my small.yaml", 1))
    assert status_of(tmp_path).command == "python -m orchestrator.sweep 'my small.yaml'"
    (tmp_path / "study.lock").write_text("")
    study.end("c", study.start(_plan(study)), _complete())
    while study.run("d") is not None:
        pass
    assert status_of(tmp_path).state == "finished"


def _plan(study: Desk) -> Any:
    (trial,) = study.conductor.live.values()
    return study.conductor._plan(trial)


def _complete() -> Any:
    from orchestrator.analysis.rows import Outcome

    return Outcome("complete")


def test_the_json_has_stable_keys_and_the_state(study: Desk, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    live_file(tmp_path, started=1.0).begin(SNAPSHOT)
    assert main([str(tmp_path), "--json"]) == STOPPED
    data = json.loads(capfd.readouterr().out)
    keys = ["version", "folder", "state", "text", "owner", "heard_of_s", "late", "command", "notes", "snapshot"]
    assert list(data) == keys
    assert (data["version"], data["state"], data["folder"]) == (1, "killed", str(tmp_path))
    assert set(data["owner"]) == {"host", "pid"}


def test_bad_usage_and_damage_are_clear_errors(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "absent")]) == BAD_USAGE
    assert "there is no folder" in capfd.readouterr().err
    (tmp_path / "study.yaml").write_text("study: [")
    (tmp_path / "study.id").write_text("x\n")
    assert main([str(tmp_path)]) in (BAD_USAGE, FAILED)
    assert "cannot be read" in capfd.readouterr().err
    with contextlib.suppress(SystemExit):
        main([str(tmp_path), "--json", "--watch"])
    assert "not allowed with" in capfd.readouterr().err


def test_watching_needs_a_terminal(study: Desk, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--watch"]) == BAD_USAGE
    assert "needs a terminal" in capfd.readouterr().err


def test_of_a_sweep_on_another_host_the_age_of_its_word_tells(study: Desk, tmp_path: Path) -> None:
    live_file(tmp_path, host="elsewhere").begin(dataclasses.replace(SNAPSHOT, done=4))
    assert status_of(tmp_path).snapshot.done == 4
    assert status_of(tmp_path, now=time.time() + 2 * lock.STALE_AFTER_S).state == "killed"
