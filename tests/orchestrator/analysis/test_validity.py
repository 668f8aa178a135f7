"""Which levels may be compared, and what is said of the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from orchestrator.analysis.findings import findings
from orchestrator.analysis.objectives import Metric
from orchestrator.analysis.rows import MeasuredLevel, Row, metric_value
from orchestrator.analysis.validity import client_limit
from orchestrator.offered_load import Load
from orchestrator.results.tables import measurements_table, rows_from
from orchestrator.workload import Arrivals, Level, Workload

Build = Callable[..., Row]


def changed(row: Row, figures: Mapping[str, Any] = {}, **level: Any) -> Row:
    assert row.level is not None
    metrics = dataclasses.replace(row.level.metrics, **figures)
    level = {"client_limited": client_limit(metrics, Workload()), **level}
    return dataclasses.replace(row, level=dataclasses.replace(row.level, metrics=metrics, **level))


def level(row: Row) -> MeasuredLevel:
    assert row.level is not None
    return row.level


RATE = Load(request_rate=2.0)


@pytest.mark.parametrize(
    ("load", "figures", "more", "says"),
    [
        (8, {"requests_failed": 1, "requests_total": 24, "first_error": "boom"}, {}, "1 of 24 requests failed: boom"),
        (8, {"requests_failed": 0, "requests_total": 0}, {}, "no request was measured"),
        (RATE, {"requests_failed": 0, "requests_total": 0}, {}, "no request's turn came within the window"),
        # A thousand successes hide eight failures in a row.
        (8, {"requests_failed": 8, "requests_total": 1008}, {"gave_up": "8 requests in a row failed"}, "given up: 8"),
        (8, {"client_cpu_share": 0.97}, {}, "it used 0.97 of its core"),
        (8, {"client_lag_ms": 81.0}, {}, "event loop ran 81 ms late"),
        (RATE, {"send_lag_ms_p99": 51.0}, {}, "it sent 51 ms late"),
        (
            RATE,
            {"requests_total": 100, "in_flight_at_open": 20, "in_flight_at_close": 60},
            {},
            "fell behind the offered load: 20 requests were in flight at the window's start, 60 at",
        ),
        (8, {}, {"cache_state": "warm"}, "in the prefix cache before"),
        (8, {}, {"cache_state": "unknown"}, "does not tell what was cached"),
        (8, {}, {"counters_after": {"generation_tokens_total": 9.0}}, "anew within the level (its counter generation"),
        (
            8,
            {},
            {
                "counters_before": {"process_start_time_seconds": 5.0},
                "counters_after": {"process_start_time_seconds": 6.0},
            },
            "its start time changed",
        ),
    ],
)
def test_a_level_that_measured_something_else_is_invalid_and_says_why(
    build_row: Build, load: int | Load, figures: dict[str, Any], more: dict[str, Any], says: str
) -> None:
    row = changed(build_row(1, load), figures, **more)
    assert says in (level(row).invalid_reason or "")
    assert not row.comparable
    [values] = measurements_table([row]).to_pylist()
    assert says in values["invalid_reason"]
    assert rows_from(measurements_table([row])) == [row]
    assert metric_value([row], Metric.parse(f"output_tokens_per_s@{level(row).load.text}")) is None


@pytest.mark.parametrize(
    ("load", "figures", "more"),
    [
        (8, {"requests_failed": 10, "requests_total": 1000}, {}),
        # Chance: of arrivals by Poisson some come together.
        (RATE, {"requests_total": 100, "in_flight_at_open": 20, "in_flight_at_close": 40}, {}),
        (RATE, {"requests_total": 2000, "in_flight_at_open": 20, "in_flight_at_close": 100}, {}),
        (8, {"client_cpu_share": 0.9, "client_lag_ms": 50.0}, {}),
        # A tenth of the mean gap of half a second.
        (RATE, {"send_lag_ms_p99": 50.0}, {}),
        (8, {}, {"cache_state": "unique"}),
        (8, {}, {"counters_before": {"num_running_reqs": 9.0}, "counters_after": {"num_running_reqs": 0.0}}),
        (8, {}, {"counters_before": {"x_seconds_total": 0.3}, "counters_after": {"x_seconds_total": 0.3 - 1e-12}}),
        (8, {}, {"counters_before": {"x_seconds_sum": 0.3}, "counters_after": {"x_seconds_sum": 0.1}}),
        (8, {}, {"counters_before": {"a_total": 9.0}, "counters_after": {}}),
    ],
)
def test_what_stays_within_the_limits_is_valid(
    build_row: Build, load: int | Load, figures: dict[str, Any], more: dict[str, Any]
) -> None:
    row = changed(build_row(1, load), figures, **more)
    assert level(row).invalid_reason is None
    assert row.comparable
    [values] = measurements_table([row]).to_pylist()
    assert values["invalid_reason"] is None


def test_every_reason_is_told(build_row: Build) -> None:
    row = changed(build_row(1, 8), {"client_cpu_share": 0.97, "client_lag_ms": 90.0}, cache_state="warm")
    assert (level(row).invalid_reason or "").count(";") == 2


def test_a_limit_of_ours_is_told_as_such_and_does_not_count_against_the_server(build_row: Build) -> None:
    row = changed(build_row(1, 8, 900.0), {"client_cpu_share": 0.97})
    assert level(row).server_failed is None
    found = [f for f in findings([build_row(0, 8, 100.0, role="baseline"), row]) if f.kind == "client_limited"]
    assert [f.text for f in found] == [
        "Trial 1 at C=8 is not compared: the load generator was the limit: it used 0.97 of its core."
    ]


def test_a_level_without_a_request_is_not_the_servers_failure_and_is_told(build_row: Build) -> None:
    row = changed(build_row(1, RATE), {"requests_failed": 0, "requests_total": 0, "first_error": "boom"})
    assert level(row).server_failed is None
    [found] = [f for f in findings([build_row(0, 8, 100.0, role="baseline"), row]) if f.kind == "unmeasured"]
    assert found.text.startswith("Trial 1 at 2 req/s has no figures: no request's turn came")
    assert "boom" in found.text


def test_a_level_that_ended_with_its_prompts_is_told_and_judged_by_what_it_has(build_row: Build) -> None:
    row = changed(build_row(1, 8), {"ended_by": "prompts"})
    assert row.comparable
    [found] = [f for f in findings([row]) if f.kind == "prompts_used_up"]
    assert "1 level(s) ended where the dataset's prompts did" in found.text
    cold = changed(row, {"ended_by": "prompts", "window_s": None})
    assert "used up before it had warmed up" in (level(cold).invalid_reason or "")


def test_a_level_that_was_given_up_is_the_servers_failure_alone(build_row: Build) -> None:
    row = changed(build_row(1, 8), {"requests_failed": 0, "requests_total": 0}, gave_up="8 requests in a row failed")
    assert level(row).server_failed == level(row).invalid_reason == "the level was given up: 8 requests in a row failed"
    assert [f for f in findings([row]) if f.kind == "unmeasured"] == []


def test_metrics_of_users_gpus_and_speculation_are_scored_as_well(build_row: Build) -> None:
    row = build_row(1, 8, 400.0, gpus=4, accept_length=2.5, effective={"speculative-num-steps": 3})
    row = changed(row, {"queue_time_ms": 0.0, "goodput_requests_per_s": 1.5})

    def value(text: str) -> float | None:
        return metric_value([row], Metric.parse(text))

    assert value("output_tokens_per_s_per_user@8") == 50.0
    assert value("output_tokens_per_s_per_gpu@8") == 100.0
    assert value("accept_rate@8") == 0.5
    assert value("goodput_requests_per_s@8") == 1.5
    # No queue at all is a value; no rate is none.
    assert value("queue_time_ms@8") == 0.0
    assert (
        metric_value([changed(row, {"goodput_requests_per_s": 0.0})], Metric.parse("goodput_requests_per_s@8")) is None
    )


def test_a_workload_may_set_the_limits_of_its_load_generator(build_row: Build) -> None:
    figures = {"client_cpu_share": 0.97, "client_lag_ms": 90.0, "send_lag_ms_p99": 90.0}
    metrics = level(changed(build_row(1, RATE), figures)).metrics
    wide = Workload(level=Level(max_client_cpu=1.0, max_client_lag_ms=100.0), arrivals=Arrivals(max_lag_ms=100.0))
    assert (client_limit(metrics, Workload()) or "").count(";") == 2
    assert client_limit(metrics, wide) is None
