"""Put a study into MLflow: `python -m orchestrator.to_mlflow results/nccl --uri sqlite:///mlflow.db`.

A run for each trial that has its end, nested in one of the study: parameters as requested and as SGLang makes them,
metrics of every load, tags, and the trial's Arrow file and logs as artifacts. It may be run at any time and again:
a run is found by its tag `orchestrator.key`, and only what is missing is added.

Exit codes: 0 done, 1 the study cannot be read or MLflow refuses, 2 bad usage, no study there, or no MLflow installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from orchestrator.analysis.findings import findings
from orchestrator.analysis.rows import Row, by_trial
from orchestrator.attributes import REPORT
from orchestrator.kept_study import KeptStudy, open_study
from orchestrator.mlflow_runs import DIGEST, KEY, RunData, study_run, trial_run
from orchestrator.study_command import DONE, FAILED, BadUsage, exit_code, fail, study_parser

#: MLflow takes so many metrics, params and tags in a call.
_METRICS, _PARAMS, _TAGS = 1000, 100, 100
#: Of the whole study.
_FILES = (REPORT, "report.md", "study.yaml", "measurements.arrow", "pareto.arrow", "frontier.arrow")


@dataclass
class Told:
    """What was done, for the last line."""

    new: int = 0
    changed: int = 0
    same: int = 0
    #: Trials without an end.
    left: list[int] = field(default_factory=list)

    @property
    def text(self) -> str:
        """In a sentence."""
        text = f"{self.new} runs added, {self.changed} brought up to date, {self.same} were there"
        if self.left:
            text += f"; left for the next time, since they have no end yet: trials {', '.join(map(str, self.left))}"
        return f"{text}."


class Store:
    """Runs of one experiment, found by their key."""

    def __init__(self, client: Any, experiment: str) -> None:
        """Raises mlflow.exceptions.MlflowException."""
        self._client = client
        found = client.get_experiment_by_name(experiment)
        self._experiment = client.create_experiment(experiment) if found is None else found.experiment_id

    def put(self, run: RunData, parent: str | None, artifacts: Sequence[Path], told: Told) -> str:
        """Make the run, or bring it up to date; its id."""
        digest = f"{run.digest} {_stamps(artifacts)}"
        before = self._find(run.key)
        if before is not None and before.data.tags.get(DIGEST) == digest:
            told.same += 1
            return str(before.info.run_id)
        if before is None:
            told.new += 1
            tags = {KEY: run.key} if parent is None else {KEY: run.key, "mlflow.parentRunId": parent}
            before = self._client.create_run(self._experiment, run.began_ms, tags, run.name)
        else:
            told.changed += 1
        run_id = str(before.info.run_id)
        self._log(run, run_id, before)
        for path in artifacts:
            self._client.log_artifact(run_id, str(path))
        self._client.set_terminated(run_id, run.status, run.ended_ms)
        # Last: a kill before leaves a run that is brought up to date the next time.
        self._client.set_tag(run_id, DIGEST, digest)
        return run_id

    def _find(self, key: str) -> Any:
        runs = self._client.search_runs([self._experiment], f"tags.`{KEY}` = '{key}'", max_results=1)
        return runs[0] if runs else None

    def _log(self, run: RunData, run_id: str, before: Any) -> None:
        from mlflow.entities import Metric, Param, RunTag

        known = {
            (point.key, point.step)
            for key in before.data.metrics
            for point in self._client.get_metric_history(run_id, key)
        }
        metrics = [Metric(f.key, f.value, f.at_ms, f.step) for f in run.figures if (f.key, f.step) not in known]
        params = [Param(name, value) for name, value in run.params.items() if name not in before.data.params]
        tags = [RunTag(name, value) for name, value in run.tags.items()]
        for number in range(0, len(metrics), _METRICS):
            self._client.log_batch(run_id, metrics=metrics[number : number + _METRICS])
        for number in range(0, len(params), _PARAMS):
            self._client.log_batch(run_id, params=params[number : number + _PARAMS])
        for number in range(0, len(tags), _TAGS):
            self._client.log_batch(run_id, tags=tags[number : number + _TAGS])


def export(study: KeptStudy, store: Store) -> Told:
    """Put every trial that has its end into the store. Raises mlflow.exceptions.MlflowException."""
    config, told, rows = study.config, Told(), study.results.rows
    texts = [finding.text for finding in findings(rows, config.score.objective, config.limits)]
    files = [path for name in _FILES if (path := study.store.root / name).is_file()]
    parent = store.put(study_run(config, study.study_id, study.simulated, texts), None, files, told)
    told_of = {entry.trial: entry.finding for entry in study.journal()}
    for ordinal, group in by_trial(rows).items():
        if not study.has_end(group):
            told.left.append(ordinal)
            continue
        run = trial_run(config, group, told_of.get(ordinal))
        store.put(run, parent, _artifacts(study, ordinal, group), told)
    return told


def _artifacts(study: KeptStudy, ordinal: int, rows: Sequence[Row]) -> list[Path]:
    """The trial's Arrow file and the logs of its starts."""
    start_ids = dict.fromkeys(row.start.start_id for row in rows if row.start.start_id is not None)
    paths = [study.store.trial_file(ordinal), *(study.store.logs / f"{start_id}.log" for start_id in start_ids)]
    return [path for path in paths if path.is_file()]


def _stamps(paths: Sequence[Path]) -> str:
    return " ".join(f"{path.name}:{path.stat().st_size}:{path.stat().st_mtime_ns}" for path in paths)


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = study_parser(
        "to_mlflow", "Put a study's trials into MLflow; run it again at any time, and only what is new is added."
    )
    options.add_argument(
        "--uri", metavar="URI", help="MLflow's tracking store: sqlite:///mlflow.db, http://host:5000, file:folder"
    )
    options.add_argument("--experiment", metavar="NAME", help="default: the study's name")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    options = parser().parse_args(arguments)
    return exit_code(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("mlflow") is None:
        raise BadUsage("MLflow is not installed: pip install 'sglang-orchestrator[mlflow]'")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    if options.uri and (options.uri.startswith("file:") or "://" not in options.uri):
        # MLflow 3.18 refuses folders unless told otherwise; who names one has told.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    study = open_study(options.study, options.storage)
    for note in study.notes:
        print(f"warning: {note}", file=sys.stderr)
    import mlflow
    from mlflow.exceptions import MlflowException

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    uri = options.uri or mlflow.get_tracking_uri()
    try:
        store = Store(mlflow.MlflowClient(uri), options.experiment or study.config.study)
        told = export(study, store)
    except (MlflowException, OSError) as error:
        why = " ".join(str(error).replace(uri, shown_uri(uri)).split())
        return fail(f"MLflow at {shown_uri(uri)} failed: {why[:600]}", FAILED)
    print(f"{shown_uri(uri)}: {told.text}")
    return DONE


def shown_uri(uri: str) -> str:
    """The address without its password."""
    parts = urlsplit(uri)
    if parts.password is None:
        return uri
    return urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", ":***@")))


if __name__ == "__main__":
    sys.exit(main())
