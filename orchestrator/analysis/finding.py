"""A sentence of the report, and what all of them are made with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.analysis.rows import Row


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence, its class, and the figures it was made from."""

    kind: str
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    #: The rows behind it: trial and label of the load, empty where the data name them.
    rows: tuple[tuple[int, str], ...] = ()


def rows_behind(rows: Iterable[Row]) -> tuple[tuple[int, str], ...]:
    """The rows as a finding names them, each once, in order."""
    return tuple(sorted({(r.trial.trial, r.level.load.label) for r in rows if r.level is not None}))


def ladder_of(rows: Iterable[Row]) -> list[int]:
    """Every concurrency of a closed loop that was measured."""
    return sorted({users for row in rows if row.level is not None and (users := row.level.load.concurrency)})


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
