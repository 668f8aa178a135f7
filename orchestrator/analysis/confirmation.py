"""What starting the finalists afresh beside the baseline found. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from orchestrator.analysis.floor import repeated_starts
from orchestrator.analysis.fresh_starts import breaches, refuted
from orchestrator.analysis.noise import NoiseFloor, gap_found, noise_floor, paired_ratio_of
from orchestrator.analysis.objectives import Constraint, Objective
from orchestrator.analysis.rows import Row, by_trial, metric_value
from orchestrator.benchmark.intervals import Interval

#: One pair has no spread of its own: nothing is confirmed by it.
FEWEST_ROUNDS = 2
#: How surely the gap that is told would have been found.
_POWER = 0.9


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A finalist beside the baseline, each started afresh in every round; it keeps the constraints."""

    trial: int
    #: Whole rounds: those with a score of both.
    rounds: int
    #: The baseline's geometric mean over the rounds, and what the finalist gives beside it.
    value: float
    baseline: float
    #: value / baseline with its 95 % interval, nodes' differences taken out.
    ratio: Interval
    #: What the search had measured for it.
    searched: float
    floor: NoiseFloor
    objective: Objective
    #: The constraints that the baseline breaks; None where it keeps them.
    baseline_breaks: str | None = None

    @property
    def verdict(self) -> str:
        """By the score alone `better` or `worse` than the baseline, or a `tie`."""
        if self.ratio.holds(1.0):
            return "tie"
        return "better" if self.objective.better(self.ratio.mean, 1.0) else "worse"

    @property
    def wins(self) -> bool:
        """Whether it goes before the baseline: it is better, or keeps the constraints that the baseline breaks."""
        return self.verdict == "better" or self.baseline_breaks is not None

    @property
    def gap(self) -> float:
        """The relative gap that these rounds would have found nine times in ten."""
        return gap_found(self.ratio, self.floor, _POWER)

    @property
    def flattery(self) -> float:
        """By how much the search had overstated the finalist's value, relative: the best of many is a lucky one."""
        sign = 1 if self.objective.direction == "maximize" else -1
        return sign * (self.searched / self.value - 1)


def confirmations(rows: Iterable[Row], objective: Objective, limits: Sequence[Constraint]) -> list[Confirmation]:
    """What the latest confirmation found, by finalist. Left out are those that are `refuted`, that have fewer than
    two whole rounds, or that are `confounded` with their nodes: of them nothing is confirmed.
    """
    trials = by_trial(rows)
    starts = repeated_starts([row for group in trials.values() for row in group], objective.metric)
    floor = noise_floor(starts, by_node=True)
    out, base_breaks = refuted(trials, limits), breaches(trials, limits).get(0)
    found = []
    for finalist, pairs in _pairs(trials, objective, limits).items():
        searched = metric_value(trials.get(finalist, []), objective.metric)
        if finalist in out or len(pairs) < FEWEST_ROUNDS or floor is None or not searched:
            continue
        ratio = paired_ratio_of(starts, finalist)
        if ratio is None:
            continue
        base = math.exp(fmean(math.log(pair[1]) for pair in pairs))
        found.append(
            Confirmation(
                trial=finalist,
                rounds=len(pairs),
                value=base * ratio.mean,
                baseline=base,
                ratio=ratio,
                searched=searched,
                floor=floor,
                objective=objective,
                baseline_breaks=base_breaks,
            )
        )
    return found


def confounded(rows: Iterable[Row], objective: Objective, limits: Sequence[Constraint]) -> list[int]:
    """Finalists with whole rounds that cannot be told from the nodes they ran on."""
    trials = by_trial(rows)
    starts = repeated_starts([row for group in trials.values() for row in group], objective.metric)
    if len({start.node for start in starts}) < 2 or noise_floor(starts) is None:
        return []
    pairs = _pairs(trials, objective, limits)
    return [of for of, own in pairs.items() if len(own) >= FEWEST_ROUNDS and paired_ratio_of(starts, of) is None]


def _pairs(
    trials: Mapping[int, Sequence[Row]], objective: Objective, limits: Sequence[Constraint]
) -> dict[int, list[tuple[float, float]]]:
    """By finalist of the latest confirmation, the scores of its and of the baseline's start in each whole round."""
    last = max((ordinal for ordinal, group in trials.items() if group[0].trial.role == "candidate"), default=0)
    values: dict[int, dict[int, float]] = {}
    for ordinal, group in trials.items():
        info = group[0].trial
        value = metric_value(group, objective.metric) if group[0].outcome.state == "complete" else None
        # A cost of 0 has no logarithm.
        if info.role != "confirmation" or info.repeats is None or not value or ordinal <= last:
            continue
        if info.repeats == 0 or _limits_told(group, limits):
            values.setdefault(info.repeats, {})[info.repeat] = value
    base = values.pop(0, {})
    return {
        finalist: [(own[number], base[number]) for number in sorted(own) if number in base]
        for finalist, own in sorted(values.items())
    }


def _limits_told(rows: Sequence[Row], limits: Sequence[Constraint]) -> bool:
    """Whether a finalist's start tells of every constraint that it measured the load of."""
    loads = {row.level.load for row in rows if row.level is not None}
    return all(metric_value(rows, limit.metric) is not None for limit in limits if limit.metric.load in loads)
