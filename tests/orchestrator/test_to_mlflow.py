"""A study in MLflow: a run a trial, put there again and again without doubling anything."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conductor_desk import Desk

from orchestrator.analysis.rows import Row
from orchestrator.mlflow_runs import KEY, trial_run
from orchestrator.study_command import BAD_USAGE, DONE, FAILED
from orchestrator.study_folder import dump
from orchestrator.to_mlflow import main, shown_uri

pytest.importorskip("mlflow")


@pytest.fixture
def study(build_row: Callable[..., Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A study of which two trials are over, in a folder of its own."""
    folder = tmp_path / "results" / "conducted"
    folder.mkdir(parents=True)
    # MLflow keeps artifacts beside where it is called.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "false")
    study = Desk(folder, build_row)
    (folder / "study.yaml").write_text(dump(study.config))
    (folder / "study.id").write_text("id-1\n")
    (folder / "report.html").write_text("<p>the report</p>")
    study.run("a")
    study.run("b", rate=120.0)
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "logs" / "start-2.log").write_text("ready")
    return study


def runs(uri: str) -> dict[str, Any]:
    import mlflow

    client = mlflow.MlflowClient(uri)
    (experiment,) = (e for e in client.search_experiments() if e.name == "conducted")
    found = client.search_runs([experiment.experiment_id])
    assert len({run.data.tags[KEY] for run in found}) == len(found)
    return {run.data.tags[KEY]: run for run in found}


@pytest.fixture(params=["sqlite", "folder"])
def uri(request: pytest.FixtureRequest, study: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/mlflow.db"
    # Refused by MLflow where nobody names it: the command is asked for it by name.
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE")
    return f"file:{tmp_path}/mlflow"


def test_each_trial_is_a_run_with_what_was_asked_measured_and_kept(study: Desk, uri: str) -> None:
    import mlflow

    assert main(["results/conducted", "--uri", uri]) == DONE
    found = runs(uri)
    assert set(found) == {"id-1", "id-1/0", "id-1/1"}
    run = found["id-1/1"]
    assert run.data.tags["simulated"] == "true"
    assert run.info.run_name == "SIMULATED trial 1 candidate"
    assert (run.data.tags["state"], run.data.tags["role"], run.data.tags["study_id"]) == (
        "complete",
        "candidate",
        "id-1",
    )
    assert run.data.tags["mlflow.parentRunId"] == found["id-1"].info.run_id
    assert run.data.tags["mlflow.note.content"].startswith("+20 % at C=4: better than the baseline")
    assert set(run.data.params) >= {"max-running-requests", "canonical/max-running-requests"}
    assert run.data.metrics["output_tokens_per_s/4"] == 120.0
    assert run.data.metrics["ttft_ms.p99/1"] == 100.0
    assert run.data.metrics["score"] == 120.0
    client = mlflow.MlflowClient(uri)
    curve = client.get_metric_history(run.info.run_id, "output_tokens_per_s/by users")
    assert sorted((point.step, point.value) for point in curve) == [(1, 120.0), (4, 120.0)]
    assert {a.path for a in client.list_artifacts(run.info.run_id)} == {"000001.arrow", "start-2.log"}
    whole = {a.path for a in client.list_artifacts(found["id-1"].info.run_id)}
    assert {"report.html", "study.yaml", "measurements.arrow"} <= whole


def test_again_nothing_doubles_and_what_is_new_is_added(
    study: Desk, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import mlflow

    assert main(["results/conducted", "--uri", uri]) == DONE
    assert "3 runs added, 0 brought up to date, 0 were there" in capsys.readouterr().out
    before = {key: run.info.run_id for key, run in runs(uri).items()}
    assert main(["results/conducted", "--uri", uri]) == DONE
    assert "0 runs added, 0 brought up to date, 3 were there" in capsys.readouterr().out
    study.run("c", rate=90.0)
    plan = study.conductor.next("d")
    assert plan is not None
    study.measure("d", plan, study.start(plan), plan.ladder[0])
    # A run that was cut off: its digest is not there yet.
    mlflow.MlflowClient(uri).delete_tag(before["id-1/1"], "orchestrator.digest")
    assert main(["results/conducted", "--uri", uri]) == DONE
    out = capsys.readouterr().out
    assert "1 runs added, 2 brought up to date, 1 were there" in out
    assert "left for the next time, since they have no end yet: trials 3" in out
    after = runs(uri)
    assert {key: after[key].info.run_id for key in before} == before
    curve = mlflow.MlflowClient(uri).get_metric_history(before["id-1/1"], "output_tokens_per_s/by users")
    assert len(curve) == 2


def test_without_optunas_storage_the_rows_are_taken_and_it_is_asked_for(
    study: Desk, uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (study.store.root / "study.db").rename(tmp_path / "elsewhere.db")
    assert main([str(study.store.root), "--uri", uri]) == DONE
    assert "Optuna's storage was not found: give --storage URL" in capsys.readouterr().err
    assert len(runs(uri)) == 3


def test_what_may_not_be_compared_gives_no_metric_and_a_reason(study: Desk, build_row: Callable[..., Row]) -> None:
    run = trial_run(study.config, [build_row(3, 1), build_row(3, 4, cache_state="warm")])
    keys = {figure.key for figure in run.figures}
    assert "output_tokens_per_s/1" in keys
    assert not any(key.endswith("/4") for key in keys)
    assert "score" not in keys
    assert run.tags["not_compared"].startswith("C=4: ")
    failed = trial_run(study.config, [build_row(4, None, state="failed", failure_kind="out_of_memory")])
    assert (failed.status, failed.figures, failed.tags["failure"]) == ("FAILED", (), "out_of_memory")


def test_names_are_what_mlflow_takes(study: Desk, build_row: Callable[..., Row]) -> None:
    flags = {"json-model-override-args": "x" * 9_000, "weird[0]": 1}
    params = trial_run(study.config, [build_row(1, 4, flags=flags)]).params
    assert len(params["json-model-override-args"]) == 6000
    assert params["weird_0_"] == "1"


def test_errors_are_clear_and_tell_no_password(
    study: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["absent", "--uri", "sqlite:///x.db"]) == BAD_USAGE
    assert "there is no folder" in capsys.readouterr().err
    assert main(["results/conducted", "--uri", "nonsense://user:secret@host/x"]) == FAILED
    err = capsys.readouterr().err
    assert err.startswith("error: MLflow at nonsense://user:***@host/x failed: ")
    assert "secret" not in err
    assert shown_uri("http://host:5000") == "http://host:5000"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["results/conducted"]) == BAD_USAGE
    assert "sglang-orchestrator[mlflow]" in capsys.readouterr().err


def test_nothing_is_told_to_mlflow_s_makers(study: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
    assert main(["results/conducted", "--uri", f"sqlite:///{tmp_path}/mlflow.db"]) == DONE
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
