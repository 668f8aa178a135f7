"""What the baseline gives at a load: one value over its starts, whoever asks. Pure.

It is the geometric mean over its starts in the search: the first, A/A and sentinels. Its starts in a confirmation are
not among them. They belong to their rounds: finalists are judged beside them, pair by pair
(`analysis.confirmation`), and what the starts of a round have in common is no part of the noise floor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.analysis.noise import Value, geometric_mean
from orchestrator.analysis.objectives import Metric
from orchestrator.analysis.rows import Row

#: Roles of the baseline's starts in the search.
BASELINE = ("baseline", "sentinel")


def baseline_of(rows: Iterable[Row], metric: Metric) -> Value | None:
    """The baseline's value, which says of how many starts it is; None where its first one has none."""
    known = [row for row in rows if row.trial.role in BASELINE]
    found = [(row, value) for row in known if (value := value_at(row, metric)) is not None]
    # A start of 0 has no ratio to anything.
    values = [value for _, value in found if value.value > 0] or [value for _, value in found]
    return mean_of(values) if any(row.trial.role == "baseline" for row, _ in found) else None


def value_at(row: Row, metric: Metric) -> Value | None:
    """What the row says of the metric; None at another load, and where it may not be compared."""
    if row.level is None or row.level.load != metric.load or row.outcome.state != "complete" or not row.comparable:
        return None
    value = row.figure(metric)
    if not metric.valid(value):
        return None
    # Other metrics have no interval of their own.
    own = metric.name == "output_tokens_per_s"
    return Value(value, row.level.metrics.output_tokens_per_s_half_width if own else None)


def mean_of(starts: Sequence[Value]) -> Value:
    """Of several starts of one setting: their geometric mean, as restless as the most restless."""
    widths = [start.half_width for start in starts if start.half_width is not None]
    return Value(geometric_mean([start.value for start in starts]), max(widths, default=None), len(starts))
