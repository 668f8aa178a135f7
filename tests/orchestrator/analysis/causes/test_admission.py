"""What is said where requests waited instead of running."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from orchestrator.analysis.explain import explain
from orchestrator.analysis.finding import Finding
from orchestrator.analysis.rows import Row

Build = Callable[..., Row]


def only(found: list[Finding], kind: str) -> Finding:
    [finding] = [f for f in found if f.kind == kind]
    return finding


def test_more_users_than_the_server_admits_measured_the_queue(build_row: Build) -> None:
    """Nothing asked, 48 in force, 100 users."""
    speculative = {"speculative-algorithm": "EAGLE3"}
    rows = [
        build_row(1, 32, admits=48, flags=speculative),
        build_row(1, 100, admits=48, flags=speculative),
        build_row(2, 100, admits=128),
        build_row(3, 100),
    ]
    assert [row.admission_limited for row in rows] == [False, True, False, None]
    limited = only(explain(rows), "admission_limited")
    assert limited.data == {"concurrency": 100, "caps": {1: 48}, "unasked": [1], "queued_share": {}}
    assert limited.rows == ((1, "C=100"),)
    assert limited.text == (
        "At C=100 max-running-requests was 48 in 1 of 3 trials (trial 1): 52 of 100 requests queued, and what was "
        "measured holds that queue. Nobody asked for that in trial 1: SGLang itself set it so because it speculated."
    )


def test_a_cap_that_was_asked_for_is_nobody_elses(build_row: Build) -> None:
    rows = [build_row(1, 8, admits=4, flags={"max-running-requests": 4})]
    assert only(explain(rows), "admission_limited").data["unasked"] == []


def waited(row: Row, queue_ms: float) -> Row:
    assert row.level is not None
    metrics = dataclasses.replace(row.level.metrics, queue_time_ms=queue_ms)
    return dataclasses.replace(row, level=dataclasses.replace(row.level, metrics=metrics))


def test_the_queue_s_share_of_a_request_and_what_the_cap_cost_are_told(build_row: Build) -> None:
    rows = [
        waited(build_row(1, 8, 60.0, admits=4, flags={"max-running-requests": 4}), 450.0),
        build_row(2, 8, 100.0, admits=16, flags={"max-running-requests": 16}),
        # Another setting differs as well: nothing follows for the cap.
        build_row(3, 8, 300.0, admits=16, flags={"max-running-requests": 16, "schedule-policy": "lpm"}),
    ]
    limited = only(explain(rows), "admission_limited")
    assert limited.data["queued_share"] == {1: 0.5}
    assert round(limited.data["cap_moved_percent"]) == -40
    assert limited.text.endswith(
        "A request spent 50 % of its time in the queue. Of trials that differ in it alone, it moved throughput by "
        "-40.0 % (trial 1 against 2)."
    )


def with_pool(row: Row, tokens: int) -> Row:
    return dataclasses.replace(row, start=dataclasses.replace(row.start, effective_kv_tokens=tokens))


def test_a_pool_too_small_for_the_running_requests_is_told_with_the_need(build_row: Build) -> None:
    """Each of 24 requests is 512 + 128 tokens, and eight of them run."""
    [short] = [f for f in explain([with_pool(build_row(1, 8, admits=8), 5000)]) if f.kind == "kv_short"]
    assert "8 requests of 640 tokens need 5,120 in the KV pool at their ends, and it has 5,000" in short.text
    assert "may have waited" in short.text
    assert not [f for f in explain([with_pool(build_row(1, 8, admits=8), 5200)]) if f.kind == "kv_short"]
