"""What the load generator observes, raw: stamps and counts. Every metric is computed from these later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.offered_load import Load


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request, as its client saw it. Stamps are monotonic seconds of one clock; absent is None."""

    #: Position among the level's requests, warm-up included.
    index: int
    #: The closed-loop user that sent it, 0 to concurrency - 1; 0 in an open loop.
    user: int
    #: Finished before the window opened, or in an open loop sent before that: not measured.
    warmup: bool
    started_s: float
    finished_s: float
    #: Arrival of each event that carried output (role-only deltas, comments and usage frames do not count).
    event_s: tuple[float, ...] = ()
    #: Output tokens received in all, after each event. The server's own count where it gives one per event;
    #: else the final usage spread evenly over the events.
    event_tokens: tuple[float, ...] = ()
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    #: The server's count (usage or meta_info). None for a failed request: nothing is credited.
    output_tokens: int | None = None
    #: The count is an estimate: the server gave no usage.
    tokens_estimated: bool = False
    #: Verify steps of speculative decoding, where the response tells (native API).
    spec_verify_steps: int | None = None
    #: Of the output tokens, those of a reasoning model's thoughts, where the server tells.
    reasoning_tokens: int | None = None
    finish_reason: str | None = None
    #: None for a success, else what happened in one line.
    error: str | None = None
    #: A short class of the error: http, stream_error, cut, empty, timeout, connect, cancelled.
    error_kind: str | None = None
    #: HTTP status or the error object's code.
    error_code: int | None = None
    warning: str | None = None
    #: When its turn was, in an open loop.
    targeted_s: float | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the answer was whole, with at least one token."""
        return self.error_kind is None


@dataclass(frozen=True, slots=True)
class Reading:
    """The server's counters and gauges at one instant of the load generator's clock."""

    t_s: float
    #: As those of `LevelRecord`.
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Conduct:
    """How a level went, apart from its requests."""

    #: From the first request to the opening of the window.
    warmup_s: float | None = None
    #: Whether the rate was stable when the window opened; None where that was not asked.
    warmup_stable: bool | None = None
    #: What ended the window: see `schedule.Ending`.
    ended_by: str | None = None
    #: CPU seconds of the load generator's process per second of the window; 1 is a core.
    client_cpu_share: float | None = None
    #: How late the timers of its event loop fired in the window, 99th percentile.
    client_lag_ms: float | None = None


@dataclass(frozen=True, slots=True)
class LevelRecord:
    """One measured level: its requests and the server's counters on both sides."""

    load: Load
    requests: tuple[RequestRecord, ...]
    #: The window, monotonic seconds. Of a closed loop that of full concurrency: from the moment every user is past
    #: its warm-up until the first user finds no request left; of an open loop from the end of the warm-up to the last
    #: turn. None where that was never reached, or the level cut short.
    window_s: tuple[float, float] | None
    #: The measured part whole, ramp and tail included: first measured request sent to last one finished.
    span_s: tuple[float, float]
    #: Whether the level ran to its end (False: cancelled).
    completed: bool
    #: Why the level was given up before its end, if it was: every request failed, or was refused alike.
    gave_up: str | None = None
    #: /metrics counters and gauges, summed over labels, prefix removed; empty where not to be had.
    counters_before: Mapping[str, float] = field(default_factory=dict)
    counters_after: Mapping[str, float] = field(default_factory=dict)
    #: The same about once a second in between.
    series: tuple[Reading, ...] = ()
    conduct: Conduct = Conduct()

    @property
    def unreachable(self) -> bool:
        """Whether no request found anyone to take it, as far as it was let to."""
        return {request.error_kind for request in self.requests} - {"cancelled"} == {"connect"}


@dataclass(frozen=True, slots=True)
class Distribution:
    """Mean and percentiles (linear interpolation) of one quantity."""

    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class LevelMetrics:
    """The metrics of one level. Latencies in milliseconds, over successful measured requests only."""

    load: Load
    requests_total: int
    requests_failed: int
    #: Length of the window of full concurrency.
    window_s: float | None
    #: Length of the measured part, ramp and tail included.
    duration_s: float
    #: Output tokens of successful requests received inside the window, per second of it.
    output_tokens_per_s: float | None
    #: Output tokens of all measured successful requests over `duration_s`, as sglang.benchmark.serving does.
    output_tokens_per_s_whole: float | None
    #: Successful measured requests over `duration_s`: of the whole measured part, ramp and tail included.
    requests_per_s: float | None
    ttft_ms: Distribution | None
    #: Per request: (last event - first event) / (output tokens - 1), as sglang.benchmark.serving has it.
    tpot_ms: Distribution | None
    #: Gaps between events (chunks), all requests pooled. With speculation a chunk is several tokens: for the time
    #: between tokens see `itl_per_token_ms`.
    itl_ms: Distribution | None
    e2e_ms: Distribution | None
    #: Output tokens per verify step, bonus included. None without speculation or where it cannot be told.
    accept_length: float | None
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    #: Error text of the first failure and how often each kind came, warm-up included, for the record.
    first_error: str | None = None
    errors_by_kind: Mapping[str, int] = field(default_factory=dict)
    #: Where accept_length comes from: see `acceptance.Source`.
    accept_source: str | None = None
    #: Whether some data-parallel ranks told no acceptance length.
    accept_partial: bool | None = None
    #: Half of the 95 % interval of `output_tokens_per_s` within this start; None where too few events came.
    output_tokens_per_s_half_width: float | None = None
    #: Prompt and output tokens, in the window and over `duration_s`.
    total_tokens_per_s: float | None = None
    total_tokens_per_s_whole: float | None = None
    #: Requests sent (in an open loop: whose turn came) and successes ended inside the window, per second of it.
    offered_requests_per_s: float | None = None
    completed_requests_per_s: float | None = None
    #: Requests that meet every objective of the workload, per second of the window; None without objectives.
    goodput_requests_per_s: float | None = None
    #: And their share of the measured ones.
    slo_attainment: float | None = None
    #: Gap between events over the tokens of the later one, each token counted.
    itl_per_token_ms: Distribution | None = None
    #: Time of the whole request over its output tokens.
    normalized_latency_ms: Distribution | None = None
    #: Mean time in the server's queue, by its own histogram, warm-up included.
    queue_time_ms: float | None = None
    #: The server's own counts of the level whole, warm-up included, and the load generator's; None where it cannot
    #: know them all, since a request failed, was cancelled, or told no count.
    counter_requests: int | None = None
    counter_prompt_tokens: int | None = None
    counter_output_tokens: int | None = None
    client_requests: int | None = None
    client_prompt_tokens: int | None = None
    client_output_tokens: int | None = None
    #: Of an open loop: requests whose turn had come and that had not ended, when the window opened and when it closed.
    in_flight_at_open: int | None = None
    in_flight_at_close: int | None = None
    #: How much later than its turn a request of an open loop was sent, 99th percentile.
    send_lag_ms_p99: float | None = None
    #: See `Conduct`.
    warmup_s: float | None = None
    warmup_stable: bool | None = None
    ended_by: str | None = None
    client_cpu_share: float | None = None
    client_lag_ms: float | None = None
