"""A trial and a study in Optuna's user attributes, in words for people who look with optuna-dashboard. Pure.

The search itself reads none of them; what it resumes from is `search.trials`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.analysis.constraints import kept
from orchestrator.analysis.finding import settings_text
from orchestrator.analysis.journal import line_of
from orchestrator.analysis.objectives import Metric
from orchestrator.analysis.rows import Row, metric_value
from orchestrator.config import SweepConfig
from orchestrator.report.summary import fixed_settings
from orchestrator.study_command import command_text

#: What `orchestrator.report` writes into the study's folder.
REPORT = "report.html"
_MESSAGE = 400


def trial_attributes(
    config: SweepConfig, rows: Sequence[Row], known: Mapping[int, Sequence[Row]]
) -> dict[str, str | float]:
    """Of a trial that has its end: settings, the journal's line as it then is, figures by metric, constraints, failure,
    and where its files are.

    `known` are the rows of the trials that have an end. A figure that is missing is left out. Files are told from the
    study's folder.
    """
    first = rows[0]
    found: dict[str, str | float] = {
        "server": f"SIMULATED, profile {first.trial.profile}" if first.trial.simulated else "SGLang",
        "settings": settings_text(first, fixed_settings(config)),
        "finding": _line(config, rows, known),
        "trial folder": f"levels/{first.trial.trial:06d}",
        "trial file": f"trials/{first.trial.trial:06d}.arrow",
    }
    start_ids = list(dict.fromkeys(row.start.start_id for row in rows if row.start.start_id is not None))
    if start_ids:
        found["log"] = ", ".join(f"logs/{start_id}.log" for start_id in start_ids)
    outcome = first.outcome
    if outcome.failure_kind is not None:
        at = f" ({outcome.failure_phase})" if outcome.failure_phase else ""
        found["failure"] = f"{outcome.failure_kind}{at}: {outcome.failure_message or ''}"[:_MESSAGE]
    invalid = not_compared(rows)
    if invalid:
        found["not compared"] = invalid
    for metric in _metrics(config):
        value = metric_value(rows, metric)
        if value is not None:
            found[str(metric)] = round(value, 4)
    for text, limit in zip(config.constraints, config.limits, strict=True):
        found[f"constraint {text}"] = kept(rows, known.get(first.trial.repeats or 0, ()), limit).text
    return found


def not_compared(rows: Sequence[Row]) -> str | None:
    """The levels of a trial whose figures may not be compared, with the reasons; None where all may."""
    texts = [
        f"{row.level.load.label}: {row.level.invalid_reason or 'its output differs from that of the baseline'}"
        for row in rows
        if row.level is not None and not row.comparable
    ]
    return "; ".join(texts) or None


def _metrics(config: SweepConfig) -> list[Metric]:
    """Of the front, and the throughput of every level."""
    ladder = [Metric("output_tokens_per_s", None, load) for load in config.workload.ladder]
    return list(dict.fromkeys([*(objective.metric for objective in config.objectives), *ladder]))


def _line(config: SweepConfig, rows: Sequence[Row], known: Mapping[int, Sequence[Row]]) -> str:
    trial = rows[0].trial.trial
    trials = {**known, trial: rows}
    every = [row for ordinal in sorted(trials) for row in trials[ordinal]]
    return line_of(trial, every, config.score.objective, config.limits, levels=len(config.workload.ladder))


def study_attributes(config: SweepConfig, folder: str, simulated: bool) -> dict[str, str]:
    """Of the study."""
    return {
        "server": "SIMULATED: no GPU is measured" if simulated else "SGLang",
        "model": config.model,
        "score": str(config.score.objective),
        "folder": folder,
        "report": f"{folder}/{REPORT}",
    }


def note_text(config: SweepConfig, attributes: Mapping[str, str], findings: Sequence[str] = ()) -> str:
    """The study's note in optuna-dashboard, Markdown."""
    lines = [
        f"# Sweep {config.study}",
        "",
        *([f"**{attributes['server']}**", ""] if attributes["server"] != "SGLang" else []),
        f"Score: `{attributes['score']}`. Trial 0 is the baseline; repeats of a trial prove the result.",
        "",
        f"- Report: [{attributes['report']}]({Path(attributes['report']).absolute().as_uri()}) "
        f"(`{command_text('report', Path(attributes['folder']))}`)",
        f"- Files: `{attributes['folder']}`",
    ]
    return "\n".join([*lines, *(["", "Findings:", ""] if findings else []), *(f"- {text}" for text in findings)])
