"""What the findings say of the servers: settings, output, failures."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from orchestrator.analysis.finding import Finding
from orchestrator.analysis.findings import findings
from orchestrator.analysis.rows import Row

Build = Callable[..., Row]


def only(found: list[Finding], kind: str) -> Finding:
    [finding] = [f for f in found if f.kind == kind]
    return finding


def kinds(found: list[Finding]) -> set[str]:
    return {f.kind for f in found}


def test_a_setting_that_runs_otherwise_is_told_once_for_all_its_trials(build_row: Build) -> None:
    asked = {"max-running-requests": 128, "chunked-prefill-size": 4096}
    running = {"max-running-requests": 128, "chunked-prefill-size": 4096}
    rows = [build_row(n, c, flags=asked, effective=running, admits=48) for n in (1, 2) for c in (1, 8)]
    found = findings(rows)
    told = only(found, "setting_unexpected")
    assert told.text == "max-running-requests asked 128, in force 48 (trials 1, 2); no rule explains it."
    assert told.data == {"name": "max-running-requests", "asked": 128, "in_force": 48, "trials": [1, 2]}
    assert "setting_rewritten" not in kinds(found)


def test_a_rewrite_that_the_rules_know_is_told_as_one(build_row: Build) -> None:
    row = build_row(1, 8, effective={"speculative-num-draft-tokens": 6})
    trial = dataclasses.replace(
        row.trial,
        requested_flags={"speculative-num-draft-tokens": 4},
        canonical_flags={"speculative-num-draft-tokens": 6},
    )
    told = only(findings([dataclasses.replace(row, trial=trial)]), "setting_rewritten")
    assert told.text == "speculative-num-draft-tokens asked 4, in force 6 (trial 1)."


def test_a_faster_server_with_another_output_is_flagged_and_never_crowned(build_row: Build) -> None:
    rows = [
        build_row(0, 8, 100.0, role="baseline"),
        build_row(1, 8, 900.0, agreement=0.05, self_agreement=0.97, differs=True),
        build_row(2, 8, 110.0, agreement=0.95, self_agreement=0.97, differs=False),
    ]
    found = findings(rows)
    assert only(found, "beats_baseline").data["trial"] == 2
    told = only(found, "output_differs")
    assert told.data == {"trial": 1, "agreement": 0.05, "self_agreement": 0.97}
    assert "5 % are the same" in told.text
    assert "97 %" in told.text


def test_lossy_thresholds_are_named_as_the_reason(build_row: Build) -> None:
    flags = {"speculative-algorithm": "EAGLE", "speculative-accept-threshold-single": 0.4}
    rows = [build_row(1, 8, flags=flags, agreement=1.0, self_agreement=1.0, differs=True)]
    assert "thresholds are below 1" in only(findings(rows), "output_differs").text


def test_output_that_could_not_be_compared_is_said_where_something_was_measured(build_row: Build) -> None:
    rows = [
        build_row(1, 8, differs=None),
        build_row(2, None, differs=None, state="failed", failure_kind="out_of_memory"),
    ]
    assert only(findings(rows), "output_unchecked").data == {"trials": [1]}


def test_an_acceptance_length_of_some_ranks_only_is_told(build_row: Build) -> None:
    rows = [build_row(1, 8, accept_length=3.7, accept_partial=True), build_row(2, 8, accept_length=3.0)]
    assert only(findings(rows), "accept_partial").data == {"levels": [(1, "C=8")]}


def test_retracted_requests_leftovers_and_wrong_rules_are_told(build_row: Build) -> None:
    row = build_row(1, 8)
    assert row.level is not None
    level = dataclasses.replace(
        row.level,
        counters_before={"num_retracted_requests_total": 2.0},
        counters_after={"num_retracted_requests_total": 7.0},
    )
    start = dataclasses.replace(row.start, stop_proven=False, rule_disagreements=("topk 2 is taken after all",))
    found = findings([dataclasses.replace(row, level=level, start=start), build_row(2, 8)])
    assert only(found, "retracted_requests").data["retracted"] == 5
    assert only(found, "not_stopped").data == {"trials": [1]}
    assert "topk 2 is taken after all" in only(found, "rules_disagree").text


def test_failed_trials_are_grouped_by_class(build_row: Build) -> None:
    rows = [
        build_row(4, None, state="failed", failure_kind="crashed", failure_message="it died"),
        build_row(5, 1, state="failed", failure_kind="crashed"),
        build_row(5, 8, state="failed", failure_kind="crashed"),
        build_row(6, None, state="infeasible", failure_kind="out_of_memory"),
        build_row(7, 1, state="interrupted"),
    ]
    texts = [f.text for f in findings(rows) if f.kind == "failed_trials"]
    assert texts == [
        "2 trial(s) failed (crashed): trials 4, 5. The first: it died",
        "1 trial(s) cannot run (out_of_memory): trial 6.",
    ]


def test_a_level_with_failed_requests_is_told_and_its_throughput_not_used(build_row: Build) -> None:
    found = findings(
        [
            build_row(0, 8, 100.0, role="baseline"),
            build_row(1, 8, 900.0, failed=12, total=24),
            build_row(2, 8, 90.0, failed=1, total=1000),
        ]
    )
    assert only(found, "nothing_beats_baseline").data["best"][8]["trial"] == 2
    first, second = (f for f in found if f.kind == "failed_requests")
    assert "12 of 24 requests failed (stream_error 12); its numbers are not compared." in first.text
    assert first.text.endswith("The first: error 500: overloaded")
    assert "not compared" not in second.text


def test_a_level_measured_on_a_warm_cache_is_told_and_not_compared(build_row: Build) -> None:
    found = findings(
        [
            build_row(0, 8, 100.0, role="baseline"),
            build_row(1, 8, 500.0, cache_state="warm"),
            build_row(2, 8, 110.0, cache_state="unique"),
            build_row(3, 8, 900.0, cache_state="unknown"),
        ]
    )
    assert only(found, "beats_baseline").data["trial"] == 2
    assert only(found, "cache_warm").data == {"levels": [(1, "C=8")]}
    assert only(found, "cache_unique").data == {"levels": [(2, "C=8")]}
    assert only(found, "cache_unknown").data == {"levels": [(3, "C=8")]}


def test_prompts_that_were_sent_again_are_told(build_row: Build) -> None:
    rows = [build_row(1, 8), build_row(2, 8)]
    assert rows[1].level is not None
    again = dataclasses.replace(rows[1], level=dataclasses.replace(rows[1].level, repeated_prompts=1200))
    none = dataclasses.replace(rows[0], level=dataclasses.replace(rows[1].level, repeated_prompts=0))
    told = only(findings([none, again]), "repeated_prompts")
    assert told.text == (
        "The dataset had too few prompts for 1 level(s): up to 1,200 were sent again, and the prefix cache may have "
        "known them (trial 2)."
    )
    assert "repeated_prompts" not in kinds(findings([rows[0], none]))


def test_a_server_that_counts_otherwise_than_we_do_is_told(build_row: Build) -> None:
    def counted(number: int, server: int | None, client: int | None) -> Row:
        row = build_row(number, 8)
        assert row.level is not None
        figures = {"counter_output_tokens": server, "client_output_tokens": client}
        metrics = dataclasses.replace(row.level.metrics, **figures)
        return dataclasses.replace(row, level=dataclasses.replace(row.level, metrics=metrics))

    found = findings([counted(1, 1010, 1000), counted(2, 1011, 1000), counted(3, None, 9), counted(4, 9, None)])
    assert only(found, "counts_differ").text == (
        "Trial 2 at C=8: the server counted 1,011 output tokens, the load generator 1,000 (+1.1 %)."
    )
