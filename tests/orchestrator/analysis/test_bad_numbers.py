"""Whatever a level recorded, its metrics are numbers or null, and nothing that is said of it raises."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from orchestrator.analysis.answer import answer
from orchestrator.analysis.findings import findings
from orchestrator.analysis.objectives import Constraint, parse_constraint, parse_objective
from orchestrator.analysis.rows import MeasuredLevel, Row, by_trial
from orchestrator.analysis.validity import allowed_share, cache_state, client_limit
from orchestrator.analysis.winner import winner
from orchestrator.benchmark.metrics import level_metrics
from orchestrator.benchmark.records import Conduct, Distribution, LevelMetrics, LevelRecord, RequestRecord
from orchestrator.offered_load import Load
from orchestrator.results.tables import measurements_table, rows_from
from orchestrator.workload import Slo, Workload

Build = Callable[..., Row]

LOADS = (Load(1), Load(4), Load(request_rate=2.0))
COUNTS = (None, 0, 1, 2, 7, 1000)
SHARES = (None, 0.0, 0.5, 0.99, 5.0)
KINDS = (None, None, None, "connect", "cut", "timeout", "cancelled")
CACHED = "cached_tokens_total"
COUNTERS = (
    "queue_time_seconds_sum",
    "queue_time_seconds_count",
    "spec_verify_calls_total",
    "generation_tokens_total",
    "prompt_tokens_total",
    CACHED,
    "num_requests_total",
    "num_retracted_requests_total",
)


class Made:
    """Levels of chance: a seed makes one faster than a strategy of its parts does, and a study is many."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        #: In milliseconds; one that is small makes equal stamps, and stamps of 0, common.
        self.most = self.rng.choice((0, 1, 3, 40, 10_000))

    def stamps(self, count: int) -> list[float]:
        return sorted(self.rng.randint(0, self.most) / 1000 for _ in range(count))

    def counters(self) -> dict[str, float]:
        names = sorted(self.rng.sample(COUNTERS, self.rng.randint(0, len(COUNTERS))))
        return {name: self.rng.choice((0.0, 1.0, 3.0, 1e9)) for name in names}

    def request(self, index: int, healthy: bool) -> RequestRecord:
        rng = self.rng
        kind = None if healthy else rng.choice(KINDS)
        start_s, *events = self.stamps(rng.randint(2, 60 if rng.random() < 0.2 else 4))
        finished_s = events[-1]
        events = events[: rng.randint(0, len(events))] if kind else events
        tokens = sorted(float(rng.randint(0, 9)) for _ in events)
        return RequestRecord(
            index=index,
            user=0,
            warmup=rng.random() < 0.3,
            started_s=start_s,
            finished_s=finished_s,
            event_s=tuple(events),
            event_tokens=tuple(tokens),
            prompt_tokens=rng.choice(COUNTS),
            cached_tokens=rng.choice((None, 0) if healthy else COUNTS),
            # At least one of a whole answer.
            output_tokens=None if kind else max(1, int(tokens[-1])),
            tokens_estimated=rng.random() < 0.2,
            spec_verify_steps=rng.choice(COUNTS),
            error=kind,
            error_kind=kind,
            targeted_s=rng.choice((None, *self.stamps(1))),
        )

    def level(self, load: Load) -> LevelRecord:
        rng = self.rng
        # Most are valid, or the rest of the analysis would see none.
        healthy = rng.random() < 0.8
        before = self.counters()
        rises = {name: value + rng.choice((0.0, 2.0, 1e9)) for name, value in before.items() if name != CACHED}
        asked = [self.request(n, healthy) for n in range(rng.choice((1, 6) if healthy else (0, 1, 2, 6)))]
        if not healthy and rng.random() < 0.3:
            asked = [dataclasses.replace(r, error="x", error_kind="cut", output_tokens=None) for r in asked]
        measured = [r for r in asked if not r.warmup]
        start_s, end_s, now_s = (*self.stamps(2), *self.stamps(1))
        return LevelRecord(
            load=load,
            requests=tuple(asked),
            window_s=rng.choice((None, (start_s, end_s), (0.0, self.most / 1000))),
            span_s=(
                min((r.started_s for r in measured), default=now_s),
                max((r.finished_s for r in measured), default=now_s),
            ),
            completed=rng.random() < 0.8,
            gave_up=None if healthy else rng.choice((None, "8 requests in a row failed")),
            counters_before=before,
            counters_after=rises if healthy else self.counters(),
            conduct=Conduct(
                warmup_s=rng.choice(SHARES),
                ended_by=rng.choice((None, "requests", "prompts")),
                client_cpu_share=None if healthy else rng.choice(SHARES),
                client_lag_ms=rng.choice(SHARES),
            ),
        )


SEEDS = st.integers(0, 2**32)


def numbers(metrics: LevelMetrics) -> Iterator[float]:
    for name in LevelMetrics.__dataclass_fields__:
        value = getattr(metrics, name)
        if isinstance(value, Distribution):
            yield from (getattr(value, stat) for stat in Distribution.__dataclass_fields__)
        elif isinstance(value, float):
            yield value


def measured(row: Row, record: LevelRecord, slo: Slo | None) -> Row:
    metrics = level_metrics(record, (), slo)
    before, after = record.counters_before, record.counters_after
    assert row.level is not None
    level = MeasuredLevel(
        metrics=metrics,
        measured_at=row.level.measured_at,
        level_wall_s=1.0,
        cache_state=cache_state("flushed", metrics, before, after, allowed_share(record, None, "completion")),
        counters_before=before,
        counters_after=after,
        client_limited=client_limit(metrics, Workload()),
        gave_up=record.gave_up,
    )
    return dataclasses.replace(row, level=level)


@settings(max_examples=1000, deadline=None)
@given(SEEDS, st.sampled_from(LOADS), st.sampled_from((None, Slo(ttft_ms=5, tpot_ms=2))))
def test_the_metrics_of_a_level_are_numbers_or_null(seed: int, load: Load, slo: Slo | None) -> None:
    record = Made(seed).level(load)
    metrics = level_metrics(record, (), slo)
    assert all(map(math.isfinite, numbers(metrics)))
    assert metrics.requests_failed <= metrics.requests_total


#: The roles of a small study: trial, role, trial that is started again, round.
ROLES = (
    (0, "baseline", None, 0),
    (1, "candidate", None, 0),
    (2, "candidate", None, 0),
    (3, "sentinel", 0, 1),
    (4, "sentinel", 0, 2),
    (5, "sentinel", 0, 3),
)
#: A finalist and the baseline, started afresh in two rounds.
CONFIRMED = ((6, "confirmation", 1, 1), (7, "confirmation", 0, 1), (8, "confirmation", 1, 2), (9, "confirmation", 0, 2))
LIMITS: tuple[Constraint, ...] = (parse_constraint("ttft_ms.p99@4 <= 10"),)


@pytest.mark.parametrize(
    ("score", "roles"),
    [
        ("output_tokens_per_s@4", ROLES + CONFIRMED),
        ("output_tokens_per_s@2rps", ROLES + CONFIRMED),
        ("ttft_ms.p99@4", ROLES + CONFIRMED),
        ("queue_time_ms@4", ROLES + CONFIRMED),
    ],
)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=SEEDS, slo=st.sampled_from((None, Slo(e2e_ms=10))))
def test_what_is_said_of_a_study_raises_nothing(
    build_row: Build, score: str, roles: Sequence[tuple[int, str, int | None, int]], seed: int, slo: Slo | None
) -> None:
    objective = parse_objective(score)
    made = Made(seed)
    rows = [
        measured(build_row(trial, load, role=role, repeats=repeats, repeat=repeat), made.level(load), slo)
        for trial, role, repeats, repeat in roles
        for load in LOADS
        if made.rng.random() < 0.9
    ]
    if not rows:
        return
    event(f"{sum(row.comparable for row in rows)} of {len(rows)} compared")
    found = findings(rows, objective, details=True)
    assert [f.text for f in found if "nan" in f.text.split() or "inf" in f.text.split()] == []
    for one in found:
        json.dumps(one.data, default=str, allow_nan=False)
    told = answer(rows, objective, LIMITS, list(LOADS))
    assert "nan" not in " ".join(told.sentences).split()
    winner(by_trial(rows), objective, LIMITS)
    table = measurements_table(rows)
    assert [row.level.invalid_reason for row in rows_from(table) if row.level] == [
        row.level.invalid_reason for row in rows if row.level
    ]


@pytest.mark.parametrize(
    ("baseline", "candidate", "verdict", "says"),
    [
        (4.0, 0.0, "unconfirmed", "It gives 0.0 against the baseline's 4.0; 0 has no ratio"),
        (0.0, 4.0, "baseline", "Nothing beats the baseline by queue_time_ms@4 (0.0 simulated)"),
        (0.0, 0.0, "baseline", "Nothing beats the baseline by queue_time_ms@4 (0.0 simulated)"),
        (4.0, 2.0, "unconfirmed", "It gives 2.0 simulated against the baseline's 4.0"),
    ],
)
def test_a_queue_of_0_is_a_score_like_another(
    build_row: Build, baseline: float, candidate: float, verdict: str, says: str
) -> None:
    def queued(row: Row, ms: float) -> Row:
        assert row.level is not None
        metrics = dataclasses.replace(row.level.metrics, queue_time_ms=ms)
        return dataclasses.replace(row, level=dataclasses.replace(row.level, metrics=metrics))

    rows = [queued(build_row(0, 4, role="baseline"), baseline), queued(build_row(1, 4), candidate)]
    told = answer(rows, parse_objective("queue_time_ms@4"), (), [Load(4)])
    assert told.verdict == verdict
    assert says.replace(" simulated ", " ") in " ".join(told.sentences).replace(" simulated ", " ")
