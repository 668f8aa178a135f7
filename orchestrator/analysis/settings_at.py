"""What each setting gives at each load of the ladder, by its start in the search, and who leads there. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from orchestrator.analysis.baseline import value_at
from orchestrator.analysis.confirmation import Confirmation
from orchestrator.analysis.gains import Gains
from orchestrator.analysis.noise import NoiseFloor, Value, ratio_of
from orchestrator.analysis.objectives import Constraint, Metric, Objective
from orchestrator.analysis.rows import Row
from orchestrator.benchmark.intervals import Interval
from orchestrator.offered_load import Load

#: So many starts that a value has no doubt of its own beside another's.
_SURE = 10**9


@dataclass(frozen=True)
class Along:
    """One metric along the ladder, of every setting; trial 0 is the baseline."""

    ladder: tuple[Load, ...]
    more_is_better: bool
    values: dict[tuple[int, Load], Value]
    floors: dict[Load, NoiseFloor | None]
    #: The candidates that have a value at a load.
    candidates: dict[Load, list[int]] = field(default_factory=dict)
    #: What fresh starts made of the finalists: there nothing else counts.
    fresh: dict[tuple[int, Load], Confirmation] = field(default_factory=dict)
    #: Settings that cannot win, whatever their value: they break a constraint, or were refuted.
    barred: frozenset[int] = frozenset()

    def value(self, trial: int, load: Load) -> Value | None:
        """Of the setting at the load; None where it has none that may be compared."""
        return self.values.get((trial, load))

    def interval(self, trial: int, load: Load) -> Interval | None:
        """The value's 95 % interval: what starts differ by, and the level's own unrest; None of a value of 0."""
        value = self.value(trial, load)
        return None if value is None else self.spread(value, load)

    def spread(self, value: Value, load: Load) -> Interval | None:
        """The value with what starts differ by at the load, and its own unrest; None of a value of 0."""
        return ratio_of(value, Value(1.0, None, _SURE), self.floors.get(load))

    def ratio(self, trial: int, base: int, load: Load, of: int = 1) -> Interval | None:
        """trial / base at the load, by starts in the search, with its 95 % interval; None where one of them has no
        value, or one of 0. `of`: among how many the trial was picked.
        """
        one, other = self.value(trial, load), self.value(base, load)
        return None if one is None or other is None else ratio_of(one, other, self.floors.get(load), of)

    def judged(self, trial: int, load: Load, of: int = 1) -> Interval | None:
        """What the trial is judged by beside the baseline: its fresh starts where it had some, see `gains.Gain`. They
        were not picked for this value.
        """
        fresh = self.fresh.get((trial, load))
        return self.ratio(trial, 0, load, of) if fresh is None else fresh.ratio

    def afresh(self, load: Load) -> dict[int, Confirmation]:
        """What fresh starts found at the load, by finalist."""
        return {trial: found for (trial, at), found in self.fresh.items() if at == load}

    def contenders(self, load: Load) -> list[int]:
        """The candidates that were held against the baseline by single starts and can win."""
        return [trial for trial in self.candidates.get(load, []) if trial not in self.barred]

    def best_candidate(self, load: Load) -> int | None:
        """The contender with the best start in the search, the earliest of equals."""
        sign = -1 if self.more_is_better else 1
        own = self.contenders(load)
        return min(own, key=lambda trial: (sign * self.values[trial, load].value, trial), default=None)

    def leader(self, load: Load) -> int | None:
        """The best setting, 0 for the baseline; None where it cannot be told from the baseline.

        Where finalists were started afresh only they can lead. Of single starts the best of many was picked for its
        luck: the doubt is that of all of them together.
        """
        if afresh := self.afresh(load):
            sign = -1 if self.more_is_better else 1
            best: int | None = min(afresh, key=lambda trial: (not afresh[trial].wins, sign * afresh[trial].value))
            if best is not None and afresh[best].wins:
                return best
        else:
            best = self.best_candidate(load)
            if 0 in self.barred and best is not None:
                return best
        if best is None or self.value(0, load) is None:
            return 0
        ratio = self.judged(best, load, len(self.contenders(load)))
        if ratio is None or ratio.holds(1.0):
            return None
        return best if (ratio.mean > 1) == self.more_is_better else 0


def along(
    rows: Sequence[Row],
    objective: Objective,
    ladder: Sequence[Load],
    limits: Sequence[Constraint] = (),
    barred: Collection[int] = (),
) -> Along:
    """The objective's metric at every load of complete trials: of a candidate by its start in the search, one like the
    other, of the baseline by `gains.Gains`.
    """
    name, stat = objective.metric.name, objective.metric.stat
    metrics = {load: Metric(name, stat, load) for load in ladder}
    gains = {load: Gains(rows, Objective(metric, objective.direction), limits) for load, metric in metrics.items()}
    values = {(0, load): found.base for load, found in gains.items() if found.base is not None}
    candidates: dict[Load, list[int]] = {}
    for row in rows:
        load = None if row.level is None else row.level.load
        value = value_at(row, metrics[load]) if load in metrics and row.trial.role == "candidate" else None
        if load is not None and value is not None:
            values[row.trial.trial, load] = value
            candidates.setdefault(load, []).append(row.trial.trial)
    floors = {load: found.floor for load, found in gains.items()}
    fresh = {(trial, load): one for load, found in gains.items() for trial, one in found.fresh.items()}
    more = objective.direction == "maximize"
    return Along(tuple(ladder), more, values, floors, candidates, fresh, frozenset(barred))
