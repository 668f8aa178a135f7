"""How many tokens a request gains from one verify step: drawn from the drafter's per-position acceptance."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from launchers.simulated.profile import Drafter


@dataclass(frozen=True)
class DraftTree:
    """The shape of one drafted proposal: SGLang's three speculative numbers."""

    steps: int
    topk: int
    draft_tokens: int

    @property
    def depth(self) -> int:
        """Longest path of drafted tokens; the root is the last accepted token and takes one place."""
        return max(0, min(self.steps, self.draft_tokens - 1))

    @property
    def width(self) -> float:
        """Mean number of drafted candidates per position of the path."""
        return min(float(self.topk), (self.draft_tokens - 1) / self.depth) if self.depth else 0.0


def position_chances(drafter: Drafter, tree: DraftTree) -> tuple[float, ...]:
    """Chance that position i is accepted given that all before it were, for each i of the tree's depth.

    The first candidate of a position hits with the drafter's chance. Further ones are worth less and less:
    each doubling of the width catches `sibling_catch` of the misses, p' = 1 - (1 - p)(1 - catch)^log2(width).
    """
    missed = (1.0 - drafter.sibling_catch) ** math.log2(max(1.0, tree.width))
    return tuple(1.0 - (1.0 - drafter.chance(i)) * missed for i in range(tree.depth))


def expected_accept_length(chances: Sequence[float]) -> float:
    """Mean tokens per verify step, bonus token included: 1 + p1 + p1 p2 + ..."""
    total, reached = 1.0, 1.0
    for chance in chances:
        reached *= chance
        total += reached
    return total


def draw_accept_tokens(chances: Sequence[float], rng: random.Random) -> int:
    """Tokens gained in one verify step, 1 (the bonus alone) to len(chances) + 1."""
    for position, chance in enumerate(chances):
        if rng.random() >= chance:
            return position + 1
    return len(chances) + 1
