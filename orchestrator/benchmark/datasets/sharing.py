"""How much of a file's prompts stands at the beginning of another one, where a prefix cache finds it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def share_in_common(texts: Sequence[str], least: int = 0) -> float:
    """Share, 0 to 1, of all characters that a text has in common with the beginning of another one, where those are
    `least` or more. What a prefix cache without end would answer at most.
    """
    ordered = sorted(texts)
    # In this order nobody has a longer beginning in common with a text than one of its neighbours.
    alike = [0, *(_alike(one, other) for one, other in pairwise(ordered)), 0]
    total = sum(map(len, ordered))
    return sum(most for one in pairwise(alike) if (most := max(one)) >= least) / total if total else 0.0


def _alike(one: str, other: str) -> int:
    """Characters that two texts have in common at their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
