"""What was asked for against what is in force: the settings that the server runs otherwise. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launchers.sglang.rules import ALIASES
from orchestrator.analysis.rows import Row

MAX_RUNNING = "max-running-requests"
MAX_TOKENS = "max-total-tokens"
_PAGE = "page-size"


@dataclass(frozen=True, slots=True)
class Difference:
    """A flag or variable that is not in force as asked; None: not asked for, or without a value."""

    name: str
    asked: Any
    #: What the rules know that SGLang makes of it.
    expected: Any
    in_force: Any
    #: Whether it is what the rules know.
    known: bool

    @property
    def text(self) -> str:
        """`max-running-requests asked 128, in force 48`."""
        asked = "not asked for" if self.asked is None else f"asked {_shown(self.asked)}"
        return f"{self.name} {asked}, in force {_shown(self.in_force)}"


def differences(row: Row) -> tuple[Difference, ...]:
    """By flag and then by variable, those not in force as asked; nothing of what the server does not tell."""
    return (*_flags(row), *_variables(row))


def _flags(row: Row) -> list[Difference]:
    asked, expected = _named(row.trial.requested_flags), _named(row.trial.canonical_flags)
    resolved = row.start.effective_settings
    if not resolved:
        return []
    found = []
    for name in dict.fromkeys((*asked, *expected)):
        want, known = asked.get(name), expected.get(name)
        if want is None and known is None:
            continue
        if name == MAX_RUNNING and row.start.effective_max_running_requests is not None:
            replicas, ranks = _data_parallel(resolved)
            # Each replica admits what was asked for, in equal whole shares of its attention ranks.
            value: Any = row.start.effective_max_running_requests // replicas
            known = ranks * max(1, known // ranks) if isinstance(known, int) else known
        elif name == MAX_TOKENS and row.start.effective_kv_tokens is not None:
            value = _whole_pages(want, row.start.effective_kv_tokens, resolved.get(_PAGE))
        elif name in resolved:
            value = resolved[name]
        else:
            continue
        if not same(want, value):
            # What the rules took out is left to the server, and nothing is expected of it.
            found.append(Difference(name, want, known, value, known is None or same(known, value)))
    return found


def _variables(row: Row) -> list[Difference]:
    """Of the variables that were set for this start; those of every start of a server that tells none, none."""
    has = row.start.server_environment
    if not has:
        return []
    return [
        Difference(name, str(want), str(want), has.get(name), known=False)
        for name, want in row.trial.requested_env.items()
        if want is not None and has.get(name) != str(want)
    ]


def same(asked: Any, value: Any) -> bool:
    """Whether a setting as written and as told are one: 4096 and "4096", [8] and 8, EAGLE and eagle."""
    return bool(_normal(asked) == _normal(value))


def _normal(value: Any) -> Any:
    if isinstance(value, str):
        try:
            parsed = json.loads(value.lower())
        except ValueError:
            return value.strip().casefold()
        return _normal(parsed)
    # A flag that is left out is False where it is a switch, an empty list or none elsewhere.
    if value is None or value is False or value == [] or value == ():
        return None
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, Mapping):
        return {str(k): _normal(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        parts = [_normal(item) for item in value]
        return parts[0] if len(parts) == 1 else parts
    return str(value)


def _named(flags: Mapping[str, Any]) -> dict[str, Any]:
    dashed = {name.replace("_", "-"): value for name, value in flags.items()}
    return {ALIASES.get(name, name): value for name, value in dashed.items()}


def _data_parallel(resolved: Mapping[str, Any]) -> tuple[int, int]:
    """Replicas of the whole server, and data-parallel attention ranks of each."""
    attention = int(resolved.get("attn-dp-size") or 1)
    width = int(resolved.get("dp-size") or 1)
    if attention > 1 or resolved.get("enable-dp-attention"):
        return 1, max(attention, width)
    return width, 1


def _whole_pages(asked: Any, pool: int, page: Any) -> Any:
    """The pool, or what was asked where the pool is only rounded down to whole pages."""
    size = page if isinstance(page, int) and page > 0 else 1
    return asked if isinstance(asked, int) and 0 <= asked - pool < size else pool


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(value)
