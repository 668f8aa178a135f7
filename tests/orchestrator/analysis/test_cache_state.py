"""The prefix cache before a level: flushed, warm, or not known (P16)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from orchestrator.analysis.rows import Row
from orchestrator.analysis.validity import allowed_share, cache_state
from orchestrator.benchmark.counters import Flush
from orchestrator.benchmark.datasets.prompts import Key, Prompt, Prompts
from orchestrator.benchmark.records import LevelRecord, RequestRecord
from orchestrator.offered_load import Load
from orchestrator.workload import Api


@pytest.mark.parametrize(
    ("flush", "cached", "state"),
    [
        ("flushed", 0, "flushed"),
        # However cold it was, what was measured then is the cache.
        ("flushed", 900, "warm"),
        ("flushed", 60, "warm"),
        ("flushed", 50, "flushed"),
        ("flushed", None, "flushed"),
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


def test_a_warm_level_tells_the_share_that_it_found(build_row: Callable[..., Row]) -> None:
    level = build_row(1, 8, cache_state="warm").level
    assert level is not None
    metrics = dataclasses.replace(level.metrics, prompt_tokens=1000, cached_tokens=903)
    told = dataclasses.replace(level, metrics=metrics).invalid_reason
    assert told == "prompts were in the prefix cache before: 90 % of their tokens were found there"


class Some(Prompts):
    def __init__(self, shared: float = 0.0, unique: int | None = None) -> None:
        self.shared, self.unique = shared, unique

    def prompt(self, key: Key, index: int) -> Prompt:
        raise NotImplementedError


def record(tokens: int, cached: int | None = None, count: int = 10) -> LevelRecord:
    """Two requests of warm-up, which do not count, and `count` measured ones, the last of them failed."""
    requests = tuple(
        RequestRecord(n, 0, n < 2, 0.0, 1.0, prompt_tokens=tokens, cached_tokens=cached, output_tokens=1)
        for n in range(2 + count)
    )
    failed = RequestRecord(2 + count, 0, False, 0.0, 1.0, prompt_tokens=10**6, error_kind="cut")
    return LevelRecord(Load(1), (*requests, failed), (0.0, 1.0), (0.0, 1.0), True)


@pytest.mark.parametrize(
    ("prompts", "api", "level", "share"),
    [
        (None, "completion", record(512), 0.05),
        (Some(), "completion", record(512), 0.05),
        (Some(), "completion", record(512, 400), 0.05),
        (Some(shared=0.5), "completion", record(512), 0.55),
        # Of ten measured requests, numbered from 2, those from 6 on were sent a second time.
        (Some(unique=6), "native", record(512), 0.65),
        (Some(shared=0.5, unique=6), "native", record(512), 0.85),
        # A few tokens that prompts begin with are much of short ones.
        (Some(), "completion", record(32), 0.25),
        # A chat's template is before every prompt, as far as it goes.
        (Some(), "chat", record(512, 0), 0.05),
        (Some(), "chat", record(512, 40), 48 / 512),
        (Some(), "chat", record(512, 500), 136 / 512),
        (Some(), "chat", record(512), 136 / 512),
        (Some(), "chat", LevelRecord(Load(1), (), None, (0.0, 0.0), True), 0.05),
    ],
)
def test_a_level_may_find_what_its_workload_has_in_common(
    prompts: Prompts | None, api: Api, level: LevelRecord, share: float
) -> None:
    assert allowed_share(level, prompts, api) == pytest.approx(share)
