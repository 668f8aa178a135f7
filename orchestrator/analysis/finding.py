"""A sentence of the report, and what all of them are made with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.analysis.rows import Row
from orchestrator.offered_load import Load


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence, its class, the figures it was made from, and the rows behind it."""

    kind: str
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    #: Trial and label of the load, see `rows_behind`; none is without.
    rows: tuple[tuple[int, str], ...] = ()

    @property
    def rows_text(self) -> str:
        """`rows: trials 0, 11 at C=8`: trials with the same loads together, the first eight of many."""
        loads: dict[int, list[str]] = {}
        for trial, label in self.rows:
            loads.setdefault(trial, []).append(label)
        alike: dict[tuple[str, ...], list[int]] = {}
        for trial, labels in loads.items():
            alike.setdefault(tuple(labels), []).append(trial)
        parts = []
        for loads_of, trials in alike.items():
            at = ", ".join(filter(None, loads_of))
            parts.append(trials_text(trials) + (f" at {at}" if at else ""))
        return f"rows: {'; '.join(parts)}"


def rows_behind(rows: Iterable[Row]) -> tuple[tuple[int, str], ...]:
    """The rows as a finding names them, each once, by trial and load; a trial that ended without any level has a label
    that is empty.
    """
    found = {(r.trial.trial, r.level.load if r.level else None) for r in rows}
    ordered = sorted(found, key=lambda one: (one[0], one[1] is not None, one[1] or Load(1)))
    return tuple((trial, load.label if load else "") for trial, load in ordered)


def rows_of(rows: Iterable[Row], trials: Iterable[int]) -> tuple[tuple[int, str], ...]:
    """All rows of these trials, as a finding names them."""
    wanted = set(trials)
    return rows_behind(row for row in rows if row.trial.trial in wanted)


def ladder_of(rows: Iterable[Row]) -> list[int]:
    """Every concurrency of a closed loop that was measured."""
    return sorted({users for row in rows if row.level is not None and (users := row.level.load.concurrency)})


def loads_of(rows: Iterable[Row]) -> list[Load]:
    """Every load that was measured, closed loops first."""
    return sorted({row.level.load.first for row in rows if row.level is not None})


def settings_text(row: Row, common: Mapping[str, Any]) -> str:
    """The requested settings that `common` does not have so, one after the other."""
    return own_settings(row.trial.requested_flags, row.trial.requested_env, common)


def own_settings(flags: Mapping[str, Any], env: Mapping[str, Any], common: Mapping[str, Any]) -> str:
    """As `settings_text`, of a trial that has no row yet."""
    own = {k: v for k, v in {**flags, **env}.items() if k not in common or common[k] != v}
    return " ".join(f"{k}={v}" for k, v in own.items()) or "the server's defaults"


def trials_text(numbers: Iterable[int]) -> str:
    """`trial 3`, `trials 1, 2`; the first eight of many."""
    listed = sorted(numbers)
    names = ", ".join(map(str, listed[:8])) + (", ..." if len(listed) > 8 else "")
    return f"trial{'s' if len(listed) > 1 else ''} {names}"


def loads_text(ladder: Iterable[Load]) -> str:
    """`C=1, C=4 and C=8`."""
    names = [load.label for load in sorted(ladder)]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
