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
from orchestrator.benchmark.counters import Flush, delta
from orchestrator.benchmark.records import Distribution, LevelMetrics

#: complete: all levels measured; failed: a launch or a level failed; infeasible: the setting cannot run
#: at all; interrupted: the trial is run again, since the sweep ended first or, with a failure_kind, since another
#: start may not meet what failed.
State = Literal["complete", "failed", "interrupted", "infeasible"]
#: flushed: the flush was confirmed (status 200 while idle); unique: no prompt was sent to this start before;
#: warm: prompts may be cached from an earlier level; unknown: the flush was not confirmed.
CacheState = Literal["flushed", "unique", "warm", "unknown"]

#: Above this share of prompt tokens found in the prefix cache, a level that no confirmed flush preceded is warm:
#: prompts share no more than the tokens they begin with.
MAX_CACHED_SHARE = 0.05
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
    #: Lines of the log of this level in which the server says that it changed a setting or ran short.
    level_changes: tuple[str, ...] = ()
    #: How often, by the same log, requests lost their place for want of KV memory; None where nobody looked.
    retraction_events: int | None = None
    #: Requests whose prompt the level had sent before, since the dataset has no more; None where not known.
    repeated_prompts: int | None = None

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
    def retracted_requests(self) -> int | None:
        """Requests that lost their place for want of KV memory; None where the server does not tell."""
        rise = delta(self.counters_before, self.counters_after, "num_retracted_requests_total")
        return None if rise is None else int(rise)

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
    def admission_limited(self) -> bool | None:
        """Whether the level had more users than the server runs at once; None where that is not known."""
        cap = self.start.effective_max_running_requests
        return None if cap is None or self.level is None else self.level.concurrency > cap


def cache_state(
    flush: Flush, metrics: LevelMetrics, before: Mapping[str, float], after: Mapping[str, float]
) -> CacheState:
    """State of the prefix cache before a level, from the flush and from what the level found cached.

    The answers tell cached tokens where the server reports them, its counters otherwise.
    """
    if flush == "flushed":
        return "flushed"
    cached: float | None = metrics.cached_tokens
    prompt: float | None = metrics.prompt_tokens
    if cached is None:
        cached = delta(before, after, "cached_tokens_total")
        prompt = delta(before, after, "prompt_tokens_total")
    return "warm" if cached and prompt and cached / prompt > MAX_CACHED_SHARE else "unknown"


def metric_value(rows: Iterable[Row], metric: Metric) -> float | None:
    """The metric among one trial's rows: finite and above 0.

    None where that concurrency was not measured, the level is not comparable, or there is no such number.
    """
    for row in rows:
        if row.level is not None and row.level.concurrency == metric.concurrency:
            value = getattr(row.level.metrics, metric.name)
            if isinstance(value, Distribution) and metric.stat is not None:
                value = getattr(value, metric.stat)
            return float(value) if row.comparable and valid(value) else None
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
