"""Which points no other point dominates."""

from __future__ import annotations

import math
from collections.abc import Sequence

from orchestrator.analysis.objectives import Direction

_Key = tuple[float, ...]


def non_dominated(points: Sequence[Sequence[float]], directions: Sequence[Direction]) -> list[int]:
    """Indices, ascending, of the points that no other point dominates.

    A point dominates another when it is at least as good in every objective and better in one; equal points
    do not dominate each other and stay together. n log n for up to two objectives, n² beyond.

    Raises ValueError for NaN or infinity, a point of another length, and no objective at all.
    """
    if not directions:
        raise ValueError("a front needs at least one objective")
    signs = [1.0 if direction == "minimize" else -1.0 for direction in directions]
    keys: list[_Key] = []
    for index, point in enumerate(points):
        if len(point) != len(signs):
            raise ValueError(f"point {index} has {len(point)} values for {len(signs)} objectives")
        if not all(map(math.isfinite, point)):
            raise ValueError(f"point {index} has a value that is no finite number: {list(point)}")
        keys.append(tuple(sign * float(value) for sign, value in zip(signs, point, strict=True)))
    # Sorted, a point can only be dominated by one that comes before it; equal points are one candidate.
    candidates = sorted(set(keys))
    front = _sweep(candidates) if len(signs) <= 2 else _pairwise(candidates)
    return [index for index, key in enumerate(keys) if key in front]


def _sweep(candidates: list[_Key]) -> set[_Key]:
    """Front of sorted, distinct, minimized points of one or two objectives."""
    front: set[_Key] = set()
    best = math.inf
    for key in candidates:
        if len(key) == 1:
            return {key}
        # The first objective is no better than any before: only a strictly better second one saves the point.
        if key[1] < best:
            best = key[1]
            front.add(key)
    return front


def _pairwise(candidates: list[_Key]) -> set[_Key]:
    """Front of sorted, distinct, minimized points of any number of objectives."""
    front: list[_Key] = []
    for key in candidates:
        if not any(all(a <= b for a, b in zip(kept, key, strict=True)) for kept in front):
            front.append(key)
    return set(front)
