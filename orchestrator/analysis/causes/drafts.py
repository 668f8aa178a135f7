"""What a speculative trial drafts with, and how: names and numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from launchers.sglang.rewrites import DRAFT_PATH, DRAFT_TOKENS, STEPS
from orchestrator.analysis.rows import Row


def drafter(row: Row) -> tuple[str, str | None]:
    """Algorithm and draft model of a speculative row."""
    flags = row.trial.canonical_flags
    path = flags.get(DRAFT_PATH)
    return str(flags.get("speculative-algorithm")), None if path is None else str(path)


def drafters(rows: Iterable[Row]) -> dict[tuple[str, str | None], str]:
    """A short name of each: `EAGLE3 with Kimi-K2-eagle3`; whole paths where two end alike."""
    known = dict.fromkeys(drafter(row) for row in rows if row.trial.speculative)
    ends = [path.rstrip("/").rsplit("/", 1)[-1] for _, path in known if path]
    names = {}
    for algorithm, path in known:
        end = "" if path is None else path.rstrip("/").rsplit("/", 1)[-1]
        short = end if ends.count(end) <= len({a for a, p in known if p == path}) else path
        names[algorithm, path] = f"{algorithm} with {short}" if path else algorithm
    return names


def setting(row: Row, name: str) -> int | None:
    """A speculative number as in force, else as the rules know it."""
    value = row.start.effective_settings.get(name, row.trial.canonical_flags.get(name))
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def draft_tokens(row: Row) -> int | None:
    """Tokens that a cycle verifies of each request."""
    return setting(row, DRAFT_TOKENS)


def most_tokens(row: Row) -> int | None:
    """The most that a cycle can yield a request: the longest path of drafted tokens, and the model's own token."""
    steps, tokens = setting(row, STEPS), draft_tokens(row)
    if steps is None:
        return tokens
    return steps + 1 if tokens is None else min(steps + 1, tokens)
