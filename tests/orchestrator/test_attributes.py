"""What people see of a study in Optuna's own tools: read back from its storage."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from conductor_desk import Desk

from launchers.errors import OutOfMemory
from orchestrator.attributes import note_text, study_attributes, trial_attributes
from orchestrator.search.storage import open_storage

NAME = "conducted-id-1"
SCORE = "output_tokens_per_s@4"


def stored(folder: Path) -> optuna.Study:
    return optuna.load_study(study_name=NAME, storage=open_storage(f"sqlite:///{folder}/study.db"))


@pytest.fixture
def told(desk: Callable[..., Desk], tmp_path: Path) -> list[dict[str, Any]]:
    """The user attributes of a baseline, a better one, one that is too slow, and one that failed."""
    study = desk(changes={"pareto": [f"maximize {SCORE}", "minimize ttft_ms.p99@4"]})
    study.run("a")
    study.run("b", rate=120.0)
    study.run("c", rate=150.0, ttft_ms=300.0)
    study.fail("d", OutOfMemory.kind, "CUDA out of memory")
    return [trial.user_attrs for trial in stored(tmp_path).trials]


def test_settings_figures_and_files_of_a_trial_have_names_for_people(told: list[dict[str, Any]]) -> None:
    baseline, better = told[0], told[1]
    assert baseline["server"] == better["server"] == "SIMULATED, profile tiny"
    assert better["settings"]
    assert better[SCORE] == 120.0
    assert better["output_tokens_per_s@1"] == 120.0
    assert better["ttft_ms.p99@4"] == 100.0
    assert better["finding"] == (
        f"+20.0 % by {SCORE} on 1 start of the baseline so far; the journal has what came later"
    )
    assert baseline["finding"] == "the baseline"
    assert better["log"].startswith("logs/")
    assert better["log"].endswith(".log")
    assert better["trial file"] == "trials/000001.arrow"
    assert better["constraint ttft_ms.p99@4 <= 150"] == "met: 100"


def test_a_violated_constraint_and_a_failure_are_told_in_words(told: list[dict[str, Any]]) -> None:
    assert told[2]["constraint ttft_ms.p99@4 <= 150"] == "violated: 600"
    assert told[2]["finding"].startswith("violates ttft_ms.p99@4 <= 150 (600); +50.0 % by output_tokens_per_s@4")
    assert told[3]["finding"] == f"infeasible: {OutOfMemory.kind}"
    assert told[3]["failure"] == f"{OutOfMemory.kind} (loading weights): CUDA out of memory"
    assert told[3]["constraint ttft_ms.p99@4 <= 150"] == "violated: not measured"
    assert SCORE not in told[3]
    assert "log" not in told[3]


def test_what_resume_depends_on_is_still_there(told: list[dict[str, Any]]) -> None:
    assert [attrs["ordinal"] for attrs in told[:3]] == [0, 1, 2]
    assert {"attempt", "identity", "role", "draw", "outcome"} <= set(told[1])


def test_a_level_that_may_not_be_compared_says_why(desk: Callable[..., Desk], build_row: Callable[..., Any]) -> None:
    rows = [build_row(1, 1), build_row(1, 4, cache_state="warm")]
    attributes = trial_attributes(desk().config, rows, [])
    assert str(attributes["not compared"]).startswith("C=4: ")
    assert SCORE not in attributes
    wrong = trial_attributes(desk().config, [build_row(1, 4, differs=True)], [])
    assert wrong["not compared"] == "C=4: its output differs from that of the baseline"


def test_the_study_has_a_metric_name_a_direction_and_a_note_that_links_the_report(
    desk: Callable[..., Desk], tmp_path: Path
) -> None:
    optuna_dashboard = pytest.importorskip("optuna_dashboard")
    study = desk()
    attributes = study_attributes(study.config, str(tmp_path), simulated=True)
    study.study.describe(attributes, note_text(study.config, attributes, ["Nothing beats the baseline."]))
    kept = stored(tmp_path)
    assert kept.metric_names == [SCORE]
    assert kept.direction.name == "MAXIMIZE"
    assert kept.user_attrs["report"] == f"{tmp_path}/report.html"
    assert kept.user_attrs["server"].startswith("SIMULATED")
    note = optuna_dashboard.get_note(kept)
    assert note.startswith("# Sweep conducted\n")
    assert "SIMULATED" in note
    assert f"({tmp_path}/report.html)" in note.replace("file://", "")
    assert "- Nothing beats the baseline." in note
    # A newer one replaces it; one of a person's does not go.
    study.study.describe(attributes, note_text(study.config, attributes))
    assert "Nothing beats" not in optuna_dashboard.get_note(stored(tmp_path))
    optuna_dashboard.save_note(kept, "My own words.")
    study.study.describe(attributes, note_text(study.config, attributes))
    assert optuna_dashboard.get_note(stored(tmp_path)) == "My own words."


def test_a_study_of_before_the_attributes_is_continued(desk: Callable[..., Desk], tmp_path: Path) -> None:
    study = desk()
    study.run("a")
    study.run("b")
    ours = ("ordinal", "attempt", "identity", "role", "draw", "outcome", "reason", "repeats", "repeat")
    with sqlite3.connect(tmp_path / "study.db") as database:
        database.execute(f"delete from trial_user_attributes where key not in ({', '.join('?' * len(ours))})", ours)
        database.execute("delete from study_system_attributes where key = 'study:metric_names'")
    assert set(stored(tmp_path).trials[1].user_attrs) <= set(ours)
    again = desk()
    assert again.conductor.resume() == []
    assert again.conductor.done == 2
    again.run("c")
    assert again.conductor.done == 3
    assert stored(tmp_path).metric_names == [SCORE]


def test_attributes_are_plain_json(told: list[dict[str, Any]]) -> None:
    assert json.loads(json.dumps(told)) == told
