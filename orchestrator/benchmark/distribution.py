"""Mean and exact percentiles of measured values. Pure. By numpy: a level at high load has a million gaps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from orchestrator.benchmark.records import Distribution

Values = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


def distribution(values: Iterable[float] | Values) -> Distribution | None:
    """Mean and percentiles by linear interpolation between the closest ranks; None for no values."""
    ordered = np.sort(values if isinstance(values, np.ndarray) else np.fromiter(values, np.float64))
    if not ordered.size:
        return None
    return _distribution(float(ordered.mean()), ordered.size, lambda rank: float(ordered[rank]))


def weighted_distribution(values: Values, counts: Counts) -> Distribution | None:
    """As `distribution` of each value so many times over, without writing it out; counts are 1 or more."""
    if not values.size:
        return None
    order = np.argsort(values, kind="stable")
    ordered, until = values[order], np.cumsum(counts[order])
    total = int(until[-1])
    mean = float(np.average(ordered, weights=counts[order]))
    return _distribution(mean, total, lambda rank: float(ordered[np.searchsorted(until, rank, side="right")]))


def _distribution(mean: float, count: int, at: Callable[[int], float]) -> Distribution:
    """`at` gives the value of a rank, from 0."""

    def percentile(percent: float) -> float:
        rank = (count - 1) * percent / 100
        low = math.floor(rank)
        at_low, at_high = at(low), at(min(low + 1, count - 1))
        return at_low + (at_high - at_low) * (rank - low)

    return Distribution(mean, percentile(50), percentile(90), percentile(99))
