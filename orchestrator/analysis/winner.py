"""Which trial is best, and how surely: the search's best, and what starting it afresh made of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from orchestrator.analysis.baseline import baseline_of
from orchestrator.analysis.noise import NoiseFloor, Repeated, Value, noise_floor, paired_ratio_of
from orchestrator.analysis.objectives import Constraint, Metric, Objective
from orchestrator.analysis.rows import Row, by_trial, metric_value
from orchestrator.benchmark.intervals import Interval


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A finalist beside the baseline, each started afresh in every round."""

    trial: int
    rounds: int
    #: Geometric means over the rounds.
    value: float
    baseline: float
    #: value / baseline, with its 95 % interval.
    ratio: Interval
    #: What the search had measured for it.
    searched: float
    floor: NoiseFloor
    objective: Objective

    @property
    def verdict(self) -> str:
        """`better` or `worse` than the baseline, or a `tie`."""
        if self.ratio.holds(1.0):
            return "tie"
        return "better" if self.objective.better(self.ratio.mean, 1.0) else "worse"

    @property
    def flattery(self) -> float:
        """By how much the search had overstated the finalist's value, relative: the best of many is a lucky one."""
        sign = 1 if self.objective.direction == "maximize" else -1
        return sign * (self.searched / self.value - 1)


def feasible_value(rows: Sequence[Row], objective: Objective, limits: Iterable[Constraint]) -> float | None:
    """A trial's score; None where it is not complete, has none, or a constraint is not met."""
    value = metric_value(rows, objective.metric)
    if value is None or rows[0].outcome.state != "complete":
        return None
    return value if all(limit.violation(metric_value(rows, limit.metric)) <= 0 for limit in limits) else None


def best_searched(
    trials: Mapping[int, Sequence[Row]], objective: Objective, limits: Sequence[Constraint]
) -> int | None:
    """The complete, feasible trial with the best score in the search, the baseline's over its starts; the earliest
    where several tie.
    """
    sign = -1 if objective.direction == "maximize" else 1
    scored = {
        ordinal: value
        for ordinal, rows in trials.items()
        if rows[0].trial.repeats is None and (value := feasible_value(rows, objective, limits)) is not None
    }
    base = baseline_of([row for rows in trials.values() for row in rows], objective.metric)
    if 0 in scored and base is not None:
        scored[0] = base.value
    return min(scored, key=lambda ordinal: (sign * scored[ordinal], ordinal), default=None)


def winner(trials: Mapping[int, Sequence[Row]], objective: Objective, limits: Sequence[Constraint]) -> int | None:
    """The best of those confirmed to beat the baseline; the baseline where a confirmation found none that does;
    without a confirmation the search's best.
    """
    found = confirmations([row for rows in trials.values() for row in rows], objective)
    if not found:
        return best_searched(trials, objective, limits)
    sign = -1 if objective.direction == "maximize" else 1
    better = [c for c in found if c.verdict == "better"]
    return min(better, key=lambda c: (sign * c.value, c.trial)).trial if better else 0


def floor_of(rows: Iterable[Row], metric: Metric) -> NoiseFloor | None:
    """What starts of one setting differ by in a metric: from the baseline's repeats, and from confirmations.

    The finalists' own searched starts are left out, since they were chosen for their luck.
    """
    # Of a thousand candidates none counts, and reading them takes longer than all the rest.
    rows = [row for row in rows if row.trial.role != "candidate"]
    starts = []
    for ordinal, group in by_trial(rows).items():
        info = group[0].trial
        value = metric_value(group, metric) if group[0].outcome.state == "complete" else None
        if not value:  # a cost of 0 has no logarithm
            continue
        if info.role == "confirmation" and info.repeats is not None:
            starts.append(Repeated(info.repeats, value, info.repeat, _within_sd(group, metric)))
        elif info.role in ("baseline", "sentinel"):
            setting = ordinal if info.repeats is None else info.repeats
            starts.append(Repeated(setting, value, within_sd=_within_sd(group, metric)))
    return noise_floor(starts)


def _within_sd(rows: Sequence[Row], metric: Metric) -> float:
    """What the level says of its own throughput; 0 where it does not, or of another metric."""
    metrics = next((row.level.metrics for row in rows if row.level and row.level.load == metric.load), None)
    if metrics is None or metric.name != "output_tokens_per_s" or not metrics.output_tokens_per_s:
        return 0.0
    return Value(metrics.output_tokens_per_s, metrics.output_tokens_per_s_half_width).within_sd


def confirmations(rows: Iterable[Row], objective: Objective) -> list[Confirmation]:
    """What the latest confirmation found, by finalist; empty where none has a whole round."""
    trials = by_trial(rows)
    last = max((ordinal for ordinal, group in trials.items() if group[0].trial.role == "candidate"), default=0)
    values: dict[int, dict[int, float]] = {}
    for ordinal, group in trials.items():
        info = group[0].trial
        value = metric_value(group, objective.metric) if group[0].outcome.state == "complete" else None
        if info.role == "confirmation" and info.repeats is not None and value is not None and ordinal > last:
            values.setdefault(info.repeats, {})[info.repeat] = value
    base = values.pop(0, {})
    floor = floor_of([row for group in trials.values() for row in group], objective.metric)
    found = []
    for finalist, own in sorted(values.items()):
        pairs = [(own[number], base[number]) for number in sorted(own) if number in base]
        searched = metric_value(trials.get(finalist, []), objective.metric)
        if not pairs or floor is None or searched is None:
            continue
        found.append(
            Confirmation(
                trial=finalist,
                rounds=len(pairs),
                value=_geometric_mean([value for value, _ in pairs]),
                baseline=_geometric_mean([value for _, value in pairs]),
                ratio=paired_ratio_of(pairs, floor),
                searched=searched,
                floor=floor,
                objective=objective,
            )
        )
    return found


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(fmean(map(math.log, values)))
