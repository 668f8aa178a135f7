"""Why: what made each configuration faster or slower than the baseline, in sentences with their figures. Pure.

A sentence says "is" of what was measured, "is consistent with" of a cause that the rows allow and do not prove.
"""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.analysis.causes import admission, break_even, communication, drafting, effects
from orchestrator.analysis.causes.evidence import Evidence
from orchestrator.analysis.causes.request_time import request_times
from orchestrator.analysis.causes.step_time import StepTime, StepTimes
from orchestrator.analysis.finding import Finding
from orchestrator.analysis.objectives import Objective
from orchestrator.analysis.rows import Row


def explain(rows: Iterable[Row], objective: Objective | None = None) -> list[Finding]:
    """Everything that the rows tell of causes, the most important first; `objective` is the study's score.

    Raises ValueError for simulated and measured rows together.
    """
    evidence = Evidence(rows)
    steps = StepTimes(evidence)
    return [
        *break_even.crossovers(steps),
        *_score_first(break_even.break_evens(steps), objective),
        *drafting.drafters_compared(steps),
        *drafting.depths(steps),
        *drafting.parts(steps),
        *_score_first(communication.communication(steps), objective),
        *admission.caps(evidence),
        *admission.memory(evidence),
        *effects.effects(evidence),
        *effects.dropped(evidence),
        *effects.prefix_cache(evidence),
    ]


def step_times(rows: Iterable[Row]) -> list[StepTime]:
    """The cycle of every level that tells it, beside a plain step at the same batch, and where a request's time went:
    by trial and load.
    """
    evidence = Evidence(rows)
    steps = StepTimes(evidence)
    return [step for row in evidence.compared if (step := steps.of(row)) is not None]


def _score_first(found: list[Finding], objective: Objective | None) -> list[Finding]:
    """The findings of the score's load before the others."""
    load = objective.metric.load.concurrency if objective else None
    return sorted(found, key=lambda finding: finding.data["concurrency"] != load)


def explain_trial(rows: Iterable[Row], trial: int, objective: Objective | None = None) -> list[Finding]:
    """What the rows tell of one trial's causes, against the baseline; empty where nothing can be compared."""
    evidence = Evidence(rows)
    steps = StepTimes(evidence)
    found = _score_first(break_even.break_evens(steps, only=trial), objective)
    found += break_even.crossovers(steps, only=trial)
    found += _score_first(communication.communication(steps, only=trial), objective)
    found += request_times(steps, only=trial)
    others = [
        *drafting.drafters_compared(steps),
        *drafting.depths(steps),
        *admission.caps(evidence),
        *admission.memory(evidence),
        *effects.effects(evidence),
    ]
    return found + [finding for finding in others if any(of == trial for of, _ in finding.rows)]
