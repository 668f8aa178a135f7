"""`from orchestrator import load_study`: a study as tables, finished or running."""

from __future__ import annotations

import builtins
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conductor_desk import Desk

from orchestrator import load_study
from orchestrator.analysis.rows import Outcome, StartInfo
from orchestrator.loaded_study import LoadedStudy, NoStudy
from orchestrator.offered_load import Load
from orchestrator.results.files import StoreError
from orchestrator.results.schemas import TRIALS
from orchestrator.study_folder import dump


@pytest.fixture
def running(desk: Callable[..., Desk], tmp_path: Path) -> Desk:
    """A baseline, a better setting, one that failed, one that has measured a level and goes on, one just begun."""
    study = desk(nodes=2)
    (tmp_path / "study.yaml").write_text(dump(study.config))
    (tmp_path / "study.id").write_text("id-1\n")
    study.run("a", 100.0)
    study.run("b", 150.0)
    study.fail("c", "out_of_memory")
    plan = study.conductor.next("d")
    assert plan is not None
    study.measure("d", plan, study.start(plan), plan.ladder[0])
    return study


@pytest.fixture
def loaded(running: Desk, tmp_path: Path) -> LoadedStudy:
    return load_study(tmp_path)


def test_the_tables_hold_a_running_study(loaded: LoadedStudy) -> None:
    assert loaded.measurements.select(["trial", "concurrency"]).to_pylist() == [
        {"trial": trial, "concurrency": users} for trial, users in ((0, 1), (0, 4), (1, 1), (1, 4), (3, 1))
    ]
    trials = loaded.trials.to_pylist()
    assert [(t["trial"], t["state"], t["score"], t["feasible"], t["levels"]) for t in trials] == [
        (0, "complete", 100.0, True, 2),
        (1, "complete", 150.0, True, 2),
        (2, "infeasible", None, False, 0),
        (3, "running", None, False, 1),
    ]
    assert trials[2]["failure_kind"] == "out_of_memory"
    assert loaded.trials.schema.equals(TRIALS.arrow, check_metadata=True)
    assert loaded.pareto["trial"].to_pylist() == [1]
    assert loaded.frontier["trial"].to_pylist() == [0, 0, 1, 1, 3]
    assert loaded.best is not None
    assert loaded.best.trial == 1
    assert loaded.findings[0].text.startswith("At C=1 trial 1 gives 150.0 simulated tok/s")
    assert (loaded.simulated, loaded.study_id, loaded.config.study) == (True, "id-1", "conducted")


def test_requests_of_finished_and_of_running_trials(loaded: LoadedStudy) -> None:
    assert loaded.requests(1)["concurrency"].to_pylist() == [1, 4]
    assert loaded.requests(3)["concurrency"].to_pylist() == [1]
    assert loaded.requests(99).num_rows == 0
    assert loaded.counters(1).num_rows == 0
    assert "value" in loaded.counters(1).schema.names


def test_requests_are_found_although_their_trial_ended_since(running: Desk, tmp_path: Path) -> None:
    before = load_study(tmp_path)
    running.end("d", StartInfo(1, "start-4", host="vm"), Outcome("interrupted"))
    assert running.store.requests_file(3).exists()
    assert not running.store.level_requests_file(3, Load(1)).exists()
    assert before.requests(3)["concurrency"].to_pylist() == [1]


def test_a_cut_file_is_told(loaded: LoadedStudy, tmp_path: Path) -> None:
    (tmp_path / "requests" / "000001.arrow").write_bytes(b"ARROW1")
    with pytest.raises(StoreError, match=r"000001\.arrow: it is truncated"):
        loaded.requests(1)


def test_pandas_frames_have_values_where_the_tables_have_json(loaded: LoadedStudy) -> None:
    frame = loaded.to_pandas()
    assert len(frame) == 5
    assert isinstance(frame["requested_flags"][2]["max-running-requests"], int)
    assert list(loaded.to_pandas("trials")["state"]) == ["complete", "complete", "infeasible", "running"]
    assert len(loaded.to_pandas(loaded.requests(1))) == 2
    with pytest.raises(ValueError, match="there is no table 'levels': measurements, trials, pareto, frontier"):
        loaded.to_pandas("levels")


def test_without_pandas_it_says_so(loaded: LoadedStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *arguments: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ImportError, match="pip install pandas"):
        loaded.to_pandas()


def test_nothing_measured_has_no_best(desk: Callable[..., Desk], tmp_path: Path) -> None:
    study = desk()
    (tmp_path / "study.yaml").write_text(dump(study.config))
    (tmp_path / "study.id").write_text("id-1\n")
    loaded = load_study(str(tmp_path))
    assert loaded.best is None
    assert (loaded.trials.num_rows, loaded.measurements.num_rows) == (0, 0)
    with pytest.raises(NoStudy):
        load_study(tmp_path / "absent")


def test_the_package_itself_is_light_and_its_door_needs_no_ray() -> None:
    code = (
        "import sys, orchestrator; heavy = ('ray', 'optuna', 'pyarrow', 'pandas', 'pydantic')\n"
        "print([n for n in heavy if n in sys.modules])\n"
        "orchestrator.load_study; print('ray' in sys.modules)\n"
        "try: orchestrator.load_studies\n"
        "except AttributeError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "False", "module 'orchestrator' has no attribute 'load_studies'"]
