"""A study on disk read by others, while its sweep may be writing it."""

from __future__ import annotations

from pathlib import Path

import pytest
from conductor_desk import Desk

from orchestrator.kept_study import NoStudy, open_study


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}


def test_a_running_study_is_read_as_it_stands_and_left_as_it_is(running_study: Desk, tmp_path: Path) -> None:
    before = snapshot(tmp_path)
    study = open_study(tmp_path)
    assert snapshot(tmp_path) == before
    assert study.simulated
    assert study.config == running_study.config
    assert [(row.trial.trial, row.level.load.concurrency) for row in study.results.rows if row.level] == [
        (0, 1),
        (0, 4),
        (1, 1),
    ]
    assert [(n, attempts[-1].state.name) for n, attempts in study.attempts.items()] == [(0, "COMPLETE"), (1, "RUNNING")]
    assert len(study.results.pareto.points) == 1


def test_the_folder_above_will_do_where_it_holds_one_study(running_study: Desk, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "conducted").symlink_to(tmp_path)
    assert open_study(tmp_path / "results").study_id == "id-1"


def test_no_study_is_told_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(NoStudy, match="there is no folder"):
        open_study(tmp_path / "absent")
    with pytest.raises(NoStudy, match=r"has a study\.yaml"):
        open_study(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "study.yaml").touch()
    with pytest.raises(NoStudy, match="several studies"):
        open_study(tmp_path)
