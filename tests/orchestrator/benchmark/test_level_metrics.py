import dataclasses
import math
import statistics
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.benchmark.distribution import distribution, weighted_distribution
from orchestrator.benchmark.metrics import (
    accept_rate,
    acceptance,
    gaps_s,
    level_metrics,
    metric_value,
    queue_time_ms,
    tokens_per_gap,
    tpot_s,
    ttft_s,
    window_half_width,
    window_tokens_per_s,
)
from orchestrator.benchmark.records import Distribution, LevelRecord, RequestRecord
from orchestrator.offered_load import Load
from orchestrator.workload import Slo


def good(
    started_s: float, event_s: tuple[float, ...], tokens: int, *, counts: tuple[float, ...] = (), **other: Any
) -> RequestRecord:
    return RequestRecord(
        index=0,
        user=0,
        started_s=started_s,
        finished_s=event_s[-1],
        event_s=event_s,
        event_tokens=counts or tuple(tokens * (i + 1) / len(event_s) for i in range(len(event_s))),
        output_tokens=tokens,
        **{"warmup": False, **other},
    )


def bad(kind: str = "connect", finished_s: float = 1.0, error: str = "why", **other: Any) -> RequestRecord:
    return RequestRecord(
        0, 0, started_s=0.0, finished_s=finished_s, error=error, error_kind=kind, **{"warmup": False, **other}
    )


def level(
    *requests: RequestRecord,
    window_s: tuple[float, float] | None = None,
    span_s: tuple[float, float] = (0.0, 10.0),
    before: Mapping[str, float] = {},
    after: Mapping[str, float] = {},
) -> LevelRecord:
    return LevelRecord(
        load=Load(1),
        requests=requests,
        window_s=window_s,
        span_s=span_s,
        completed=True,
        counters_before=before,
        counters_after=after,
    )


def test_a_chunk_is_not_a_token() -> None:
    """Four chunks of three tokens: the time per token is not the gap between chunks."""
    request = good(0.0, (0.100, 0.110, 0.120, 0.130), 12)
    assert ttft_s(request) == pytest.approx(0.100)
    assert tpot_s(request) == pytest.approx(0.030 / 11)
    metrics = level_metrics(level(request))
    assert metrics.output_tokens == 12
    assert metrics.tpot_ms is not None
    assert metrics.itl_ms is not None
    assert metrics.tpot_ms.mean == pytest.approx(2.727, abs=0.001)
    assert metrics.itl_ms.mean == pytest.approx(10)


def test_an_answer_of_one_token_or_one_event_has_no_time_per_token() -> None:
    assert tpot_s(good(0, (1.0,), 1)) is None
    assert tpot_s(good(0, (1.0,), 5)) is None
    assert level_metrics(level(good(0, (1.0,), 1))).tpot_ms is None


def test_only_tokens_that_came_inside_the_window_count() -> None:
    before = good(0.0, (1.0, 2.0, 3.0, 4.0), 4)
    across = good(3.5, (4.0, 5.0, 6.0), 9, counts=(1, 5, 9))
    late = good(6.0, (8.0, 9.0), 2)
    # From 4.0 to 8.0: eight of `across`, one of `late`.
    assert window_tokens_per_s([before, across, late], (4.0, 8.0)) == pytest.approx(9 / 4)
    assert window_tokens_per_s([before, across, late], None) is None
    assert window_tokens_per_s([before], (5.0, 8.0)) is None


def steady(users: int, tokens: int, slow: float = 1.0) -> list[RequestRecord]:
    """Users in step at 10 tokens/s each, with the second half of the time slower by the factor."""
    half = tokens // 2
    stamps = [0.1 * n for n in range(1, half + 1)]
    stamps += [stamps[-1] + 0.1 * slow * n for n in range(1, tokens - half + 1)]
    return [good(0.0, tuple(stamps), tokens) for _ in range(users)]


def test_the_half_width_is_what_the_windows_own_unrest_makes_of_the_rate() -> None:
    even = window_half_width(steady(4, 640), (0.05, 64.05))
    assert even == pytest.approx(0, abs=0.2)
    # Two regimes are two batches, however many pieces they are cut into: 40 and 20 tokens/s, 26.7 on average.
    uneven = window_half_width(steady(4, 640, slow=2.0), (0.05, 96.05))
    assert uneven is not None
    assert uneven > 10


def test_a_window_of_few_events_has_no_half_width() -> None:
    assert window_half_width(steady(1, 31), (0.0, 3.2)) is None
    assert window_half_width(steady(1, 32), (0.0, 3.25)) is not None
    assert window_half_width(steady(1, 640), None) is None
    assert window_half_width([], (0.0, 1.0)) is None
    assert level_metrics(level(*steady(2, 320), window_s=(0.0, 32.0))).output_tokens_per_s_half_width is not None


@given(st.lists(st.floats(0.001, 10), min_size=1, max_size=20), st.lists(st.floats(0, 220), min_size=1, max_size=6))
def test_adjoining_windows_share_every_token_out_once(gaps: list[float], borders: list[float]) -> None:
    stamps = [sum(gaps[: i + 1]) for i in range(len(gaps))]
    request = good(0.0, tuple(stamps), 3 * len(stamps))
    cuts = sorted({0.0, *borders, stamps[-1] + 1})
    parts = [(window_tokens_per_s([request], (a, b)) or 0.0) * (b - a) for a, b in pairwise(cuts)]
    assert math.fsum(parts) == pytest.approx(3 * len(stamps))


def test_rates_over_the_whole_part_count_measured_successes_only() -> None:
    requests = [good(0, (1, 2), 10), good(0, (1, 4), 20), good(0, (1, 2), 100, warmup=True), bad()]
    metrics = level_metrics(level(*requests, span_s=(0.0, 5.0)))
    assert metrics.output_tokens_per_s_whole == 6
    assert metrics.requests_per_s == pytest.approx(0.4)
    assert (metrics.requests_total, metrics.requests_failed, metrics.output_tokens) == (3, 1, 30)
    assert metrics.e2e_ms is not None
    assert metrics.e2e_ms.mean == 3000


def test_failures_stay_out_of_every_latency_and_are_told_by_kind() -> None:
    failures = [
        bad("timeout", 9.0, "late"),
        bad("connect", 2.0, "first", warmup=True),
        bad("connect", 3.0),
        bad("cancelled", 1.0),
    ]
    metrics = level_metrics(level(good(0, (1, 2), 10), *failures))
    assert metrics.ttft_ms == Distribution(1000, 1000, 1000, 1000)
    assert (metrics.requests_total, metrics.requests_failed) == (3, 2)
    assert metrics.first_error == "first"
    assert metrics.errors_by_kind == {"connect": 2, "timeout": 1}


@pytest.mark.parametrize("requests", [[], [bad(), bad("http")], [bad("cancelled")]])
@pytest.mark.parametrize("span_s", [(0.0, 0.0), (0.0, 5.0)])
def test_a_level_without_a_success_has_no_numbers(requests: list[RequestRecord], span_s: tuple[float, float]) -> None:
    metrics = level_metrics(level(*requests, window_s=(0.0, 1.0), span_s=span_s))
    for name in (
        "output_tokens_per_s", "output_tokens_per_s_whole", "requests_per_s", "ttft_ms", "tpot_ms", "itl_ms",
        "e2e_ms", "accept_length", "prompt_tokens", "cached_tokens", "output_tokens",
    ):  # fmt: skip
        assert getattr(metrics, name) is None, name


def test_prompt_and_cached_tokens_are_summed_over_those_that_tell() -> None:
    told = [good(0, (1, 2), 2, prompt_tokens=5, cached_tokens=0), good(0, (1, 2), 2, prompt_tokens=7)]
    metrics = level_metrics(level(*told))
    assert (metrics.prompt_tokens, metrics.cached_tokens) == (12, 0)


def test_a_part_that_took_no_time_has_no_rates() -> None:
    metrics = level_metrics(level(good(0, (0.0, 0.0), 10), span_s=(0.0, 0.0)))
    assert (metrics.requests_per_s, metrics.output_tokens_per_s_whole) == (None, None)
    assert metrics.output_tokens == 10


# Acceptance length


def steps(tokens: int, verified: int | None) -> RequestRecord:
    return good(0, (1, 2), tokens, spec_verify_steps=verified)


def length(record: LevelRecord) -> float | None:
    found = acceptance(record)
    return found.length if found else None


def test_acceptance_length_of_requests_is_weighted_by_their_steps() -> None:
    assert length(level(steps(300, 100), steps(600, 300))) == 2.25
    assert length(level(steps(512, 128))) == 4.0
    assert length(level(steps(512, 128), steps(100, None))) == 4.0
    assert length(level(steps(512, None))) is None
    assert length(level()) is None


def test_acceptance_length_comes_from_the_counters_where_the_server_has_them() -> None:
    before = {"generation_tokens_total": 100.0, "spec_verify_calls_total": 50.0}
    after = {"generation_tokens_total": 465.0, "spec_verify_calls_total": 150.0}
    assert length(level(steps(512, 128), before=before, after=after)) == 3.65


@pytest.mark.parametrize(
    "after",
    [
        {"generation_tokens_total": 5.0, "spec_verify_calls_total": 2.0},
        {"generation_tokens_total": 200.0, "spec_verify_calls_total": 50.0},
        {"generation_tokens_total": 200.0},
        {},
    ],
)
def test_counters_of_a_restarted_or_unspeculative_server_tell_no_acceptance(after: dict[str, float]) -> None:
    before = {"generation_tokens_total": 100.0, "spec_verify_calls_total": 50.0}
    assert length(level(steps(512, None), before=before, after=after)) is None
    assert length(level(steps(512, 128), before=before, after=after)) == 4.0


def test_acceptance_length_of_ranks_is_the_last_resort_and_told_as_such() -> None:
    ranks = [{"avg_spec_accept_length": 3.0}, None]
    found = level_metrics(level(steps(512, None)), ranks)
    assert (found.accept_length, found.accept_source, found.accept_partial) == (3.0, "ranks", True)
    found = level_metrics(level(steps(512, 128)), ranks)
    assert (found.accept_length, found.accept_source, found.accept_partial) == (4.0, "responses", False)
    found = level_metrics(level(steps(512, None)), [None, {}])
    assert (found.accept_length, found.accept_source, found.accept_partial) == (None, None, None)


# Distributions


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=200))
def test_percentiles_agree_with_the_standard_library(values: list[float]) -> None:
    found = distribution(values)
    assert found is not None
    hundredths = statistics.quantiles(values, n=100, method="inclusive")
    assert found.mean == pytest.approx(statistics.fmean(values))
    for percent, value in ((50, found.p50), (90, found.p90), (99, found.p99)):
        assert value == pytest.approx(hundredths[percent - 1])


def test_a_distribution_of_one_value_is_that_value_and_of_none_is_none() -> None:
    assert distribution([7.0]) == Distribution(7, 7, 7, 7)
    assert distribution([]) is None


# Metrics by name


def test_metrics_are_found_by_name_and_statistic() -> None:
    metrics = level_metrics(level(good(0, (1, 2), 10), window_s=(0.0, 2.0)))
    assert metric_value(metrics, "output_tokens_per_s") == 5
    assert metric_value(metrics, "ttft_ms", "p99") == 1000
    assert metric_value(metrics, "accept_length") is None
    assert metric_value(level_metrics(level()), "ttft_ms", "p99") is None


@pytest.mark.parametrize(
    ("name", "stat"), [("speed", None), ("ttft_ms", None), ("ttft_ms", "p42"), ("requests_per_s", "p50")]
)
def test_a_metric_that_does_not_exist_is_an_error(name: str, stat: str | None) -> None:
    metrics = level_metrics(level(good(0, (1, 2), 10)))
    with pytest.raises(ValueError, match="no"):
        metric_value(metrics, name, stat)


# What else a request and a window are measured by


def test_the_time_between_tokens_counts_each_token_of_a_chunk() -> None:
    """Chunks of 1, 3 and 2 tokens: the first ends no gap, of three tokens each waited 10 ms, of two 30 ms."""
    request = good(0.0, (0.1, 0.13, 0.19), 6, counts=(1.0, 4.0, 6.0))
    assert gaps_s(request) == pytest.approx([0.03, 0.06])
    assert tokens_per_gap(request).tolist() == [3, 2]
    found = level_metrics(level(request)).itl_per_token_ms
    assert found is not None
    assert found.mean == pytest.approx((3 * 10 + 2 * 30) / 5)
    assert found.p50 == pytest.approx(10)
    assert found.p99 == pytest.approx(30)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 9)), min_size=1, max_size=60))
def test_a_weighted_distribution_is_that_of_the_values_written_out(pairs: list[tuple[float, int]]) -> None:
    written_out = distribution([value for value, count in pairs for _ in range(count)])
    weighted = weighted_distribution(np.array([v for v, _ in pairs]), np.array([n for _, n in pairs]))
    assert written_out is not None
    assert weighted is not None
    assert dataclasses.astuple(weighted) == pytest.approx(dataclasses.astuple(written_out))
    assert weighted_distribution(np.empty(0), np.empty(0, np.int64)) is None


def test_normalized_latency_is_the_whole_time_per_token() -> None:
    found = level_metrics(level(good(0.0, (3.0, 4.0), 8))).normalized_latency_ms
    assert found is not None
    assert found.mean == pytest.approx(500)


def test_prompts_count_in_the_window_in_which_their_first_output_came() -> None:
    before = good(0.0, (1.0, 5.0), 2, prompt_tokens=1000)
    inside = good(3.0, (4.5, 6.0), 4, counts=(1.0, 4.0), prompt_tokens=100)
    metrics = level_metrics(level(before, inside, window_s=(4.0, 6.0)))
    # A quarter of a token of the first, whose event ends a gap of four seconds.
    assert metrics.output_tokens_per_s == pytest.approx(4.25 / 2)
    assert metrics.total_tokens_per_s == pytest.approx((4.25 + 100) / 2)
    assert metrics.total_tokens_per_s_whole == pytest.approx((6 + 1100) / 10)
    untold = dataclasses.replace(inside, prompt_tokens=None)
    assert level_metrics(level(before, untold, window_s=(4.0, 6.0))).total_tokens_per_s is None


def test_what_was_sent_before_an_open_loops_window_counts_in_its_throughput_and_in_no_latency() -> None:
    early = good(0.0, (1.0, 5.0), 2, warmup=True, targeted_s=0.0)
    inside = good(4.5, (6.0, 7.0), 2, targeted_s=4.48)
    late = good(7.5, (9.0, 9.5), 2, targeted_s=7.5)
    record = dataclasses.replace(level(early, inside, late, window_s=(4.0, 8.0)), load=Load(request_rate=0.5))
    metrics = level_metrics(record)
    # A quarter of the last token of `early`.
    assert metrics.output_tokens_per_s == pytest.approx(2.25 / 4)
    assert (metrics.offered_requests_per_s, metrics.completed_requests_per_s) == (0.5, 0.5)
    assert metrics.ttft_ms is not None
    assert metrics.ttft_ms.mean == pytest.approx(1500)
    assert metrics.requests_total == 2
    assert (metrics.in_flight_at_open, metrics.in_flight_at_close) == (1, 1)
    assert metrics.send_lag_ms_p99 == pytest.approx(19.8)


def test_goodput_counts_requests_that_meet_every_bound() -> None:
    slo = Slo(ttft_ms=500, tpot_ms=100)
    meets_all = good(0.0, (0.4, 1.4), 11)
    slow_start = good(0.0, (0.6, 1.4), 11)
    slow_going = good(0.0, (0.4, 1.5), 11)
    one_token = good(0.0, (0.4,), 1)
    record = level(meets_all, slow_start, slow_going, one_token, bad(), window_s=(0.0, 4.0))
    metrics = level_metrics(record, slo=slo)
    assert metrics.goodput_requests_per_s == 0.5
    assert metrics.slo_attainment == 0.4
    assert level_metrics(record, slo=Slo(e2e_ms=1)).goodput_requests_per_s == 0.0
    assert level_metrics(record).goodput_requests_per_s is None
    # Of a closed loop those that end in the window, of an open one those whose turn is in it.
    short = dataclasses.replace(record, window_s=(0.0, 1.0))
    assert level_metrics(short, slo=slo).goodput_requests_per_s == 1.0
    opened = dataclasses.replace(short, load=Load(request_rate=5.0))
    assert level_metrics(opened, slo=slo).goodput_requests_per_s == 2.0


def test_queue_time_is_the_servers_own() -> None:
    before = {"queue_time_seconds_sum": 1.0, "queue_time_seconds_count": 10.0}
    after = {"queue_time_seconds_sum": 3.0, "queue_time_seconds_count": 50.0}
    assert queue_time_ms(before, after) == pytest.approx(50)
    assert queue_time_ms(before, before) is None
    assert queue_time_ms({}, after) is None


def test_the_share_of_draft_steps_that_are_accepted() -> None:
    assert accept_rate(2.5, 3) == 0.5
    assert accept_rate(4.1, 3) == 1.0
    assert accept_rate(None, 3) is None
    assert accept_rate(2.5, None) is None


def test_server_and_client_count_the_level_whole_unless_a_request_failed() -> None:
    told = [good(0, (1, 2), 10, prompt_tokens=5, warmup=True), good(0, (1, 2), 20, prompt_tokens=7)]
    before = {"num_requests_total": 3.0, "generation_tokens_total": 16.0, "prompt_tokens_total": 1.0}
    after = {"num_requests_total": 5.0, "generation_tokens_total": 46.0, "prompt_tokens_total": 13.0}
    metrics = level_metrics(level(*told, before=before, after=after))
    assert (metrics.counter_requests, metrics.client_requests) == (2, 2)
    assert (metrics.counter_prompt_tokens, metrics.client_prompt_tokens) == (12, 12)
    assert (metrics.counter_output_tokens, metrics.client_output_tokens) == (30, 30)
    for other in (bad(), bad("cancelled"), good(0, (1, 2), 10, tokens_estimated=True)):
        metrics = level_metrics(level(*told, other, before=before, after=after))
        assert (metrics.client_requests, metrics.client_output_tokens) == (None, None)
