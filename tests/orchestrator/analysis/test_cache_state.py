"""The prefix cache before a level: flushed, warm, or not known (P16)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from orchestrator.analysis.rows import Row
from orchestrator.analysis.validity import cache_state
from orchestrator.benchmark.counters import Flush


@pytest.mark.parametrize(
    ("flush", "cached", "state"),
    [
        ("flushed", 0, "flushed"),
        # Confirmed is confirmed: what is cached then came with the level itself.
        ("flushed", 900, "flushed"),
        ("unknown", 900, "warm"),
        ("unknown", 60, "warm"),
        ("unknown", 40, "unique"),
        ("unknown", 0, "unique"),
        ("unknown", None, "unknown"),
    ],
)
def test_a_second_run_without_a_flush_is_warm(
    build_row: Callable[..., Row], flush: Flush, cached: int | None, state: str
) -> None:
    level = build_row(1, 8).level
    assert level is not None
    metrics = dataclasses.replace(level.metrics, prompt_tokens=1000, cached_tokens=cached)
    assert cache_state(flush, metrics, {}, {}) == state


def test_the_servers_counters_tell_it_where_the_answers_do_not(build_row: Callable[..., Row]) -> None:
    level = build_row(1, 8).level
    assert level is not None
    metrics = dataclasses.replace(level.metrics, prompt_tokens=1000, cached_tokens=None)
    before = {"prompt_tokens_total": 1000.0, "cached_tokens_total": 100.0}
    warm = {"prompt_tokens_total": 2000.0, "cached_tokens_total": 1000.0}
    assert cache_state("unknown", metrics, before, warm) == "warm"
    cold = {"prompt_tokens_total": 2000.0, "cached_tokens_total": 100.0}
    assert cache_state("unknown", metrics, before, cold) == "unique"
    assert cache_state("unknown", metrics, {}, {}) == "unknown"
