"""Rows for the tests of analysis, results and reports."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from conductor_desk import Desk

from orchestrator.analysis.finding import Finding
from orchestrator.analysis.rows import CacheState, MeasuredLevel, Outcome, Row, StartInfo, State, TrialInfo
from orchestrator.benchmark.records import Distribution, LevelMetrics
from orchestrator.offered_load import Load
from orchestrator.study_folder import dump


@pytest.fixture(autouse=True)
def _findings_name_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is found in any test here rests on rows, and names them."""
    made = Finding.__init__

    def named(self: Finding, *args: Any, **more: Any) -> None:
        made(self, *args, **more)
        caller = sys._getframe(1).f_globals["__name__"]
        assert self.rows or not caller.startswith("orchestrator."), f"{self.kind} names no rows"

    monkeypatch.setattr(Finding, "__init__", named)


MOMENT = datetime(2026, 3, 1, 12, 30, 15, 250_000, tzinfo=UTC)


def _row(
    trial: int = 1,
    concurrency: int | Load | None = 8,
    rate: float | None = 100.0,
    *,
    role: str = "candidate",
    state: State = "complete",
    failure_kind: str | None = None,
    failure_message: str | None = None,
    flags: Mapping[str, Any] | None = None,
    effective: Mapping[str, Any] | None = None,
    admits: int | None = None,
    simulated: bool = True,
    gpus: int = 8,
    start_id: str = "start-a",
    attempt: int = 1,
    ttft_ms: float = 50.0,
    accept_length: float | None = None,
    accept_partial: bool | None = None,
    half_width: float | None = None,
    agreement: float | None = None,
    self_agreement: float | None = None,
    differs: bool | None = False,
    failed: int = 0,
    total: int = 24,
    cache_state: CacheState = "flushed",
    repeats: int | None = None,
    repeat: int = 0,
    node: str = "abc",
) -> Row:
    """One row; `concurrency` may be a load, and None is a trial that ended without any level."""
    info = TrialInfo(
        study="nccl",
        study_id="nccl-1",
        trial=trial,
        optuna_number=trial,
        role=role,
        repeat=repeat,
        repeats=repeats,
        simulated=simulated,
        profile="tiny" if simulated else None,
        identity=f"id-{trial}",
        requested_flags=dict(flags or {}),
        requested_env={"NCCL_PROTO": "LL"},
        canonical_flags=dict(flags or {}),
        canonical_env={"NCCL_PROTO": "LL"},
        launch_command="NCCL_PROTO=LL python -m sglang.launch_server",
        gpus=gpus,
    )
    start = StartInfo(
        attempt=attempt,
        start_id=start_id,
        host="node-1",
        node_id=node,
        gpu_names=("a card", "a card"),
        versions={"sglang": "0.5.23"},
        started_at=MOMENT,
        startup_s=480.0,
        startup_wall_s=4.8,
        phase_s={"loading weights": 400.0, "warm-up": 2.5},
        effective_settings=dict(effective or {}),
        effective_max_running_requests=admits,
        output_agreement=agreement,
        output_self_agreement=self_agreement,
        output_differs=differs,
        teardown_s=1.5,
        stop_proven=True,
    )
    level = None
    if concurrency is not None:
        spread = Distribution(ttft_ms, ttft_ms, 1.5 * ttft_ms, 2 * ttft_ms)
        metrics = LevelMetrics(
            load=Load(concurrency) if isinstance(concurrency, int) else concurrency,
            requests_total=total,
            requests_failed=failed,
            window_s=4.5,
            duration_s=5.0,
            output_tokens_per_s=rate,
            output_tokens_per_s_whole=None if rate is None else 0.9 * rate,
            requests_per_s=2.0,
            ttft_ms=spread,
            tpot_ms=Distribution(3.0, 2.9, 3.5, 4.0),
            itl_ms=Distribution(9.0, 9.0, 9.5, 12.0),
            e2e_ms=Distribution(900.0, 880.0, 990.0, 1200.0),
            accept_length=accept_length,
            prompt_tokens=512 * total,
            cached_tokens=0,
            output_tokens=128 * total,
            first_error="error 500: overloaded" if failed else None,
            errors_by_kind={"stream_error": failed} if failed else {},
            accept_source=None if accept_length is None else "counters",
            accept_partial=accept_partial,
            output_tokens_per_s_half_width=half_width,
        )
        level = MeasuredLevel(
            metrics=metrics,
            measured_at=MOMENT,
            level_wall_s=7.25,
            cache_state=cache_state,
            counters_before={"generation_tokens_total": 10.0},
            counters_after={"generation_tokens_total": 3082.0},
        )
    return Row(info, start, Outcome(state, failure_kind, failure_message), level)


@pytest.fixture(scope="session")
def build_row() -> Callable[..., Row]:
    """Builds a row; every argument has a default, see `_row`."""
    return _row


@pytest.fixture
def desk(tmp_path: Path, build_row: Callable[..., Row]) -> Callable[..., Desk]:
    """Makes a conductor with its surroundings; each further one resumes the study of the one before."""

    def make(**options: Any) -> Desk:
        return Desk(tmp_path, build_row, **options)

    return make


@pytest.fixture
def running_study(desk: Callable[..., Desk], tmp_path: Path) -> Desk:
    """A study whose first trial is over and whose second has measured one level and goes on."""
    running = desk()
    (tmp_path / "study.yaml").write_text(dump(running.config))
    (tmp_path / "study.id").write_text("id-1\n")
    running.run("a")
    plan = running.conductor.next("b")
    assert plan is not None
    running.measure("b", plan, running.start(plan), plan.ladder[0])
    return running
