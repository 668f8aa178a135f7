"""What each setting gives at each load of the ladder, over all its starts, and who leads there. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from orchestrator.analysis.noise import NoiseFloor, Value, geometric_mean, ratio_of
from orchestrator.analysis.objectives import Metric, Objective
from orchestrator.analysis.rows import Row
from orchestrator.analysis.winner import floor_of
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

    def value(self, trial: int, load: Load) -> Value | None:
        """Of the setting at the load; None where it has none that may be compared."""
        return self.values.get((trial, load))

    def interval(self, trial: int, load: Load) -> Interval | None:
        """The value's 95 % interval: what starts differ by, and the level's own unrest."""
        value = self.value(trial, load)
        if value is None:
            return None
        return ratio_of(value, Value(1.0, None, _SURE), self.floors.get(load))

    def ratio(self, trial: int, base: int, load: Load) -> Interval | None:
        """trial / base at the load with its 95 % interval; None where one of them has no value."""
        one, other = self.value(trial, load), self.value(base, load)
        return None if one is None or other is None else ratio_of(one, other, self.floors.get(load))

    def best_candidate(self, load: Load) -> int | None:
        """The candidate with the best value, the earliest of equals."""
        sign = -1 if self.more_is_better else 1
        own = self.candidates.get(load, [])
        return min(own, key=lambda trial: (sign * self.values[trial, load].value, trial), default=None)

    def leader(self, load: Load) -> int | None:
        """The best setting, 0 for the baseline; None where it cannot be told from the baseline."""
        best = self.best_candidate(load)
        ratio = None if best is None else self.ratio(best, 0, load)
        if ratio is None:
            return 0
        if ratio.holds(1.0):
            return None
        return best if (ratio.mean > 1) == self.more_is_better else 0


def along(rows: Sequence[Row], objective: Objective, ladder: Sequence[Load]) -> Along:
    """The objective's metric at every load of complete trials.

    A candidate that was started afresh to be confirmed has those starts' geometric mean, since it was chosen for the
    luck of its first one; the baseline has that of all its starts.
    """
    name, stat = objective.metric.name, objective.metric.stat
    metrics = {load: Metric(name, stat, load) for load in ladder}
    searched: dict[tuple[int, Load], Value] = {}
    afresh: dict[tuple[int, Load], list[Value]] = {}
    candidates: dict[Load, list[int]] = {}
    for row in rows:
        load = None if row.level is None else row.level.load
        if load not in metrics or not row.comparable or row.outcome.state != "complete":
            continue
        value = row.figure(metrics[load])
        if not metrics[load].valid(value) or value <= 0:
            continue
        info = row.trial
        whole = name == "output_tokens_per_s" and row.level is not None
        half = row.level.metrics.output_tokens_per_s_half_width if whole and row.level else None
        if info.role == "candidate":
            searched[info.trial, load] = Value(value, half)
            candidates.setdefault(load, []).append(info.trial)
        else:
            afresh.setdefault((info.repeats or 0, load), []).append(Value(value, half))
    values = searched | {key: _mean(starts) for key, starts in afresh.items()}
    floors = {load: floor_of(rows, metric) for load, metric in metrics.items()}
    return Along(tuple(ladder), objective.direction == "maximize", values, floors, candidates)


def _mean(starts: Sequence[Value]) -> Value:
    widths = [start.half_width for start in starts if start.half_width is not None]
    return Value(geometric_mean([start.value for start in starts]), max(widths, default=None), len(starts))
