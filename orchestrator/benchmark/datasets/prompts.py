"""What every dataset gives: prompts by level and position, the same for the same seed. Pure."""

from __future__ import annotations

import itertools
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import Any

from orchestrator.datasets import Bell, Lengths

#: What tells the levels of a study apart, each with prompts of its own.
Key = int | str
_DRAWS = 100
_NORMAL = NormalDist()
#: A share of draws inside the limits, below which so many lengths are drawn to know their mean.
_RARE, _SAMPLE = 0.05, 2000


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt, in exactly one form: token ids, text, or the messages of a chat."""

    #: Output tokens to ask for, at most.
    output_tokens: int
    ids: Sequence[int] | None = None
    text: str | None = None
    messages: Sequence[Mapping[str, Any]] | None = None


class Prompts(ABC):
    """A dataset ready to be asked for prompts. Picklable: it is made once, and travels to the nodes."""

    #: Changes with whatever the prompts are made of beside the settings: files, corpus, tokenizer. None: nothing else.
    digest: str | None = None
    #: How many prompts of a level differ. None: no end.
    unique: int | None = None
    #: Whether they come again after that; else the level has no more.
    reuse: bool = False
    #: Share of each prompt, about, that stands at the beginning of others too: what the workload leaves a prefix cache.
    shared: float = 0.0
    #: What a person should know of them, one line each.
    warnings: tuple[str, ...] = ()

    @abstractmethod
    def prompt(self, key: Key, index: int) -> Prompt:
        """Prompt `index`, from 0, of the level `key`."""

    def level(self, key: Key) -> Iterator[Prompt]:
        """All prompts of the level `key`, none twice unless `reuse`; each call and each process gives the same."""
        indices = itertools.count() if self.unique is None or self.reuse else range(self.unique)
        return (self.prompt(key, index) for index in indices)


class Order:
    """A shuffle of range(size), computed place by place: `seed` decides which."""

    def __init__(self, seed: str, size: int) -> None:
        rng = random.Random(seed)
        self._size = size
        self._offset = rng.randrange(size)
        step = rng.randrange(1, size) if size > 1 else 1
        while math.gcd(step, size) != 1:
            step += 1
        self._step = step

    def __getitem__(self, place: int) -> int:
        return (self._offset + place * self._step) % self._size


def draw(lengths: Lengths, seed: str) -> int:
    """One length in tokens. `seed` names the request and what the length is of."""
    if lengths.fixed is not None:
        return lengths.fixed
    rng = random.Random(seed)
    if lengths.uniform is not None:
        return rng.randint(*lengths.uniform)
    if lengths.normal is not None:
        bell = lengths.normal
        return _within(bell, lambda: rng.normalvariate(bell.mean, bell.std))
    assert lengths.lognormal is not None, "checked when the file was read"
    center, spread = _logarithm(lengths.lognormal)
    return _within(lengths.lognormal, lambda: rng.lognormvariate(center, spread))


def mean_of_bell(lengths: Lengths) -> float | None:
    """The mean in tokens of what `draw` gives of a bell curve, what is drawn again counted; None for another kind.

    That of a normal, or lognormal, distribution cut off at [min, max], to which lengths are rounded: Johnson, Kotz and
    Balakrishnan, Continuous Univariate Distributions, vol. 1, 13.10 and 14.
    """
    bell = lengths.normal or lengths.lognormal
    if bell is None or not bell.std:
        return None if bell is None else bell.mean
    center, spread = (bell.mean, bell.std) if lengths.normal is not None else _logarithm(bell)
    ends = (bell.min - 0.5, math.inf if bell.max is None else bell.max + 0.5)
    a, b = (((end if lengths.normal is not None else math.log(end)) - center) / spread for end in ends)
    inside = _NORMAL.cdf(b) - _NORMAL.cdf(a)
    if inside < _RARE:
        # Many a request runs out of draws, of which the formulas know nothing.
        return fmean(draw(lengths, str(n)) for n in range(_SAMPLE))
    if lengths.normal is not None:
        return center + spread * (_NORMAL.pdf(a) - _NORMAL.pdf(b)) / inside
    return bell.mean * (_NORMAL.cdf(b - spread) - _NORMAL.cdf(a - spread)) / inside


def _logarithm(bell: Bell) -> tuple[float, float]:
    """Mean and standard deviation of the logarithm, from those of the lengths themselves."""
    variance = math.log1p((bell.std / bell.mean) ** 2)
    return math.log(bell.mean) - variance / 2, math.sqrt(variance)


def _within(bell: Bell, sample: Callable[[], float]) -> int:
    """A sample inside the limits: drawn again while it is outside, since cutting would heap lengths at the ends."""
    high = math.inf if bell.max is None else bell.max
    length = bell.min
    for _ in range(_DRAWS):
        length = round(sample())
        if bell.min <= length <= high:
            return length
    return bell.min if bell.max is None else min(max(length, bell.min), bell.max)
