"""Repeated starts by setting, round and node: what each of the three makes of a value, and what is left over. Pure.

Least squares of log(value) = setting + round + node, without interaction (Montgomery, Design and Analysis of
Experiments, 4.1, randomized complete blocks): what all starts of a round or of a node have in common, such as a
machine that is slower for an hour, is not noise between them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: A combination of effects that the starts do not tell has a remainder beyond this.
_NOT_TOLD = 1e-8


@dataclass(frozen=True, slots=True)
class Repeated:
    """One start of a setting that was started more than once; those of one round ran one after the other."""

    setting: int
    value: float
    #: None for a start outside of any round.
    round: int | None = None
    #: Relative standard deviation that the level has of itself; 0 where it is not known.
    within_sd: float = 0.0
    #: None where it is not known: as if all such starts ran on one.
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Effect:
    """A difference of logarithms; its standard error is `scale` times the standard deviation of one start."""

    mean: float
    scale: float


class Layout:
    """The starts, with the effects taken off; `by_node`: those of nodes, too."""

    def __init__(self, starts: Sequence[Repeated], *, by_node: bool) -> None:
        self._starts = list(starts)
        keys: dict[tuple[str, object], int] = {}
        for kind, values in (
            ("setting", [start.setting for start in self._starts]),
            ("round", [start.round for start in self._starts if start.round is not None]),
            ("node", [start.node for start in self._starts] if by_node else []),
        ):
            for value in dict.fromkeys(values):
                keys[kind, value] = len(keys)
        self._keys = keys
        design = np.zeros((len(self._starts), len(keys)))
        for row, start in enumerate(self._starts):
            for key in (("setting", start.setting), ("round", start.round), ("node", start.node)):
                if key in keys:
                    design[row, keys[key]] = 1.0
        logs = np.log([start.value for start in self._starts])
        self._inverse = np.linalg.pinv(design)
        self._design = design
        self._effects = self._inverse @ logs
        self._left = logs - design @ self._effects
        rank = int(np.linalg.matrix_rank(design)) if self._starts else 0
        #: Independent comparisons that are left.
        self.freedom = len(self._starts) - rank

    @property
    def sd(self) -> float:
        """Of the logarithm of one start's value. Raises ValueError where nothing is left to tell it by."""
        if self.freedom < 1:
            raise ValueError("no setting was started twice: nothing tells what starts differ by")
        return math.sqrt(float(np.sum(self._left**2)) / self.freedom)

    def between_settings(self, one: int, other: int) -> Effect | None:
        """log(one / other); None where the starts do not tell it apart from rounds and nodes."""
        return self._difference(("setting", one), ("setting", other))

    def between_nodes(self, one: str | None, other: str | None) -> Effect | None:
        """The same of two nodes."""
        return self._difference(("node", one), ("node", other))

    @property
    def nodes(self) -> list[str | None]:
        """Of which the starts are, in the order of their first."""
        return list(dict.fromkeys(start.node for start in self._starts))

    def left_between(self, one: Repeated, other: Repeated) -> float:
        """What two starts differ by beyond the effects."""
        return float(self._left[self._starts.index(one)] - self._left[self._starts.index(other)])

    def _difference(self, one: tuple[str, object], other: tuple[str, object]) -> Effect | None:
        if one not in self._keys or other not in self._keys:
            return None
        wanted = np.zeros(len(self._keys))
        wanted[self._keys[one]] += 1.0
        wanted[self._keys[other]] -= 1.0
        weights = wanted @ self._inverse
        if float(np.max(np.abs(weights @ self._design - wanted))) > _NOT_TOLD:
            return None
        return Effect(float(wanted @ self._effects), math.sqrt(float(np.sum(weights**2))))
