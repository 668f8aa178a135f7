"""The points that no trial has had yet, for when a sampler keeps proposing those that one has had. Pure."""

from __future__ import annotations

import itertools
import logging
import math
import random
from collections.abc import Container
from functools import cached_property
from typing import Any

from orchestrator.search.candidate import Configurations
from orchestrator.search.space import Knob

logger = logging.getLogger(__name__)

#: A space of more points than this is not enumerated but drawn from.
MAX_POINTS = 100_000
#: Uniform draws before a space that is too large to enumerate counts as exhausted.
MAX_UNIFORM_DRAWS = 5_000


class Remaining:
    """Picks a configuration that can start and that is not taken yet."""

    def __init__(self, configurations: Configurations) -> None:
        self._configurations = configurations

    @cached_property
    def _first_point(self) -> dict[str, int] | None:
        """By identity, the position of its first point; None for a space that is not enumerated."""
        space = self._configurations.space
        if not space.enumerable or next(itertools.islice(space.points(), MAX_POINTS, None), None) is not None:
            return None
        first: dict[str, int] = {}
        for position, point in enumerate(space.points()):
            identity = self._configurations.identity(point)
            if identity is not None:
                first.setdefault(identity, position)
        return first

    def pick(self, rng: random.Random, taken: Container[str]) -> dict[str, Any] | None:
        """Parameters of a configuration whose identity is not taken, each equally likely; None: there is none.

        A space too large to enumerate is drawn from instead, and said to be exhausted when thousands of draws
        brought nothing new.
        """
        if self._first_point is None:
            return self._drawn(rng, taken)
        rest = [position for identity, position in self._first_point.items() if identity not in taken]
        if not rest:
            return None
        position = rng.choice(rest)
        return next(itertools.islice(self._configurations.space.points(), position, None))

    def _drawn(self, rng: random.Random, taken: Container[str]) -> dict[str, Any] | None:
        for _ in range(MAX_UNIFORM_DRAWS):
            point = self._configurations.space.draw(lambda knob: _uniform(knob, rng))
            identity = self._configurations.identity(point)
            if identity is not None and identity not in taken:
                return point
        logger.warning(
            "%d uniform draws were all configurations that ran or are refused: the space counts as exhausted",
            MAX_UNIFORM_DRAWS,
        )
        return None


def _uniform(knob: Knob, rng: random.Random) -> Any:
    if knob.choices is not None:
        return rng.choice(knob.choices)
    low, high = knob.parameter.float_range or (0.0, 0.0)
    if knob.parameter.log:
        return min(max(math.exp(rng.uniform(math.log(low), math.log(high))), low), high)
    return rng.uniform(low, high)
