"""Whether a trial keeps to the study's constraints. Pure.

A further start of a setting measures fewer loads: where it has no figure of its own, that of the trial counts which it
starts again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.analysis.objectives import Constraint, Objective
from orchestrator.analysis.rows import Row, metric_value


@dataclass(frozen=True, slots=True)
class Kept:
    """How a trial stands to one constraint."""

    #: In the unit of the constraint's metric; None where none was measured.
    value: float | None
    #: See `Constraint.violation`; None where nobody can tell, since what is started again is not there.
    violation: float | None
    #: The trial whose figure it is, where that is not the trial's own.
    of: int | None = None

    @property
    def text(self) -> str:
        """`met: 100`, `violated: not measured`."""
        whose = "" if self.of is None else f" (of trial {self.of}, which it starts again)"
        if self.violation is None:
            return f"not known{whose}"
        figure = "not measured" if self.value is None else f"{self.value:,.4g}"
        return f"{'violated' if self.violation > 0 else 'met'}: {figure}{whose}"


def kept(rows: Sequence[Row], repeated: Sequence[Row], limit: Constraint) -> Kept:
    """How the trial of `rows` stands to the constraint; `repeated` are the rows of the trial that it starts again."""
    of, own = rows[0].trial.repeats, metric_value(rows, limit.metric)
    if own is not None or of is None:
        return Kept(own, limit.violation(own))
    if not repeated:
        return Kept(None, None, of)
    value = metric_value(repeated, limit.metric)
    return Kept(value, limit.violation(value), of)


def feasible(
    rows: Sequence[Row], repeated: Sequence[Row], objective: Objective, limits: Iterable[Constraint]
) -> bool | None:
    """Whether a trial is complete, scored and within the constraints; None where that is not known."""
    if rows[0].outcome.state != "complete" or metric_value(rows, objective.metric) is None:
        return False
    found = [kept(rows, repeated, limit).violation for limit in limits]
    if any(violation is not None and violation > 0 for violation in found):
        return False
    return None if None in found else True
