"""Levels of users in step, on a clock of the test's own: an engine that reads prompts first, then decodes together."""

from __future__ import annotations

import dataclasses
import random
import statistics
from collections.abc import Callable

import pytest

from orchestrator.benchmark.metrics import level_metrics, window_half_width
from orchestrator.benchmark.records import LevelMetrics, LevelRecord, RequestRecord
from orchestrator.benchmark.schedule import ClosedSchedule
from orchestrator.benchmark.waves import wave_edges
from orchestrator.offered_load import Load
from orchestrator.workload import Level

LOOK_S = 0.05


class Engine:
    """Serves one level: prompts a few at a time, while decoding stands still; then a token of each at every step."""

    def __init__(
        self,
        users: int,
        level: Level,
        tokens: Callable[[], int],
        step_s: Callable[[int], float],
        prefill_s: Callable[[int], float] = lambda prompts: 0.0,
        prompts_at_once: int = 16,
    ) -> None:
        self.schedule = ClosedSchedule(level, users, 0.0)
        self._tokens = tokens
        self._now_s, self._look_s, self._pieces = 0.0, LOOK_S, 0
        self._left: set[int] = set()
        self._waiting = [(user, 0.0) for user in range(users)]
        self._running: dict[int, tuple[float, int, list[float]]] = {}
        self._records: list[RequestRecord] = []
        for _ in range(users):
            assert self.schedule.warm_up_again(0, 0.0)
        while self._waiting or self._running:
            if self._waiting:
                begun, self._waiting = self._waiting[:prompts_at_once], self._waiting[prompts_at_once:]
                self._pass(prefill_s(len(begun)))
                for user, sent_s in begun:
                    self._running[user] = (sent_s, tokens(), [])
            else:
                self._pass(step_s(len(self._running)))
                for user in list(self._running):
                    self._token(user)
        requests = tuple(dataclasses.replace(r, warmup=self.schedule.warmup(r)) for r in self._records)
        span_s = (0.0, self._now_s)
        self.record = LevelRecord(Load(users), requests, self.schedule.window_s, span_s, completed=True)

    @property
    def metrics(self) -> LevelMetrics:
        return level_metrics(self.record)

    def _pass(self, seconds: float) -> None:
        while self._look_s <= self._now_s + seconds:
            self.schedule.look(self._look_s, self._pieces)
            self._look_s += LOOK_S
        self._now_s += seconds

    def _token(self, user: int) -> None:
        sent_s, tokens, stamps = self._running[user]
        # One connection is read after the other.
        self._now_s += 1e-5
        stamps.append(self._now_s)
        self._pieces += 1
        if len(stamps) < tokens:
            return
        del self._running[user]
        counts = tuple(float(n + 1) for n in range(tokens))
        self._records.append(
            RequestRecord(
                len(self._records), user, False, sent_s, self._now_s, tuple(stamps), counts, output_tokens=tokens
            )
        )
        if user not in self._left:
            self._left.add(user)
            self.schedule.leave_warmup(self._now_s)
        if self.schedule.take(self._now_s):
            self._waiting.append((user, self._now_s))


def in_step(users: int, prefill_s: float, step_s: float, seed: int, tokens: int = 128) -> tuple[Engine, float]:
    """Users with answers of one length on a server that wanders by half a percent a step; and its true rate."""
    draw = random.Random(seed)
    batches = -(-users // 16)
    engine = Engine(
        users,
        Level(),
        lambda: tokens,
        lambda running: step_s * (1 + draw.gauss(0, 0.005)),
        lambda prompts: prefill_s * prompts / 16 * (1 + draw.gauss(0, 0.005)),
    )
    truth = users * tokens / (batches * prefill_s * users / 16 / batches + tokens * (step_s + users * 1e-5))
    return engine, truth


@pytest.mark.parametrize(
    ("users", "prefill_s", "step_s", "at_most_s"), [(1, 0.1, 0.011, 10), (32, 0.4, 0.02, 30), (128, 0.4, 0.028, 60)]
)
def test_users_in_step_are_measured_soon_and_rightly(
    users: int, prefill_s: float, step_s: float, at_most_s: float
) -> None:
    held = 0
    for seed in range(12):
        engine, truth = in_step(users, prefill_s, step_s, seed)
        metrics = engine.metrics
        assert engine.schedule.ended_by == "precise"
        assert metrics.window_s is not None
        assert metrics.window_s < at_most_s
        assert metrics.output_tokens_per_s == pytest.approx(truth, rel=0.004)
        half_width = metrics.output_tokens_per_s_half_width
        assert half_width is not None
        assert half_width < 0.02 * truth
        held += abs(metrics.output_tokens_per_s - truth) <= max(half_width, 0.0005 * truth)
    assert held >= 11


def test_where_the_window_opens_within_a_wave_does_not_matter() -> None:
    """Prompts take four fifths of a wave here: whatever part of one is counted too much shows."""
    engine, truth = in_step(64, 0.8, 0.012, seed=3, tokens=32)
    window_s = engine.record.window_s
    assert window_s is not None
    wave_s = 64 * 32 / truth
    for share in (0.0, 0.2, 0.4, 0.6, 0.8):
        record = dataclasses.replace(engine.record, window_s=(window_s[0] + share * wave_s, window_s[1]))
        assert level_metrics(record).output_tokens_per_s == pytest.approx(truth, rel=0.005)


def test_half_a_server_that_gets_slower_from_wave_to_wave_is_not_precise() -> None:
    waves = [
        RequestRecord(
            0, 0, False, t, t + length, tuple(t + length * (n + 1) / 10 for n in range(10)),
            tuple(float(n + 1) for n in range(10)), output_tokens=10,
        )
        for t, length in ((0.0, 1.0), (1.0, 1.1), (2.1, 1.2), (3.3, 1.3))
    ]  # fmt: skip
    edges_s = wave_edges([r.finished_s for r in waves], (0.0, 4.6), 1)
    assert edges_s == pytest.approx([1.0, 2.1, 3.3, 4.6])
    half_width = window_half_width(waves, (1.0, 4.6), edges_s)
    assert half_width is not None
    # 9.1, 8.3 and 7.7 tokens/s: t(2) = 4.3 of their spread over the root of three.
    assert half_width == pytest.approx(4.303 * statistics.stdev([10 / 1.1, 10 / 1.2, 10 / 1.3]) / 3**0.5, rel=1e-3)


@pytest.mark.parametrize(
    ("ends_s", "window_s", "users", "edges_s"),
    [
        # A window that opens in a wave begins with the next, one that opens with a wave does not lose it.
        ([1, 2, 3, 4], (0.5, 4), 1, [1, 2, 3, 4]),
        ([1, 2, 3, 4], (0, 4), 1, [0, 1, 2, 3, 4]),
        ([1.0, 1.01, 2.0, 2.01, 3.0], (0.01, 3.0), 2, [0.01, 1.0, 2.0, 3.0]),
        ([1.0, 1.01, 2.0, 2.01, 3.0], (0.3, 3.0), 2, [1.0, 2.0, 3.0]),
        ([3, 1, 2], (0.5, 2.5), 1, [1, 2]),
        # No whole one.
        ([1, 2], (0, 5), 2, []),
        ([], (0, 5), 1, []),
        ([2, 2, 2], (0, 5), 1, []),
    ],
)
def test_waves_are_counted_back_from_the_last_end(
    ends_s: list[float], window_s: tuple[float, float], users: int, edges_s: list[float]
) -> None:
    assert wave_edges(ends_s, window_s, users) == edges_s


@pytest.mark.parametrize(("users", "shortest", "longest"), [(64, 64, 192), (64, 8, 400), (128, 2, 255)])
def test_the_tail_in_which_the_load_falls_is_in_no_latency(users: int, shortest: int, longest: int) -> None:
    draw = random.Random(5)
    engine = Engine(users, Level(), lambda: draw.randint(shortest, longest), lambda n: 0.010 + 0.0004 * n)
    metrics = engine.metrics
    # A step at full load, and the reading of all connections.
    truth_ms = 1000 * (0.010 + 0.0004 * users + users * 1e-5)
    assert metrics.tpot_ms is not None
    assert metrics.itl_ms is not None
    assert metrics.tpot_ms.mean == pytest.approx(truth_ms, rel=0.005)
    assert metrics.itl_ms.mean == pytest.approx(truth_ms, rel=0.005)
    assert metrics.output_tokens_per_s == pytest.approx(1000 * users / truth_ms, rel=0.005)
    # All measured ones, the tail among them, say less.
    good = [r for r in engine.record.requests if not r.warmup and len(r.event_s) > 1]
    everything = statistics.fmean((r.event_s[-1] - r.event_s[0]) / (len(r.event_s) - 1) for r in good)
    assert 1000 * everything < 0.985 * truth_ms


def test_a_window_with_fewer_ends_than_users_leaves_all_that_was_measured() -> None:
    """Long answers and a level of one request each: better those of a falling load than a few lucky ones."""
    draw = random.Random(5)
    level = Level(requests_per_user=1, min_s=0, half_width=None, warmup_tolerance=None)
    engine = Engine(16, level, lambda: draw.randint(10, 400), lambda n: 0.01)
    metrics = engine.metrics
    assert metrics.e2e_ms is not None
    measured = [r for r in engine.record.requests if not r.warmup]
    assert metrics.e2e_ms.mean == pytest.approx(1000 * statistics.fmean(r.finished_s - r.started_s for r in measured))
