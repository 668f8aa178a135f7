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
from orchestrator import load_study
from orchestrator.attributes import note_text, study_attributes, trial_attributes
from orchestrator.kept_study import open_study
from orchestrator.search.storage import open_storage
from orchestrator.study_folder import dump

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
    assert better["finding"] == "+20 % at C=4: better than the baseline, unconfirmed"
    assert baseline["finding"] == "100.0 simulated tok/s at C=4: what the others are compared with"
    assert better["log"].startswith("logs/")
    assert better["log"].endswith(".log")
    assert better["trial file"] == "trials/000001.arrow"
    assert better["constraint ttft_ms.p99@4 <= 150"] == "met: 100"


def test_a_violated_constraint_and_a_failure_are_told_in_words(told: list[dict[str, Any]]) -> None:
    assert told[2]["constraint ttft_ms.p99@4 <= 150"] == "violated: 600"
    assert told[2]["finding"].startswith("breaks ttft_ms.p99@4 <= 150 (600, 450 beyond): does not count")
    assert told[3]["finding"] == "cannot run (out of memory) while loading weights: CUDA out of memory"
    assert told[3]["failure"] == f"{OutOfMemory.kind} (loading weights): CUDA out of memory"
    assert told[3]["constraint ttft_ms.p99@4 <= 150"] == "violated: not measured"
    assert SCORE not in told[3]
    assert "log" not in told[3]


#: The score's level alone is measured in the confirmation, and the constraint is at another.
REPEATED: dict[str, Any] = {
    "budget": {"trials": 12},
    "repeats": {"share": 0.5, "sentinel_every": 0},
    "constraints": ["ttft_ms.p99@1 <= 150"],
}


def test_a_further_start_is_as_feasible_as_what_it_starts_again(desk: Callable[..., Desk], tmp_path: Path) -> None:
    study = desk(changes=REPEATED)
    for number in range(20):
        # The baseline breaks the constraint, all others keep to it.
        key = f"n{number}"
        plan = study.conductor.next(key)
        if plan is None:
            break
        of_baseline = plan.ordinal == 0 or study.conductor.live[key].repeats == 0
        study.carry_out(key, plan, 100.0 + 10.0 * plan.ordinal, ttft_ms=100.0 if of_baseline else 50.0)
    trials = [t for t in stored(tmp_path).trials if t.user_attrs.get("role") == "confirmation"]
    assert {t.user_attrs["repeats"] for t in trials} >= {0}
    assert len(trials) >= 4
    for trial in trials:
        of, told = trial.user_attrs["repeats"], trial.user_attrs["constraint ttft_ms.p99@1 <= 150"]
        # A confirmation measures the loads of the constraints too.
        assert told == ("violated: 200" if of == 0 else "met: 100")
        assert (trial.constraints["ttft_ms.p99@1 <= 150"] > 0) is (of == 0)
        assert "violat" not in trial.user_attrs["finding"]
    # One sentence in one place, but for what came after its end.
    (tmp_path / "study.yaml").write_text(dump(study.config))
    (tmp_path / "study.id").write_text("id-1\n")
    lines = {line.trial: line.finding for line in open_study(tmp_path).journal()}
    assert {t.user_attrs["ordinal"]: t.user_attrs["finding"] for t in trials}.items() <= lines.items()
    feasible = {t["trial"]: t["feasible"] for t in load_study(tmp_path).trials.to_pylist() if t["repeats"] is not None}
    assert feasible == {
        t.user_attrs["ordinal"]: t.user_attrs["repeats"] != 0
        for t in stored(tmp_path).trials
        if "repeats" in t.user_attrs
    }


def test_where_what_is_started_again_is_lost_nobody_can_tell(
    desk: Callable[..., Desk], build_row: Callable[..., Any]
) -> None:
    rows = [build_row(9, 4, role="confirmation", repeats=5, repeat=1)]
    config = desk(changes=REPEATED).config
    told = trial_attributes(config, rows, {0: [build_row(0, 1, role="baseline")]})
    assert told["constraint ttft_ms.p99@1 <= 150"] == "not known (of trial 5, which it starts again)"


def test_a_study_that_was_measured_has_its_confirmation_feasible() -> None:
    kept = Path(__file__).parents[1] / "data" / "studies" / "nccl"
    feasible = {t["trial"]: t["feasible"] for t in load_study(kept).trials.to_pylist()}
    assert [feasible[trial] for trial in (12, 13, 14, 15)] == [True] * 4


def test_what_resume_depends_on_is_still_there(told: list[dict[str, Any]]) -> None:
    assert [attrs["ordinal"] for attrs in told[:3]] == [0, 1, 2]
    assert {"attempt", "identity", "role", "draw", "outcome"} <= set(told[1])


def test_a_level_that_may_not_be_compared_says_why(desk: Callable[..., Desk], build_row: Callable[..., Any]) -> None:
    rows = [build_row(1, 1), build_row(1, 4, cache_state="warm")]
    attributes = trial_attributes(desk().config, rows, {})
    assert str(attributes["not compared"]).startswith("C=4: ")
    assert SCORE not in attributes
    wrong = trial_attributes(desk().config, [build_row(1, 4, differs=True)], {})
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


def test_a_folder_with_spaces_is_quoted_in_what_is_told(desk: Callable[..., Desk], tmp_path: Path) -> None:
    config, folder = desk().config, tmp_path / "my results"
    note = note_text(config, study_attributes(config, str(folder), simulated=True))
    assert f"`python -m orchestrator.report '{folder}'`" in note
    assert f"({(folder / 'report.html').as_uri()})" in note
    assert "my%20results" in note


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
