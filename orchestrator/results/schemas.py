"""The Arrow schemas of the result files, explicit and versioned, with each column's unit and meaning.

A file's schema metadata names its schema and version. A column is never renamed, retyped or given another
unit under the same name: what changes is added as a new nullable column and the version goes up, so an older
file is read with nulls there.
"""

from __future__ import annotations

import pyarrow as pa

from orchestrator.results.table_schema import TableSchema, column

_TEXT, _INT, _REAL, _BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_ORDINAL = pa.int32()
_OUTPUTS = pa.list_(pa.list_(pa.int32()))
_TIME = pa.timestamp("us", tz="UTC")

_TRIAL = column("trial", _ORDINAL, "ordinal of the trial in the study, 0 for the baseline", required=True)
_SIMULATED = column("simulated", _BOOL, "measured on a simulated server", required=True)
_IDENTITY = column("identity", _TEXT, "hash of the canonical configuration", required=True)
_ROLE = column("role", _TEXT, "baseline, candidate, sentinel or confirmation", required=True)
_SETTINGS = (
    column("requested_flags", _TEXT, "server flags as asked for", json=True, required=True),
    column("requested_env", _TEXT, "environment as asked for", json=True, required=True),
    column("canonical_flags", _TEXT, "server flags after the server's own rewrites", json=True, required=True),
    column("canonical_env", _TEXT, "environment without inert parts", json=True, required=True),
)
_COMMAND = column("launch_command", _TEXT, "the start, ready to paste into a shell")

_RATE = column("request_rate", _REAL, "arrivals of the open loop; null for a closed one", unit="1/s")
_REPEAT = column("level_repeat", _ORDINAL, "0 for the first measurement of this load in this start")

LATENCY_STATS = ("mean", "p50", "p90", "p99")
_LATENCIES = {
    "ttft_ms": "time to first token",
    "tpot_ms": "time per output token after the first event, per request",
    "itl_ms": "gap between two streamed events (chunks), all requests pooled",
    "itl_per_token_ms": "gap between two events over the tokens of the later one, each token counted",
    "e2e_ms": "time of a whole request",
    "normalized_latency_ms": "time of a whole request over its output tokens",
}

MEASUREMENTS = TableSchema(
    "orchestrator.measurements",
    5,
    (
        column("study", _TEXT, "name of the study", required=True),
        column("study_id", _TEXT, "differs between studies of one name", required=True),
        _TRIAL,
        column("optuna_number", _ORDINAL, "number of the trial in the Optuna storage"),
        _ROLE,
        column("repeat", _ORDINAL, "0 for the first measurement of this configuration", required=True),
        column("repeats", _ORDINAL, "the trial whose configuration is started again; null in the search"),
        column("attempt", _ORDINAL, "which try at this trial, from 1", required=True),
        column("start_id", _TEXT, "the server start the level was measured on"),
        column("state", _TEXT, "of the trial: complete, failed, interrupted or infeasible", required=True),
        column("failure_kind", _TEXT, "class of the trial's failure"),
        column("failure_message", _TEXT, "what happened"),
        column("failure_phase", _TEXT, "phase of the start or the level in which it happened"),
        _SIMULATED,
        column("profile", _TEXT, "performance model of the simulated server"),
        _IDENTITY,
        *_SETTINGS,
        column("effective_settings", _TEXT, "read back from the server", json=True, required=True),
        column("effective_max_running_requests", _INT, "in force, all data-parallel ranks together"),
        column("effective_kv_tokens", _INT, "KV pool of one data-parallel rank", unit="tokens"),
        column("server_environment", _TEXT, "what the server's processes were started with", json=True),
        column("start_changes", pa.list_(_TEXT), "log lines of settings that the server changed"),
        column("rule_disagreements", pa.list_(_TEXT), "our rules against the server's resolver, new at this trial"),
        column(
            "differences", _TEXT, "settings not in force as asked: name, asked, expected, in_force, known", json=True
        ),
        _COMMAND,
        column("host", _TEXT, "host name of the node"),
        column("node_id", _TEXT, "Ray's id of the node"),
        column("gpus", _ORDINAL, "GPUs the server holds", required=True),
        column("gpu_names", pa.list_(_TEXT), "their models", required=True),
        column("versions", _TEXT, "versions by package", json=True, required=True),
        column("started_at", _TIME, "the server was spawned"),
        column("startup_s", _REAL, "spawn to ready; simulated seconds where simulated", unit="s"),
        column("startup_wall_s", _REAL, "spawn to ready by the wall clock", unit="s"),
        column("phase_s", _TEXT, "seconds by phase of the start", unit="s", json=True, required=True),
        column("teardown_s", _REAL, "first signal to last process gone", unit="s"),
        column("stop_proven", _BOOL, "nothing of the server was left"),
        column("stop_report", _TEXT, "how it was stopped and what was left", json=True),
        column("outputs", _OUTPUTS, "greedy answers to the fixed prompts, asked all at once", unit="token ids"),
        column("outputs_s", _REAL, "what the fixed prompts took, asked all at once and one by one", unit="s"),
        column("outputs_alone", _OUTPUTS, "the same asked one by one: of the baseline", unit="token ids"),
        column("output_agreement", _REAL, "share of the baseline's tokens that the answers repeat"),
        column("output_self_agreement", _REAL, "the same share of the baseline's own answers asked one by one"),
        column("output_differs", _BOOL, "the output is not the baseline's: its numbers are not compared"),
        column("concurrency", _ORDINAL, "users of the closed loop; null for an open one or no level at all"),
        _RATE,
        _REPEAT,
        column("measured_at", _TIME, "end of the level"),
        column("level_wall_s", _REAL, "the level whole: flush, warm-up, measuring", unit="s"),
        column("cache_state", _TEXT, "prefix cache before the level: flushed, unique, warm or unknown"),
        column("requests_total", _INT, "measured requests, warm-up excluded"),
        column("requests_failed", _INT, "of these, failed"),
        column("window_s", _REAL, "length of the window: of full concurrency in a closed loop", unit="s"),
        column("duration_s", _REAL, "length of the measured part, ramp and tail included", unit="s"),
        column("output_tokens_per_s", _REAL, "in the window", unit="tokens/s"),
        column("output_tokens_per_s_whole", _REAL, "over duration_s", unit="tokens/s"),
        column("output_tokens_per_s_per_user", _REAL, "output_tokens_per_s / concurrency", unit="tokens/s"),
        column(
            "output_tokens_per_s_half_width",
            _REAL,
            "of output_tokens_per_s: half of its 95 % interval within this start, by batch means",
            unit="tokens/s",
        ),
        column("output_tokens_per_s_per_gpu", _REAL, "output_tokens_per_s / gpus", unit="tokens/s"),
        column("total_tokens_per_s", _REAL, "prompt and output tokens, in the window", unit="tokens/s"),
        column("total_tokens_per_s_whole", _REAL, "prompt and output tokens, over duration_s", unit="tokens/s"),
        column("requests_per_s", _REAL, "successful requests over duration_s", unit="1/s"),
        column("offered_requests_per_s", _REAL, "requests sent, or whose turn came, in the window", unit="1/s"),
        column("completed_requests_per_s", _REAL, "successful requests that ended in the window", unit="1/s"),
        column("goodput_requests_per_s", _REAL, "requests that meet every bound of workload.slo", unit="1/s"),
        column("slo_attainment", _REAL, "share of the measured requests that meet them"),
        *(
            column(f"{name}_{stat}", _REAL, f"{meaning}, {stat}", unit="ms")
            for name, meaning in _LATENCIES.items()
            for stat in LATENCY_STATS
        ),
        column("accept_length", _REAL, "output tokens per verify step, bonus included", unit="tokens"),
        column("accept_rate", _REAL, "(accept_length - 1) / draft steps in force"),
        column("accept_source", _TEXT, "of accept_length: counters, responses or ranks"),
        column("accept_partial", _BOOL, "some data-parallel ranks told no acceptance length"),
        column("admission_limited", _BOOL, "concurrency is above effective_max_running_requests"),
        column("retracted_requests", _INT, "lost their place for want of KV memory; null where not told"),
        column("retraction_events", _INT, "times that this happened, by the log, all ranks' word for one counted once"),
        column("level_changes", pa.list_(_TEXT), "log lines of the level of settings changed or memory run short"),
        column("repeated_prompts", _INT, "requests whose prompt the level had sent before; null where not known"),
        column("prompt_tokens", _INT, "of successful measured requests", unit="tokens"),
        column("cached_tokens", _INT, "of these, found in the prefix cache", unit="tokens"),
        column("output_tokens", _INT, "of successful measured requests", unit="tokens"),
        column("queue_time_ms", _REAL, "mean time in the server's queue, by its histogram", unit="ms"),
        column("invalid_reason", _TEXT, "why the level's numbers are not compared; null for a valid one"),
        column("client_limited", _TEXT, "of this, why the load generator was the limit"),
        column("gave_up", _TEXT, "of this, why the level was given up before its end"),
        column("warmup_s", _REAL, "first request to the opening of the window", unit="s"),
        column("warmup_stable", _BOOL, "the rate was stable when the window opened; null where not asked"),
        column("ended_by", _TEXT, "what ended the window: requests, precise, max_requests, max_s or prompts"),
        column("client_cpu_share", _REAL, "CPU seconds of the load generator per second of the window; 1 is a core"),
        column("client_lag_ms", _REAL, "lateness of the load generator's event loop, p99", unit="ms"),
        column("counter_requests", _INT, "finished in the level whole, warm-up included, by the server's counters"),
        column("counter_prompt_tokens", _INT, "of these, by the server's counters", unit="tokens"),
        column("counter_output_tokens", _INT, "of these, by the server's counters", unit="tokens"),
        column("client_requests", _INT, "the same, counted by the load generator; null where a request failed"),
        column("client_prompt_tokens", _INT, "of these, by the load generator", unit="tokens"),
        column("client_output_tokens", _INT, "of these, by the load generator", unit="tokens"),
        column("send_lag_ms_p99", _REAL, "open loop: how much later than its turn a request was sent", unit="ms"),
        column("in_flight_at_open", _INT, "open loop: requests in flight or waiting when the window opened"),
        column("in_flight_at_close", _INT, "the same when the window closed"),
        column("first_error", _TEXT, "text of the first failed request"),
        column("errors", _TEXT, "failed requests by kind", json=True),
        column("counters_before", _TEXT, "server counters before the level", json=True),
        column("counters_after", _TEXT, "server counters after the level", json=True),
    ),
)

_CLOCK = "on the load generator's monotonic clock"
REQUESTS = TableSchema(
    "orchestrator.requests",
    2,
    (
        _TRIAL,
        column("attempt", _ORDINAL, "which try at this trial, from 1", required=True),
        column("start_id", _TEXT, "the server start it was sent to"),
        column("concurrency", _ORDINAL, "users of the closed loop; null for an open one"),
        _RATE,
        _REPEAT,
        column("index", _ORDINAL, "position among the level's requests", required=True),
        column("user", _ORDINAL, "the user that sent it, from 0", required=True),
        column("warmup", _BOOL, "sent before measuring, not counted", required=True),
        column("started_s", _REAL, f"sent, {_CLOCK}", unit="s", required=True),
        column("finished_s", _REAL, f"answered or failed, {_CLOCK}", unit="s", required=True),
        column(
            "event_s",
            pa.list_(_REAL),
            f"arrival of each event with output, {_CLOCK}",
            unit="s",
            required=True,
        ),
        column("event_tokens", pa.list_(_REAL), "output tokens after each event", unit="tokens", required=True),
        column("prompt_tokens", _INT, "server's count", unit="tokens"),
        column("cached_tokens", _INT, "of these, found in the prefix cache", unit="tokens"),
        column("output_tokens", _INT, "server's count", unit="tokens"),
        column("tokens_estimated", _BOOL, "the server gave no count", required=True),
        column("spec_verify_steps", _INT, "verify steps of speculative decoding"),
        column("finish_reason", _TEXT, "as the server says"),
        column("error", _TEXT, "null for a success"),
        column("error_kind", _TEXT, "class of the error"),
        column("error_code", _INT, "HTTP status or code of the error object"),
        column("warning", _TEXT, "what was odd about a success"),
        column("targeted_s", _REAL, f"its turn in an open loop, {_CLOCK}", unit="s"),
        column("window_start_s", _REAL, f"level: the window begins, {_CLOCK}", unit="s"),
        column("window_end_s", _REAL, f"level: the window ends, {_CLOCK}", unit="s"),
        column("span_start_s", _REAL, f"level: first measured request, {_CLOCK}", unit="s", required=True),
        column("span_end_s", _REAL, f"level: last measured request done, {_CLOCK}", unit="s", required=True),
        column("completed", _BOOL, "level: ran to its end", required=True),
        column("reasoning_tokens", _INT, "of output_tokens, those of thoughts, where the server tells", unit="tokens"),
    ),
)

#: No file: made for those who read a study, see `orchestrator.load_study`.
TRIALS = TableSchema(
    "orchestrator.trials",
    1,
    (
        _TRIAL,
        column("role", _TEXT, "baseline, candidate, sentinel or confirmation; null before its first level"),
        column("repeats", _ORDINAL, "the trial whose configuration is started again; null in the search"),
        column("state", _TEXT, "running, complete, failed, interrupted or infeasible", required=True),
        column("failure_kind", _TEXT, "class of the trial's failure"),
        column("failure_message", _TEXT, "what happened"),
        _SIMULATED,
        column("score", _REAL, "the study's score, in the unit of its metric; null where it may not be compared"),
        column(
            "feasible",
            _BOOL,
            "complete, scored and within the constraints; of a further start by the trial that it repeats where it did "
            "not measure their load, null where that is not there",
        ),
        column("output_differs", _BOOL, "the output is not the baseline's: its numbers are not compared"),
        column("levels", _ORDINAL, "levels measured so far"),
        column("started_at", _TIME, "the server was spawned"),
        column("startup_s", _REAL, "spawn to ready; simulated seconds where simulated", unit="s"),
        column("identity", _TEXT, "hash of the canonical configuration"),
        column("requested_flags", _TEXT, "server flags as asked for", json=True),
        column("requested_env", _TEXT, "environment as asked for", json=True),
        _COMMAND,
    ),
)

COUNTERS = TableSchema(
    "orchestrator.counters",
    1,
    (
        _TRIAL,
        column("attempt", _ORDINAL, "which try at this trial, from 1", required=True),
        column("start_id", _TEXT, "the server start that was read"),
        column("concurrency", _ORDINAL, "users of the closed loop; null for an open one"),
        _RATE,
        _REPEAT,
        column("t_s", _REAL, f"when it was read, {_CLOCK}", unit="s", required=True),
        column("name", _TEXT, "counter or gauge of /metrics, without prefix, over all labels", required=True),
        column("value", _REAL, "as the server has it", required=True),
    ),
)

PARETO = TableSchema(
    "orchestrator.pareto",
    1,
    (
        _TRIAL,
        _ROLE,
        _IDENTITY,
        _SIMULATED,
        column("objective_names", pa.list_(_TEXT), "metric@load", required=True),
        column(
            "objective_values",
            pa.list_(_REAL),
            "in the order of objective_names; of the baseline over its starts",
            required=True,
        ),
        column("directions", pa.list_(_TEXT), "maximize or minimize, in the same order", required=True),
        *_SETTINGS,
        _COMMAND,
    ),
)

FRONTIER = TableSchema(
    "orchestrator.frontier",
    2,
    (
        _TRIAL,
        _ROLE,
        _IDENTITY,
        _SIMULATED,
        column("state", _TEXT, "of the trial", required=True),
        column("concurrency", _ORDINAL, "users of the closed loop", required=True),
        column("tokens_per_s_per_user", _REAL, "output tokens", unit="tokens/s", required=True),
        column("tokens_per_s", _REAL, "output tokens; the baseline's over its starts", unit="tokens/s"),
        column("tokens_per_s_per_gpu", _REAL, "output tokens; null for a server without GPUs", unit="tokens/s"),
        column("on_front", _BOOL, "no other level is at least as good in both and better in one", required=True),
        *_SETTINGS,
        _COMMAND,
    ),
)

JOURNAL = TableSchema(
    "orchestrator.journal",
    1,
    (
        column("study", _TEXT, "name of the study", required=True),
        column("study_id", _TEXT, "differs between studies of one name", required=True),
        column("trial", _ORDINAL, "ordinal of the trial; null for what was not launched (yet)"),
        column("count", _ORDINAL, "how many starts or draws the line stands for", required=True),
        column("role", _TEXT, "baseline, candidate, sentinel or confirmation; of what was never launched, draw"),
        column("state", _TEXT, "pending, running, done, failed, infeasible or stopped", required=True),
        column("reason", _TEXT, "class of what happened; null for none"),
        column("finding", _TEXT, "what came of it, in a line", required=True),
        column("settings", _TEXT, "requested settings that the baseline has otherwise"),
        column("repeats", _ORDINAL, "the trial whose configuration is started again; null in the search"),
        column("repeat", _ORDINAL, "0 for the first measurement of this configuration", required=True),
        column("attempt", _ORDINAL, "which try at this trial, from 1"),
        column("score_name", _TEXT, "the study's score", required=True),
        column("score", _REAL, "its value; null where there is none that counts"),
        column("gain_percent", _REAL, "the score against the baseline's", unit="%"),
        column("gain_low_percent", _REAL, "lower end of its 95 % interval", unit="%"),
        column("gain_high_percent", _REAL, "upper end of its 95 % interval", unit="%"),
        column("accept_length", _REAL, "at the score's load: output tokens per verify step", unit="tokens"),
        _SIMULATED,
        column("started_at", _TIME, "its latest server was spawned"),
        column("measured_at", _TIME, "end of its last level"),
    ),
)

NOTES = TableSchema(
    "orchestrator.notes",
    1,
    (
        _TRIAL,
        column("written_at", _TIME, "when the note was added", required=True),
        column("text", _TEXT, "what a person has to say of the trial", required=True),
    ),
)
