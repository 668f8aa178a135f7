"""One measured level and what is known of the trial and the start it belongs to: what the result files hold.

A trial may be measured over several starts (it was interrupted and run again), so what differs from start to
start is kept apart from what the trial is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from orchestrator.analysis.objectives import Metric, valid
from orchestrator.benchmark.records import Distribution, LevelMetrics

#: complete: all levels measured; failed: a launch or a level failed; infeasible: the setting cannot run
#: at all; interrupted: the sweep ended first, the trial is run again.
State = Literal["complete", "failed", "interrupted", "infeasible"]
#: flushed: the flush was confirmed (status 200 while idle); unique: no prompt was sent to this start before;
#: warm: prompts may be cached from an earlier level; unknown: the flush was not confirmed.
CacheState = Literal["flushed", "unique", "warm", "unknown"]

#: Above this share of failed requests a level's numbers describe the failures: what is refused costs no time.
MAX_FAILED_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class TrialInfo:
    """What a trial is: the same over all its starts."""

    study: str
    study_id: str
    #: The trial's ordinal, 0 for the baseline; kept when the trial is run again.
    trial: int
    #: Optuna's number of the same trial; shifts from run to run.
    optuna_number: int | None
    role: str
    repeat: int
    simulated: bool
    #: The simulated server's performance model; None for a real server.
    profile: str | None
    #: Hash of the canonical configuration.
    identity: str
    requested_flags: Mapping[str, Any]
    requested_env: Mapping[str, Any]
    canonical_flags: Mapping[str, Any]
    canonical_env: Mapping[str, Any]
    #: One line to paste into a shell.
    launch_command: str | None
    #: GPUs of the node that the server holds.
    gpus: int

    @property
    def speculative(self) -> bool:
        """Whether the canonical configuration decodes speculatively."""
        return self.canonical_flags.get("speculative-algorithm") is not None


@dataclass(frozen=True, slots=True)
class StartInfo:
    """One start of the trial's server and where it ran."""

    #: Which try at this trial, from 1.
    attempt: int
    #: None where no server became ready.
    start_id: str | None
    host: str | None = None
    node_id: str | None = None
    gpu_names: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    started_at: datetime | None = None
    #: From spawn to ready; simulated seconds where simulated.
    startup_s: float | None = None
    #: From spawn to ready, by the wall clock.
    startup_wall_s: float | None = None
    #: Seconds of each phase by its name; simulated seconds where simulated.
    phase_s: Mapping[str, float] = field(default_factory=dict)
    #: Read back from the running server.
    effective_settings: Mapping[str, Any] = field(default_factory=dict)
    teardown_s: float | None = None
    #: Whether nothing of the server was left; None where it was not (yet) stopped by us.
    stop_proven: bool | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a trial ended."""

    state: State
    #: The failure's class, see `launchers.errors`; None for a complete trial.
    failure_kind: str | None = None
    failure_message: str | None = None
    failure_phase: str | None = None


@dataclass(frozen=True, slots=True)
class MeasuredLevel:
    """One level's metrics and how it was measured."""

    metrics: LevelMetrics
    measured_at: datetime
    #: Wall seconds of the level whole: flush, warm-up, measuring, counters.
    level_wall_s: float
    cache_state: CacheState
    #: The server's counters, sums over labels; a value that is no finite number is left out.
    counters_before: Mapping[str, float] = field(default_factory=dict)
    counters_after: Mapping[str, float] = field(default_factory=dict)

    @property
    def concurrency(self) -> int:
        """Users of the closed loop."""
        return self.metrics.concurrency

    @property
    def failed_share(self) -> float:
        """Failed requests over all measured ones; 1 where there was none."""
        total = self.metrics.requests_total
        return self.metrics.requests_failed / total if total else 1.0

    @property
    def comparable(self) -> bool:
        """Whether the numbers may be scored: (almost) no request failed and no prompt was cached before."""
        return self.failed_share <= MAX_FAILED_SHARE and self.cache_state != "warm"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the result files; `level` is None for a trial that ended without any."""

    trial: TrialInfo
    start: StartInfo
    outcome: Outcome
    level: MeasuredLevel | None

    @property
    def output_tokens_per_s(self) -> float | None:
        """The level's throughput; None where there is none that may be compared."""
        level = self.level
        if level is None or not level.comparable or not valid(level.metrics.output_tokens_per_s):
            return None
        return level.metrics.output_tokens_per_s


def metric_value(rows: Iterable[Row], metric: Metric) -> float | None:
    """The metric among one trial's rows: finite and above 0.

    None where that concurrency was not measured, the level is not comparable, or there is no such number.
    """
    for row in rows:
        if row.level is not None and row.level.concurrency == metric.concurrency:
            value = getattr(row.level.metrics, metric.name)
            if isinstance(value, Distribution) and metric.stat is not None:
                value = getattr(value, metric.stat)
            return float(value) if row.level.comparable and valid(value) else None
    return None


def by_trial(rows: Iterable[Row]) -> dict[int, list[Row]]:
    """Rows grouped by trial ordinal, in ascending order."""
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.trial.trial, []).append(row)
    return dict(sorted(groups.items()))


def all_simulated(rows: Iterable[Row]) -> bool:
    """Whether the rows are simulated; False for no rows.

    Raises ValueError when some are and some are not: such numbers are never compared.
    """
    kinds = {row.trial.simulated for row in rows}
    if len(kinds) > 1:
        raise ValueError(
            "simulated and measured rows stand in one study, and their numbers cannot be compared: "
            "keep the two launchers' results in two studies"
        )
    return kinds == {True}
