"""One measured level and what is known of the trial and the start it belongs to: what the result files hold.

A trial may be measured over several starts (it was interrupted and run again), so what differs from start to
start is kept apart from what the trial is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from orchestrator.analysis.objectives import Metric, valid
from orchestrator.analysis.validity import CacheState, invalid_reason, server_failed, unmeasured
from orchestrator.benchmark.counters import delta
from orchestrator.benchmark.metrics import accept_rate
from orchestrator.benchmark.records import Distribution, LevelMetrics
from orchestrator.offered_load import Load

#: complete: all levels measured; failed: a launch or a level failed; infeasible: the setting cannot run
#: at all; interrupted: the trial is run again, since the sweep ended first or, with a failure_kind, since another
#: start may not meet what failed.
State = Literal["complete", "failed", "interrupted", "infeasible"]


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
    #: The how-manieth repeat of the trial `repeats`, or round of the confirmation; 0 for a trial of the search.
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
    #: The trial whose setting this one starts again, see `search.repeats`; None for a trial of the search.
    repeats: int | None = None

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
    #: Read back from the running server: each argument as resolved, by flag name, and what its ranks say.
    effective_settings: Mapping[str, Any] = field(default_factory=dict)
    #: Requests that run at once, all data-parallel ranks together, as in force.
    effective_max_running_requests: int | None = None
    #: KV pool of one data-parallel rank.
    effective_kv_tokens: int | None = None
    #: Of NCCL, CUDA, SGLang and threads, and those asked for: what its processes were started with.
    server_environment: Mapping[str, str] = field(default_factory=dict)
    #: Lines of the start's log in which the server says that it changed a setting.
    start_changes: tuple[str, ...] = ()
    #: Where our rules on settings and SGLang's own resolver differed, told at the first trial that met it.
    rule_disagreements: tuple[str, ...] = ()
    #: Greedy answers to `agreement.PROMPTS` as token ids, asked all at once; None where they were not had.
    outputs: tuple[tuple[int, ...], ...] | None = None
    #: Wall seconds of all answers to the fixed prompts.
    outputs_s: float | None = None
    #: The same asked one after the other: of the baseline, to know how well it agrees with itself.
    outputs_alone: tuple[tuple[int, ...], ...] | None = None
    #: Share of the baseline's tokens that `outputs` repeats, and that the baseline itself repeats.
    output_agreement: float | None = None
    output_self_agreement: float | None = None
    #: Whether the output is not the baseline's: no number of such a start is ever compared.
    output_differs: bool | None = None
    teardown_s: float | None = None
    #: Whether nothing of the server was left; None where it was not (yet) stopped by us.
    stop_proven: bool | None = None
    #: How it was stopped and what was left, see `launchers.base.StopReport`.
    stop_report: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a trial ended."""

    state: State
    #: The failure's class, see `launchers.errors`; None for a complete trial.
    failure_kind: str | None = None
    failure_message: str | None = None
    failure_phase: str | None = None


@dataclass(frozen=True)
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
    #: Lines of the log of this level in which the server says that it changed a setting or ran short.
    level_changes: tuple[str, ...] = ()
    #: How often, by the same log, requests lost their place for want of KV memory; None where nobody looked.
    retraction_events: int | None = None
    #: Requests whose prompt the level had sent before, since the dataset has no more; None where not known.
    repeated_prompts: int | None = None
    #: Why the load generator was the limit, by the workload's limits; None where it was not.
    client_limited: str | None = None
    #: Why the level was given up before its end, see `LevelRecord`; None where it was not.
    gave_up: str | None = None

    @property
    def load(self) -> Load:
        """What was offered: the key of the level."""
        return self.metrics.load

    @property
    def retracted_requests(self) -> int | None:
        """Requests that lost their place for want of KV memory; None where the server does not tell."""
        rise = delta(self.counters_before, self.counters_after, "num_retracted_requests_total")
        return None if rise is None else int(rise)

    @property
    def server_failed(self) -> str | None:
        """Why the server itself is to blame that the level is invalid; None where it is not."""
        return server_failed(self.metrics, self.counters_before, self.counters_after, self.gave_up)

    @property
    def unmeasured(self) -> str | None:
        """Why nothing was measured, though the level was not given up; None where something was."""
        return unmeasured(self.metrics) if self.gave_up is None else None

    # A report asks it of each level dozens of times.
    @cached_property
    def invalid_reason(self) -> str | None:
        """Why the numbers may not be scored; None where they may."""
        return invalid_reason(
            self.metrics, self.cache_state, self.client_limited, self.counters_before, self.counters_after, self.gave_up
        )

    @property
    def comparable(self) -> bool:
        """Whether the numbers may be scored."""
        return self.invalid_reason is None


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the result files; `level` is None for a trial that ended without any."""

    trial: TrialInfo
    start: StartInfo
    outcome: Outcome
    level: MeasuredLevel | None

    @property
    def comparable(self) -> bool:
        """Whether the level may be scored; False for none, and on a server whose output is not the baseline's."""
        return self.level is not None and self.level.comparable and not self.start.output_differs

    @property
    def output_tokens_per_s(self) -> float | None:
        """The level's throughput; None where there is none that may be compared."""
        if self.level is None or not self.comparable or not valid(self.level.metrics.output_tokens_per_s):
            return None
        return self.level.metrics.output_tokens_per_s

    @property
    def accept_rate(self) -> float | None:
        """Share of the draft steps in force that were accepted; None without speculation, or where not told."""
        steps = self.start.effective_settings.get("speculative-num-steps")
        length = None if self.level is None else self.level.metrics.accept_length
        return accept_rate(length, steps if isinstance(steps, int) else None)

    def figure(self, metric: Metric) -> float | None:
        """The metric's value in this row, whether or not it may be compared; None where there is none."""
        if self.level is None:
            return None
        metrics, users = self.level.metrics, self.level.load.concurrency
        rate = metrics.output_tokens_per_s
        if metric.name == "output_tokens_per_s_per_user":
            return rate / users if rate is not None and users else None
        if metric.name == "output_tokens_per_s_per_gpu":
            return rate / self.trial.gpus if rate is not None and self.trial.gpus else None
        if metric.name == "accept_rate":
            return self.accept_rate
        value = getattr(metrics, metric.name)
        if isinstance(value, Distribution) and metric.stat is not None:
            value = getattr(value, metric.stat)
        return None if value is None else float(value)

    @property
    def admission_limited(self) -> bool | None:
        """Whether the level had more users than the server runs at once; None where that is not known, as of an
        open loop, which has no users."""
        cap = self.start.effective_max_running_requests
        users = None if self.level is None else self.level.load.concurrency
        return None if cap is None or users is None else users > cap


def metric_value(rows: Iterable[Row], metric: Metric) -> float | None:
    """The metric among one trial's rows: finite and above 0 (a cost may be 0).

    None where that load was not measured, the level is not comparable, or there is no such number.
    """
    for row in rows:
        if row.level is not None and row.level.load == metric.load:
            value = row.figure(metric)
            return value if row.comparable and metric.valid(value) else None
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
