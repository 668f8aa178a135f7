"""Which trial is best, and how surely: the search's best, and what starting it afresh made of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from orchestrator.analysis.baseline import baseline_of
from orchestrator.analysis.confirmation import confirmations
from orchestrator.analysis.fresh_starts import breaches, refuted
from orchestrator.analysis.objectives import Constraint, Objective
from orchestrator.analysis.rows import Row, metric_value


def feasible_value(rows: Sequence[Row], objective: Objective, limits: Iterable[Constraint]) -> float | None:
    """A start's score; None where it is not complete, has none, or a constraint is not met."""
    value = metric_value(rows, objective.metric)
    if value is None or rows[0].outcome.state != "complete":
        return None
    return value if all(limit.violation(metric_value(rows, limit.metric)) <= 0 for limit in limits) else None


def best_searched(
    trials: Mapping[int, Sequence[Row]], objective: Objective, limits: Sequence[Constraint]
) -> int | None:
    """The complete trial with the best score in the search, the baseline's over its starts, that keeps the constraints
    and that no fresh start refutes; the earliest where several tie.
    """
    sign = -1 if objective.direction == "maximize" else 1
    out = barred(trials, limits)
    scored = {
        ordinal: value
        for ordinal, rows in trials.items()
        if rows[0].trial.repeats is None and ordinal not in out and (value := _score(rows, objective)) is not None
    }
    base = baseline_of([row for rows in trials.values() for row in rows], objective.metric)
    if 0 in scored and base is not None:
        scored[0] = base.value
    return min(scored, key=lambda ordinal: (sign * scored[ordinal], ordinal), default=None)


def winner(trials: Mapping[int, Sequence[Row]], objective: Objective, limits: Sequence[Constraint]) -> int | None:
    """The best of those that a confirmation puts before the baseline; the baseline where it puts none there; without
    a confirmation the search's best. Whoever breaks a constraint never wins, the baseline included.
    """
    found = confirmations([row for rows in trials.values() for row in rows], objective, limits)
    if not found:
        return best_searched(trials, objective, limits)
    sign = -1 if objective.direction == "maximize" else 1
    return min(((sign * c.value, c.trial) for c in found if c.wins), default=(0.0, 0))[1]


def barred(trials: Mapping[int, Sequence[Row]], limits: Sequence[Constraint]) -> dict[int, str]:
    """The trials of the search that cannot win, the baseline included, each with the reason: what it breaks, or what
    refuted it.
    """
    return {n: f"it breaks {why}" for n, why in breaches(trials, limits).items()} | refuted(trials, limits)


def _score(rows: Sequence[Row], objective: Objective) -> float | None:
    return metric_value(rows, objective.metric) if rows[0].outcome.state == "complete" else None
