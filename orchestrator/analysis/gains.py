"""What a trial gains on the baseline at a load, and whether that can be told: reckoned here alone. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from orchestrator.analysis.baseline import BASELINE, baseline_of, value_at
from orchestrator.analysis.confirmation import Confirmation, confirmations
from orchestrator.analysis.floor import floor_of
from orchestrator.analysis.noise import NoiseFloor, Value, ratio_of
from orchestrator.analysis.objectives import Constraint, Metric, Objective
from orchestrator.analysis.rows import Row
from orchestrator.benchmark.intervals import Interval
from orchestrator.offered_load import Load

Verdict = Literal["better", "worse", "tie"]


@dataclass(frozen=True, slots=True)
class Gain:
    """A trial of the search beside the baseline in one metric at one load."""

    objective: Objective
    value: Value
    base: Value
    #: value / base with its 95 % interval, by the trial's one start in the search.
    ratio: Interval
    #: What its fresh starts beside the baseline's made of it; None where it had none at this load.
    fresh: Confirmation | None = None

    @property
    def judged(self) -> Interval:
        """What the verdict rests on: the fresh starts where there are any, since the search chose a lucky one."""
        return self.ratio if self.fresh is None else self.fresh.ratio

    @property
    def how(self) -> str:
        """`in 2 rounds of fresh starts`, of what `judged` is."""
        return "in a single start" if self.fresh is None else f"in {self.fresh.rounds} rounds of fresh starts"

    @property
    def verdict(self) -> Verdict:
        """`better` or `worse` than the baseline; a `tie` where the interval holds 1."""
        if self.judged.holds(1.0):
            return "tie"
        return "better" if self.objective.better(self.judged.mean, 1.0) else "worse"


class Gains:
    """One metric at one load, the objective's, of all trials of a study."""

    def __init__(self, rows: Iterable[Row], objective: Objective, limits: Sequence[Constraint] = ()) -> None:
        """Finalists that break one of the `limits` when started afresh are refuted, and judged by no score."""
        self._rows = rows if isinstance(rows, Sequence) else list(rows)
        self.objective = objective
        self._limits = limits

    @cached_property
    def base(self) -> Value | None:
        """What the baseline gives, see `baseline_of`."""
        return baseline_of(self._rows, self.objective.metric)

    @cached_property
    def base_rows(self) -> list[Row]:
        """The rows that `base` is of."""
        return [row for row in self._rows if row.trial.role in BASELINE and value_at(row, self.objective.metric)]

    @cached_property
    def floor(self) -> NoiseFloor | None:
        """What starts of one setting differ by."""
        return floor_of(self._rows, self.objective.metric)

    @cached_property
    def fresh(self) -> dict[int, Confirmation]:
        """What fresh starts made of the finalists, by trial."""
        return {found.trial: found for found in confirmations(self._rows, self.objective, self._limits)}

    def of(self, row: Row) -> Gain | None:
        """Of the trial that the row is a level of; None where it or the baseline has no value at this load, or one of
        them is 0: then they have no ratio.
        """
        value = value_at(row, self.objective.metric)
        ratio = None if value is None or self.base is None else ratio_of(value, self.base, self.floor)
        if value is None or self.base is None or ratio is None:
            return None
        return Gain(self.objective, value, self.base, ratio, self.fresh.get(row.trial.trial))

    def trial(self, rows: Iterable[Row]) -> Value | None:
        """Of a trial's rows: the value of its start, of the baseline that over all its starts; None without one."""
        own = (row for row in rows if value_at(row, self.objective.metric) is not None)
        return next((self.whole(row) for row in own), None)

    def trial_gain(self, rows: Iterable[Row]) -> Gain | None:
        """`of` the trial whose rows these are."""
        return next((gain for row in rows if (gain := self.of(row)) is not None), None)

    def whole(self, row: Row) -> Value | None:
        """The row's value; of a row of the baseline that over all its starts."""
        return self.base if row.trial.role in BASELINE and self.base else value_at(row, self.objective.metric)


def throughput_at(load: Load) -> Objective:
    """Output tokens/s at the load."""
    return Objective(Metric("output_tokens_per_s", None, load))
