"""The starts of a study that were made to know what starts differ by, out of its rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.analysis.layout import Repeated
from orchestrator.analysis.noise import NoiseFloor, Value, noise_floor
from orchestrator.analysis.objectives import Metric
from orchestrator.analysis.rows import Row, StartInfo, by_trial, metric_value


def floor_of(rows: Iterable[Row], metric: Metric, *, by_node: bool = False) -> NoiseFloor | None:
    """What starts of one setting differ by in a metric: from the baseline's repeats, and from confirmations.

    `by_node`: on one and the same node. Otherwise, as single starts are compared, wherever they ran.
    """
    return noise_floor(repeated_starts(rows, metric), by_node=by_node)


def repeated_starts(rows: Iterable[Row], metric: Metric) -> list[Repeated]:
    """The complete starts of the baseline and of confirmations that have a value.

    The finalists' own searched starts are left out, since they were chosen for their luck.
    """
    # Of a thousand candidates none counts, and reading them takes longer than all the rest.
    rows = [row for row in rows if row.trial.role != "candidate"]
    starts = []
    for ordinal, group in by_trial(rows).items():
        info = group[0].trial
        value = metric_value(group, metric) if group[0].outcome.state == "complete" else None
        if not value:  # a cost of 0 has no logarithm
            continue
        setting = ordinal if info.repeats is None else info.repeats
        number = info.repeat if info.role == "confirmation" else None
        node = next(node_of(row.start) for row in group if row.level and row.level.load == metric.load)
        starts.append(Repeated(setting, value, number, _within_sd(group, metric), node))
    return starts


def node_of(start: StartInfo) -> str | None:
    """The node's name as it is told: its host, and the beginning of Ray's id, since nodes may share a host."""
    if start.node_id is None:
        return start.host
    return f"{start.host or 'a node'}/{start.node_id[:6]}"


def _within_sd(rows: Sequence[Row], metric: Metric) -> float:
    """What the level says of its own throughput; 0 where it does not, or of another metric."""
    metrics = next((row.level.metrics for row in rows if row.level and row.level.load == metric.load), None)
    if metrics is None or metric.name != "output_tokens_per_s" or not metrics.output_tokens_per_s:
        return 0.0
    return Value(metrics.output_tokens_per_s, metrics.output_tokens_per_s_half_width).within_sd
