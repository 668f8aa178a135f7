"""How far starts of one and the same setting lie apart, and what differences that leaves to be told. Pure.

Everything is reckoned on logarithms, so that a spread is relative and the same at 30 and at 3,000 tok/s. What is not
above 0, such as a queue time of 0, has no logarithm and no ratio: of it nothing is told here, and nothing is raised.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

import numpy as np

from orchestrator.benchmark.intervals import Interval, student_t

#: Degrees of freedom of a level's own half-width: batch means of eight batches at least, mostly of more.
_WITHIN_FREEDOM = 20
_NORMAL_95 = NormalDist().inv_cdf(0.975)
#: The largest logarithm that is turned back into a number: beyond, a float has no more room.
_MOST = 700.0


@dataclass(frozen=True, slots=True)
class Repeated:
    """One start of a setting that was started more than once; those of one round ran one after the other."""

    setting: int
    value: float
    #: None for a start outside of any round.
    round: int | None = None
    #: Relative standard deviation that the level has of itself; 0 where it is not known.
    within_sd: float = 0.0


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """The standard deviation of the logarithm of one start's value: what starts differ by and what a level's own
    unrest adds.
    """

    sd: float
    #: How many independent comparisons it rests on.
    freedom: int
    #: Of `sd`, what the levels say of themselves: the root mean square of their own relative standard deviations.
    within_sd: float = 0.0

    @property
    def smallest_gain(self) -> float:
        """The relative difference of two single starts from which on one is told, at 95 %."""
        return math.expm1(min(_MOST, student_t(self.freedom) * self.sd * math.sqrt(2)))


@dataclass(frozen=True, slots=True)
class Value:
    """A measured value and half of its 95 % interval within its start; None where that is not known.

    Of several starts of one setting: their geometric mean and the widest of their half-widths.
    """

    value: float
    half_width: float | None = None
    starts: int = 1

    @property
    def within_sd(self) -> float:
        """Standard deviation of the logarithm, of the start's own unrest alone; 0 where it is not known or none."""
        return (self.half_width or 0.0) / (_NORMAL_95 * self.value) if self.value > 0 else 0.0


def log_ratio(value: float, base: float) -> float | None:
    """log(value / base); None where one of them is not above 0, or is no finite number: they have no ratio."""
    return math.log(value) - math.log(base) if 0 < value < math.inf and 0 < base < math.inf else None


def geometric_mean(values: Sequence[float]) -> float:
    """0 where one of them is not above 0, as in the limit. Raises ValueError for none."""
    if not values:
        raise ValueError("no values, no mean")
    return values[0] if len(values) == 1 else math.exp(fmean(map(math.log, values))) if min(values) > 0 else 0.0


def noise_floor(starts: Iterable[Repeated]) -> NoiseFloor | None:
    """From repeated starts; None where no setting was repeated. A start whose value is not above 0 is left out.

    The residuals of log value = setting + round (least squares, two-way layout without interaction; Montgomery,
    Design and Analysis of Experiments, 4.1, randomized complete blocks): what all starts of a round have in common,
    such as a machine that is slower for an hour, is not noise between them.
    """
    kept = [start for start in starts if start.value > 0]
    settings = {s: i for i, s in enumerate(dict.fromkeys(start.setting for start in kept))}
    rounds = {r: i for i, r in enumerate(dict.fromkeys(start.round for start in kept if start.round is not None))}
    design = np.zeros((len(kept), len(settings) + len(rounds)))
    for row, start in enumerate(kept):
        design[row, settings[start.setting]] = 1.0
        if start.round is not None:
            design[row, len(settings) + rounds[start.round]] = 1.0
    freedom = len(kept) - int(np.linalg.matrix_rank(design)) if kept else 0
    if freedom < 1:
        return None
    logs = np.log([start.value for start in kept])
    fitted = design @ np.linalg.lstsq(design, logs, rcond=None)[0]
    within_sd = math.sqrt(fmean(start.within_sd**2 for start in kept))
    return NoiseFloor(math.sqrt(float(np.sum((logs - fitted) ** 2)) / freedom), freedom, within_sd)


def ratio_of(value: Value, base: Value, floor: NoiseFloor | None) -> Interval | None:
    """value / base with its 95 % interval; None where they have no ratio, see `log_ratio`.

    The variance of a start is the floor's, and what its level is more restless by than those that the floor was
    measured with. Without a floor it is only what the levels themselves show. Satterthwaite's degrees of freedom.
    """
    centre = log_ratio(value.value, base.value)
    if centre is None:
        return None
    shared, usual = (0.0, 0.0) if floor is None else (floor.sd**2, floor.within_sd**2)
    from_floor = shared * (1 / value.starts + 1 / base.starts)
    from_levels = sum(max(0.0, side.within_sd**2 - usual) / side.starts for side in (value, base))
    variance = from_floor + from_levels
    if variance <= 0:
        return _interval(centre, 0.0)
    doubt = from_levels**2 / _WITHIN_FREEDOM + (from_floor**2 / floor.freedom if floor else 0.0)
    half = student_t(max(1, math.floor(variance**2 / doubt))) * math.sqrt(variance)
    return _interval(centre, half)


def _interval(centre: float, half: float) -> Interval:
    """From logarithms."""
    mean, low, high = (math.exp(min(_MOST, log)) for log in (centre, centre - half, centre + half))
    return Interval(mean, low, high)


def paired_ratio_of(pairs: Sequence[tuple[float, float]], floor: NoiseFloor) -> Interval:
    """Of (value, base) measured in rounds, one start each: the geometric mean of value / base and its 95 % interval.

    `floor` is the one that these rounds are part of. A pair that has no ratio (see `log_ratio`) is left out. Raises
    ValueError where no pair has one.
    """
    logs = [log for value, base in pairs if (log := log_ratio(value, base)) is not None]
    if not logs:
        raise ValueError("no pairs, no ratio")
    return _interval(fmean(logs), student_t(floor.freedom) * floor.sd * math.sqrt(2 / len(logs)))


def rounds_needed(floor: NoiseFloor, gap: float, power: float) -> int:
    """Rounds after which a relative gap of `gap` is found with this probability at 95 % confidence.

    The usual n = 2 (t + z)^2 sd^2 / delta^2 (Montgomery, 2.4), with the floor's degrees of freedom.
    """
    reach = student_t(floor.freedom) + NormalDist().inv_cdf(power)
    return max(1, math.ceil(2 * (reach * floor.sd / math.log1p(gap)) ** 2))


def gap_found(floor: NoiseFloor, rounds: int, power: float) -> float:
    """The relative gap that so many rounds find with this probability: `rounds_needed` the other way round."""
    reach = student_t(floor.freedom) + NormalDist().inv_cdf(power)
    return math.expm1(min(_MOST, reach * floor.sd * math.sqrt(2 / rounds)))
