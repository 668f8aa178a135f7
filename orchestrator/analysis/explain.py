"""Why: what made each configuration faster or slower than the baseline, in sentences with their figures. Pure.

A sentence says "is" of what was measured, "is consistent with" of a cause that the rows allow and do not prove.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from orchestrator.analysis.causes import admission, break_even, communication, crossover, cycle_parts, drafting, effects
from orchestrator.analysis.causes.evidence import Evidence
from orchestrator.analysis.causes.request_time import request_times
from orchestrator.analysis.causes.step_time import StepTimes
from orchestrator.analysis.finding import Finding, rows_behind
from orchestrator.analysis.objectives import Objective
from orchestrator.analysis.rows import Row


class Explanation:
    """The causes that a study's rows tell; `objective` is its score. What several questions need is reckoned once.

    Raises ValueError for simulated and measured rows together.
    """

    def __init__(self, rows: Iterable[Row], objective: Objective | None = None) -> None:
        self._evidence = Evidence(rows)
        self._steps = StepTimes(self._evidence)
        self._load = objective.metric.load.concurrency if objective else None

    @cached_property
    def findings(self) -> list[Finding]:
        """Everything, the most important first."""
        steps = self._steps
        return [
            *crossover.crossovers(steps),
            *self._score_first(break_even.break_evens(steps)),
            *self._drafts,
            *cycle_parts.parts(steps),
            *self._score_first(communication.communication(steps)),
            *self._waiting,
            *self._effects,
            *effects.dropped(self._evidence),
            *effects.prefix_cache(self._evidence),
            *self._open_loops,
        ]

    def trial(self, trial: int) -> list[Finding]:
        """One trial's, against the baseline; empty where nothing can be compared."""
        steps = self._steps
        shared = [*self._drafts, *self._waiting, *self._effects]
        return [
            *self._score_first(break_even.break_evens(steps, trial)),
            *crossover.crossovers(steps, trial),
            *self._score_first(communication.communication(steps, trial)),
            *self._score_first(request_times(steps, trial)),
            *(finding for finding in shared if any(of == trial for of, _ in finding.rows)),
        ]

    @cached_property
    def _open_loops(self) -> list[Finding]:
        """That no cause is told, where no level has users to reckon it from."""
        loads = sorted({row.level.load.first for row in self._evidence.rows if row.level is not None})
        if not loads or any(load.closed for load in loads):
            return []
        text = (
            f"Why settings differ cannot be told: {', '.join(load.label for load in loads)} "
            f"{'is an open loop' if len(loads) == 1 else 'are open loops'}, and what a step takes, what speculation "
            "needs to break even and what limits the running requests are reckoned from a fixed number of users. A "
            "closed loop beside it (workload.concurrency) would tell."
        )
        return [Finding("causes_untold", text, rows=rows_behind(self._evidence.rows))]

    @cached_property
    def _drafts(self) -> list[Finding]:
        return [*drafting.drafters_compared(self._steps), *drafting.depths(self._steps)]

    @cached_property
    def _waiting(self) -> list[Finding]:
        return [*admission.caps(self._evidence), *admission.memory(self._evidence)]

    @cached_property
    def _effects(self) -> list[Finding]:
        return effects.effects(self._evidence)

    def _score_first(self, found: list[Finding]) -> list[Finding]:
        """The findings of the score's load before the others."""
        return sorted(found, key=lambda finding: finding.data["concurrency"] != self._load)


def explain(rows: Iterable[Row], objective: Objective | None = None) -> list[Finding]:
    """Everything that the rows tell of causes, see `Explanation`."""
    return Explanation(rows, objective).findings


def explain_trial(rows: Iterable[Row], trial: int, objective: Objective | None = None) -> list[Finding]:
    """What the rows tell of one trial's causes. For many trials ask one `Explanation`."""
    return Explanation(rows, objective).trial(trial)
