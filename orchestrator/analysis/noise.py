"""How far starts of one and the same setting lie apart, and what differences that leaves to be told. Pure.

Everything is reckoned on logarithms, so that a spread is relative and the same at 30 and at 3,000 tok/s. What is not
above 0, such as a queue time of 0, has no logarithm and no ratio: of it nothing is told here, and nothing is raised.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev

from orchestrator.analysis.layout import Layout, Repeated
from orchestrator.benchmark.intervals import Interval, largest_t, student_t

#: Degrees of freedom of a level's own half-width: batch means of eight batches at least, mostly of more.
_WITHIN_FREEDOM = 20
_NORMAL_95 = NormalDist().inv_cdf(0.975)
#: The largest logarithm that is turned back into a number: beyond, a float has no more room.
_MOST = 700.0


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


def noise_floor(starts: Iterable[Repeated], *, by_node: bool = False) -> NoiseFloor | None:
    """From repeated starts, see `analysis.layout`; None where no setting was repeated. A start whose value is not above
    0 is left out.

    `by_node`: what starts on one and the same node differ by; otherwise what nodes differ by is in it.
    """
    kept = [start for start in starts if start.value > 0]
    layout = Layout(kept, by_node=by_node)
    if layout.freedom < 1:
        return None
    return NoiseFloor(layout.sd, layout.freedom, math.sqrt(fmean(start.within_sd**2 for start in kept)))


def ratio_of(value: Value, base: Value, floor: NoiseFloor | None, of: int = 1) -> Interval | None:
    """value / base with its 95 % interval; None where they have no ratio, see `log_ratio`.

    The variance of a start is the floor's, and what its level is more restless by than those that the floor was
    measured with. Without a floor it is only what the levels themselves show. Satterthwaite's degrees of freedom, which
    a restless level adds to; so the interval is never narrower than by the floor alone.
    `of`: among how many such ratios this one was picked; all of them hold the truth at once, see `largest_t`.
    """
    centre = log_ratio(value.value, base.value)
    if centre is None:
        return None
    shared, usual = (0.0, 0.0) if floor is None else (floor.sd**2, floor.within_sd**2)
    from_floor = shared * (1 / value.starts + 1 / base.starts)
    from_levels = sum(max(0.0, side.within_sd**2 - usual) / side.starts for side in (value, base))
    variance = from_floor + from_levels
    if variance <= 0:
        return around(centre, 0.0)
    doubt = from_levels**2 / _WITHIN_FREEDOM + (from_floor**2 / floor.freedom if floor else 0.0)
    half = largest_t(max(1, math.floor(variance**2 / doubt)), of) * math.sqrt(variance)
    by_floor = largest_t(floor.freedom, of) * math.sqrt(from_floor) if floor else 0.0
    return around(centre, max(half, by_floor))


def around(centre: float, half: float) -> Interval:
    """The interval of a ratio whose logarithm is `centre` ± `half`; no number is too large for it."""
    mean, low, high = (math.exp(max(-_MOST, min(_MOST, log))) for log in (centre, centre - half, centre + half))
    return Interval(mean, low, high)


def paired_ratio_of(starts: Sequence[Repeated], setting: int, base: int = 0) -> Interval | None:
    """setting / base over the rounds that hold a start of both, with its 95 % interval.

    Nodes' differences are taken out. The wider of two intervals: with the standard deviation that all starts share
    and its f degrees of freedom, and with that of the n pairs themselves, should this setting's starts vary more.
    There t has n degrees of freedom, not n - 1: the wider of two is cautious already, and with n two pairs would tell
    nothing; simulated (tests/orchestrator/analysis/test_aa_study.py), 5 ± 3 % of equal settings are called different.
    Starts whose value is not above 0 are left out.
    None where no round is whole, no setting was repeated, or the starts do not tell settings and nodes apart.
    """
    starts = [start for start in starts if start.value > 0]
    by_round: dict[int, dict[int, Repeated]] = {}
    for start in starts:
        if start.round is not None:
            by_round.setdefault(start.round, {})[start.setting] = start
    pairs = [(of[setting], of[base]) for of in by_round.values() if setting in of and base in of]
    layout = Layout(starts, by_node=True)
    effect = layout.between_settings(setting, base) if pairs and layout.freedom > 0 else None
    if effect is None:
        return None
    half = student_t(layout.freedom) * layout.sd * effect.scale
    count = len(pairs)
    if count > 1:
        own = stdev([layout.left_between(one, other) for one, other in pairs])
        half = max(half, student_t(count) * own / math.sqrt(count))
    return around(effect.mean, half)


def rounds_needed(floor: NoiseFloor, gap: float, power: float) -> int:
    """Rounds after which a relative gap of `gap` is found with this probability at 95 % confidence.

    The usual n = 2 (t + z)^2 sd^2 / delta^2 (Montgomery, 2.4), with the floor's degrees of freedom.
    """
    reach = student_t(floor.freedom) + NormalDist().inv_cdf(power)
    return max(1, math.ceil(2 * (reach * floor.sd / math.log1p(gap)) ** 2))


def gap_found(found: Interval, floor: NoiseFloor, power: float) -> float:
    """The relative gap that a comparison with this interval finds with this probability: for one that rests on the
    floor alone `rounds_needed` the other way round.
    """
    half = math.log(found.high / found.mean)
    return math.expm1(min(_MOST, half * (1 + NormalDist().inv_cdf(power) / student_t(floor.freedom))))
