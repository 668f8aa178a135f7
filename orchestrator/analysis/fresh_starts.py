"""What speaks against a setting: the constraints that it breaks, and what its fresh starts failed in. Pure.

Constraints are kept or broken by a setting, not by one start of it: a candidate that was started afresh is judged by
the mean of those starts, the baseline by that of all its starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from launchers.errors import (
    GpuBusy,
    GpuBusyByOurs,
    KilledFromOutside,
    NotOurs,
    PortTaken,
    Remedy,
    StartCancelled,
    remedy_of,
)
from orchestrator.analysis.objectives import Constraint
from orchestrator.analysis.rows import Row, metric_value

Trials = Mapping[int, Sequence[Row]]

#: Failures that the setting has no part in: the node's, other programs', our own.
_NOT_ITS_OWN = frozenset(
    {
        "node_lost",
        "interrupted",
        "orchestrator_error",
        *(e.kind for e in (GpuBusy, GpuBusyByOurs, KilledFromOutside, NotOurs, PortTaken, StartCancelled)),
    }
)


def its_own(failure_kind: str | None) -> bool:
    """Whether a failure of this class is the setting's; one that every other would meet is not."""
    if failure_kind is None or failure_kind in _NOT_ITS_OWN:
        return False
    return remedy_of(failure_kind) is not Remedy.STOP_STUDY


def start_refutes(rows: Sequence[Row]) -> str | None:
    """Why this start of a finalist refutes it, a few words; None where it does not."""
    info, outcome = rows[0].trial, rows[0].outcome
    if info.role != "confirmation" or not info.repeats:
        return None
    if any(row.start.output_differs for row in rows):
        return f"its output was not the baseline's when started afresh (trial {info.trial})"
    if outcome.state in ("failed", "infeasible") and its_own(outcome.failure_kind):
        kind = (outcome.failure_kind or "").replace("_", " ")
        message = f": {outcome.failure_message.rstrip('.')}" if outcome.failure_message else ""
        return f"it failed when started afresh (trial {info.trial}, {kind}{message})"
    return None


def refuted(trials: Trials, limits: Sequence[Constraint]) -> dict[int, str]:
    """The finalists that their fresh starts refute whatever their score, by trial, with the reason in a few words."""
    found: dict[int, str] = {}
    for rows in trials.values():
        of = rows[0].trial.repeats
        if of and (why := start_refutes(rows)) is not None:
            found.setdefault(of, why)
    broken = breaches(trials, limits)
    for of in {rows[0].trial.repeats for rows in trials.values() if rows[0].trial.role == "confirmation"}:
        if of in broken and of:
            found.setdefault(of, f"started afresh it breaks {broken[of]}")
    return dict(sorted(found.items()))


def breaches(trials: Trials, limits: Iterable[Constraint]) -> dict[int, str]:
    """The complete trials of the search whose settings break a constraint, the baseline included: which, with the
    value and by how much.
    """
    again: dict[int, list[Sequence[Row]]] = {}
    for rows in trials.values():
        if rows[0].trial.repeats is not None and rows[0].outcome.state == "complete":
            again.setdefault(rows[0].trial.repeats, []).append(rows)
    found: dict[int, list[str]] = {}
    for limit in limits:
        for setting, rows in trials.items():
            if rows[0].trial.repeats is not None or rows[0].outcome.state != "complete":
                continue
            value = _value(setting, rows, again.get(setting, ()), limit)
            if (over := limit.violation(value)) > 0:
                told = "not measured" if value is None else f"{figure(value)}, {figure(over)} beyond"
                found.setdefault(setting, []).append(f"{limit} ({told})")
    return {setting: " and ".join(texts) for setting, texts in found.items()}


def _value(setting: int, first: Sequence[Row], again: Sequence[Sequence[Row]], limit: Constraint) -> float | None:
    own = metric_value(first, limit.metric)
    fresh = [value for rows in again if (value := metric_value(rows, limit.metric)) is not None]
    if setting and fresh:
        return fmean(fresh)  # its first start was chosen for its luck
    values = fresh if own is None else [own, *fresh]
    return fmean(values) if values else None


def figure(value: float) -> str:
    """Four digits."""
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
