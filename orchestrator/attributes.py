"""A trial and a study in Optuna's user attributes, in words for people who look with optuna-dashboard. Pure.

The search itself reads none of them; what it resumes from is `search.trials`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.analysis.finding import settings_text
from orchestrator.analysis.gains import Gains
from orchestrator.analysis.objectives import Constraint, Metric
from orchestrator.analysis.rows import Row, metric_value
from orchestrator.config import SweepConfig
from orchestrator.report.summary import fixed_settings

#: What `orchestrator.report` writes into the study's folder.
REPORT = "report.html"
_MESSAGE = 400


def trial_attributes(config: SweepConfig, rows: Sequence[Row], starts: Sequence[Row]) -> dict[str, str | float]:
    """Of a trial that has its end: settings, figures by metric, constraints, failure, and where its files are.

    `starts` are the rows of the baseline's starts so far: an ended trial's attributes cannot be written again, so the
    gain is that of then, and says so. A figure that is missing is left out. Files are told from the study's folder.
    """
    first = rows[0]
    found: dict[str, str | float] = {
        "server": f"SIMULATED, profile {first.trial.profile}" if first.trial.simulated else "SGLang",
        "settings": settings_text(first, fixed_settings(config)),
        "trial folder": f"levels/{first.trial.trial:06d}",
        "trial file": f"trials/{first.trial.trial:06d}.arrow",
    }
    text = _finding(config, rows, starts)
    if text:
        found["finding"] = text
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
        found[f"constraint {text}"] = _kept(rows, limit)
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


def _kept(rows: Sequence[Row], limit: Constraint) -> str:
    value = metric_value(rows, limit.metric)
    if value is None:
        return "violated: not measured"
    return f"{'violated' if limit.violation(value) > 0 else 'met'}: {value:,.4g}"


def _finding(config: SweepConfig, rows: Sequence[Row], starts: Sequence[Row]) -> str | None:
    """Failed, not allowed, or how much better than the baseline; a dashboard takes no notice of the constraints."""
    outcome, metric = rows[0].outcome, config.score.objective.metric
    if outcome.state != "complete":
        return f"{outcome.state}: {outcome.failure_kind or 'stopped'}"
    value, gain = metric_value(rows, metric), Gains(starts, config.score.objective).trial_gain(rows)
    parts = []
    if rows[0].trial.repeats is None:
        for limit in config.limits:
            at = metric_value(rows, limit.metric)
            if limit.violation(at) > 0:
                parts.append(f"violates {limit} ({'not measured' if at is None else format(at, ',.4g')})")
    if rows[0].trial.trial == 0:
        parts.append("the baseline")
    elif rows[0].trial.repeats is not None:
        of = "the baseline" if rows[0].trial.repeats == 0 else f"trial {rows[0].trial.repeats}"
        parts.append(f"{of} started afresh" + (f": {metric} {value:,.1f}" if value else ""))
    elif gain is not None:
        of = f"{gain.base.starts} start{'s' if gain.base.starts > 1 else ''} of the baseline so far"
        tie = "; a tie" if gain.verdict == "tie" else ""
        parts.append(f"{100 * (gain.ratio.mean - 1):+.1f} % by {metric} on {of}{tie}; the journal has what came later")
    elif value:
        parts.append(f"{metric} {value:,.1f}")
    return "; ".join(parts) or None


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
        f"- Report: [{attributes['report']}](file://{attributes['report']}) "
        f"(`python -m orchestrator.report {attributes['folder']}`)",
        f"- Files: `{attributes['folder']}`",
    ]
    return "\n".join([*lines, *(["", "Findings:", ""] if findings else []), *(f"- {text}" for text in findings)])
