"""Mean and exact percentiles of measured values. Pure."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Sequence

from orchestrator.benchmark.records import Distribution


def distribution(values: Iterable[float]) -> Distribution | None:
    """Mean and percentiles by linear interpolation between the closest ranks; None for no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Distribution(
        math.fsum(ordered) / len(ordered),
        _percentile(ordered, 50),
        _percentile(ordered, 90),
        _percentile(ordered, 99),
    )


def weighted_distribution(pairs: Iterable[tuple[float, int]]) -> Distribution | None:
    """As `distribution` of each value so many times over, without writing it out; counts are 1 or more."""
    ordered = sorted(pairs)
    if not ordered:
        return None
    values = [value for value, _ in ordered]
    until = list(itertools.accumulate(count for _, count in ordered))
    total = until[-1]

    def percentile(percent: float) -> float:
        rank = (total - 1) * percent / 100
        low = math.floor(rank)
        at_low, at_high = (values[bisect.bisect_right(until, at)] for at in (low, min(low + 1, total - 1)))
        return at_low + (at_high - at_low) * (rank - low)

    mean = math.fsum(value * count for value, count in ordered) / total
    return Distribution(mean, percentile(50), percentile(90), percentile(99))


def _percentile(ordered: Sequence[float], percent: float) -> float:
    rank = (len(ordered) - 1) * percent / 100
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)
