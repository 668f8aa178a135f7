"""Metrics, objectives and constraints from text."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.analysis.objectives import (
    COSTS,
    LATENCIES,
    RATES,
    STATS,
    Constraint,
    Metric,
    Objective,
    parse_constraint,
    parse_objective,
    valid,
)
from orchestrator.offered_load import Load
from orchestrator.results.schemas import MEASUREMENTS

LOADS = st.integers(1, 1024).map(Load) | st.integers(1, 99_999).map(lambda n: Load(request_rate=n / 1000))
METRICS = st.one_of(
    st.builds(Metric, st.sampled_from((*RATES, *COSTS)), st.none(), LOADS),
    st.builds(Metric, st.sampled_from(LATENCIES), st.sampled_from(STATS), LOADS),
)


@given(METRICS)
def test_a_metric_survives_its_text_and_is_a_column_of_the_measurements(metric: Metric) -> None:
    assert Metric.parse(str(metric)) == metric
    assert metric.column in MEASUREMENTS.arrow.names


@given(METRICS, st.sampled_from(["<=", ">="]), st.floats(-1e12, 1e12))
def test_a_constraint_survives_its_text(metric: Metric, op: str, bound: float) -> None:
    constraint = Constraint(metric, op, bound)  # type: ignore[arg-type]
    assert parse_constraint(str(constraint)) == constraint


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ttft_ms@32", "ttft_ms.p99"),
        ("ttft_ms.p95@32", "mean, p50, p90, p99"),
        ("output_tokens_per_s.p50@1", "drop .p50"),
        ("outptu_tokens_per_s@1", "did you mean output_tokens_per_s?"),
        ("ttft.p99@1", "did you mean ttft_ms?"),
        ("output_tokens_per_s", "write output_tokens_per_s@128"),
        ("output_tokens_per_s@0", "1 or more"),
        ("output_tokens_per_s@1.5", "is no metric"),
        ("ttft_ms.p99@0rps", "above 0"),
        ("ttft_ms.p99@2.0005rps", "3 decimals"),
        ("", "is no metric"),
        ("__import__('os')@1", "unknown metric"),
    ],
)
def test_a_wrong_metric_is_refused_with_what_could_stand_there(text: str, says: str) -> None:
    with pytest.raises(ValueError) as error:
        Metric.parse(text)
    assert says in str(error.value)


def test_more_tokens_are_better_and_less_latency() -> None:
    assert Objective(Metric.parse("output_tokens_per_s@1")).direction == "maximize"
    assert Objective(Metric.parse("e2e_ms.mean@1")).direction == "minimize"
    assert parse_objective("e2e_ms.mean@1") == parse_objective(" minimize  e2e_ms.mean@1 ")
    assert parse_objective("maximize e2e_ms.mean@1").direction == "maximize"
    assert parse_objective("minimize ttft_ms.p50@8").better(10.0, than=11.0)
    assert not parse_objective("minimize ttft_ms.p50@8").better(10.0, than=10.0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("maximise output_tokens_per_s@1", "did you mean maximize?"),
        ("maximize output_tokens_per_s@1 please", "is no objective"),
        ("", "is no objective"),
    ],
)
def test_a_wrong_objective_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_objective(text)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ttft_ms.p99@32 < 4000", "'<' is not known; a constraint is written with <= or >="),
        ("ttft_ms.p99@32 == 4000", "'==' is not known"),
        ("ttft_ms.p99@32 <= 4s", "without a unit"),
        ("ttft_ms.p99@32 <= inf", "without a unit"),
        ("ttft_ms.p99@32 <= 1e999", "without a unit"),
        ("ttft_ms.p99@32", "is no constraint"),
        ("ttft_ms@32 <= 1", "ttft_ms.p99"),
    ],
)
def test_a_wrong_constraint_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_constraint(text)
    assert says in str(error.value)


def test_a_violation_has_the_bounds_unit_and_the_bound_itself_is_feasible() -> None:
    at_most, at_least = parse_constraint("ttft_ms.p99@32<=4000"), parse_constraint("requests_per_s@32 >= 2")
    assert at_most.violation(4100.0) == 100.0
    assert at_most.violation(4000.0) == 0.0
    assert at_most.violation(3000.0) == -1000.0
    assert at_least.violation(1.5) == 0.5
    assert at_least.violation(3.0) == -1.0


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf, 0.0, -1.0])
def test_only_a_finite_value_above_zero_may_be_scored(value: float | None) -> None:
    assert not valid(value)
    assert parse_constraint("ttft_ms.p99@32 <= 4000").violation(value) == math.inf
    assert valid(1e-9)
