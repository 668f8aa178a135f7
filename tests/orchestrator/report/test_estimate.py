"""What a start will take, from earlier ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from launchers.base import Phase, StartProgress
from orchestrator.analysis.rows import StartInfo
from orchestrator.node_status import StartStatus
from orchestrator.report.estimate import recent_starts, total_s

BEGAN = datetime(2026, 11, 30, tzinfo=UTC)
FIRST = {"spawned": 20.0, "loading weights": 400.0, "kv pool": 4.0, "graph capture": 60.0, "warm-up": 6.0}
SECOND = {"spawned": 20.0, "loading weights": 100.0, "kv pool": 4.0, "graph capture": 80.0, "warm-up": 6.0}
THIRD = {"spawned": 22.0, "loading weights": 110.0, "kv pool": 5.0, "warm-up": 6.0}


def started(minute: int, phase_s: dict[str, float], wall_s: float | None = None) -> StartInfo:
    return StartInfo(
        attempt=1,
        start_id="s",
        started_at=BEGAN + timedelta(minutes=minute),
        startup_wall_s=sum(phase_s.values()) if wall_s is None else wall_s,
        phase_s=phase_s,
    )


def status(
    phase: Phase, elapsed_s: float, phase_elapsed_s: float, shards: tuple[int, int] | None = None
) -> StartStatus:
    return StartStatus(StartProgress(phase, shards), elapsed_s, phase_elapsed_s)


def test_nothing_is_guessed_without_an_earlier_start() -> None:
    assert total_s(status(Phase.LOADING_WEIGHTS, 100.0, 80.0, (80, 160)), ()) is None
    assert recent_starts([StartInfo(1, None), started(0, {})]) == ()


def test_what_is_left_of_a_phase_is_told_by_earlier_starts_and_by_files_once_some_are_loaded() -> None:
    earlier = (FIRST, SECOND, THIRD)
    after_s = 4.0 + 60.0 + 6.0
    assert total_s(status(Phase.SPAWNED, 5.0, 5.0), earlier) == 5.0 + 15.0 + 110.0 + after_s
    assert total_s(status(Phase.LOADING_WEIGHTS, 30.0, 10.0, (0, 160)), earlier) == 30.0 + 100.0 + after_s
    assert total_s(status(Phase.LOADING_WEIGHTS, 30.0, 10.0, (40, 160)), earlier) == 30.0 + 30.0 + after_s


def test_an_estimate_never_lies_in_the_past() -> None:
    late = status(Phase.WARMUP, 900.0, 500.0)
    assert total_s(late, (FIRST, SECOND)) == 900.0


def test_the_latest_starts_count_in_the_order_of_their_time() -> None:
    starts = [started(minute, {"spawned": float(minute)}) for minute in (7, 3, 1, 2, 6, 5, 4)]
    assert [s["spawned"] for s in recent_starts(starts)] == [3.0, 4.0, 5.0, 6.0, 7.0]


def test_simulated_seconds_are_brought_to_the_length_of_the_wall_clock() -> None:
    (seconds,) = recent_starts([started(0, SECOND, wall_s=2.1)])
    assert seconds["loading weights"] == pytest.approx(1.0)
    assert sum(seconds.values()) == pytest.approx(2.1)
