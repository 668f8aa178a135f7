"""A trial as MLflow has it: parameters, metrics, tags. Pure; it knows no MLflow."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from orchestrator.analysis.objectives import COSTS, LATENCIES, RATES, STATS, Metric
from orchestrator.analysis.rows import Row, metric_value
from orchestrator.attributes import not_compared
from orchestrator.config import SweepConfig

#: Tags by which a run is found again, and by which it is known whether anything has changed.
KEY, DIGEST = "orchestrator.key", "orchestrator.digest"
#: MLflow refuses longer values, and other characters in names.
_PARAM, _TAG = 6000, 5000
_NAME = re.compile(r"[^A-Za-z0-9_./ :-]")


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric's value; `step` is the concurrency where it is one of a curve over it, else 0."""

    key: str
    value: float
    at_ms: int
    step: int


@dataclass(frozen=True, slots=True)
class RunData:
    """A run: of a trial, or of the study that its trials' runs are nested in."""

    key: str
    name: str
    params: Mapping[str, str]
    figures: tuple[Figure, ...]
    tags: Mapping[str, str]
    #: FINISHED or FAILED, as MLflow calls it.
    status: str
    began_ms: int | None
    ended_ms: int | None

    @property
    def digest(self) -> str:
        """Changes whenever what is to be stored does."""
        told = [self.name, dict(self.params), [(f.key, f.value, f.step) for f in self.figures], dict(self.tags)]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def study_key(study_id: str) -> str:
    """The key of the study's own run."""
    return study_id


def trial_run(config: SweepConfig, rows: Sequence[Row], finding: str | None = None) -> RunData:
    """The run of a trial that has its end. Levels that may not be compared give no metric; a tag says why."""
    trial, outcome, start = rows[0].trial, rows[0].outcome, rows[-1].start
    figures = [figure for row in rows for figure in _figures(row)]
    metric = config.score.objective.metric
    score = metric_value(rows, metric)
    stamps = [row.level.measured_at for row in rows if row.level is not None]
    if score is not None:
        figures.append(Figure("score", score, _ms(max(stamps)) or 0, 0))
    tags = {
        "simulated": str(trial.simulated).lower(),
        "profile": trial.profile,
        "study": trial.study,
        "study_id": trial.study_id,
        "trial": str(trial.trial),
        "role": trial.role,
        "state": outcome.state,
        "identity": trial.identity,
        "repeats": None if trial.repeats is None else str(trial.repeats),
        "score": str(metric),
        "failure": outcome.failure_kind,
        "failure_message": outcome.failure_message,
        "not_compared": not_compared(rows),
        "host": start.host,
        "launch_command": trial.launch_command,
        "mlflow.note.content": finding,
    }
    params = {
        **_params("", {**trial.requested_flags, **trial.requested_env}),
        **_params("canonical/", {**trial.canonical_flags, **trial.canonical_env}),
    }
    began = rows[0].start.started_at
    return RunData(
        key=f"{study_key(trial.study_id)}/{trial.trial}",
        name=f"{'SIMULATED ' if trial.simulated else ''}trial {trial.trial} {trial.role}",
        params=params,
        figures=tuple(figures),
        tags=_tags(tags),
        status="FINISHED" if outcome.state == "complete" else "FAILED",
        began_ms=_ms(began or min(stamps, default=None)),
        ended_ms=_ms(max(stamps, default=began)),
    )


def study_run(config: SweepConfig, study_id: str, simulated: bool, findings: Sequence[str]) -> RunData:
    """The run that the trials' are nested in."""
    tags = {
        "simulated": str(simulated).lower(),
        "study": config.study,
        "study_id": study_id,
        "score": str(config.score.objective),
        "mlflow.note.content": "\n".join(f"- {text}" for text in findings) or None,
    }
    name = f"{'SIMULATED ' if simulated else ''}study {config.study}"
    params = {"model": config.model, "gpus": str(config.node.gpus)}
    return RunData(study_key(study_id), name, params, (), _tags(tags), "FINISHED", None, None)


def _figures(row: Row) -> list[Figure]:
    """Of a level, `name/128`; of a closed loop also a point of the curve `name/by users`, whose step they are."""
    level = row.level
    if level is None or not row.comparable or level.load.repeat:
        return []
    at_ms = _ms(level.measured_at) or 0
    stems = [(name, None) for name in (*RATES, *COSTS)] + [(name, stat) for name in LATENCIES for stat in STATS]
    found = []
    for name, stat in stems:
        value = row.figure(Metric(name, stat, level.load))
        if value is None:
            continue
        key = name if stat is None else f"{name}.{stat}"
        found.append(Figure(f"{key}/{level.load.text}", value, at_ms, 0))
        if level.load.concurrency is not None:
            found.append(Figure(f"{key}/by users", value, at_ms, level.load.concurrency))
    half_width = level.metrics.output_tokens_per_s_half_width
    if half_width is not None:
        found.append(Figure(f"output_tokens_per_s_half_width/{level.load.text}", half_width, at_ms, 0))
    return found


def _params(prefix: str, values: Mapping[str, Any]) -> dict[str, str]:
    return {_NAME.sub("_", f"{prefix}{name}"): str(value)[:_PARAM] for name, value in values.items()}


def _tags(tags: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value[:_TAG] for name, value in tags.items() if value}


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1000)
