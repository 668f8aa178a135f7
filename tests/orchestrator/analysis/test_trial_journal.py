"""The journal's lines: where each trial stands, what came of it, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from orchestrator.analysis.journal import Attempt, Entry, Standing, Unlaunched, entries
from orchestrator.analysis.objectives import parse_constraint, parse_objective
from orchestrator.analysis.rows import Row

Build = Callable[..., Row]
SCORE = parse_objective("output_tokens_per_s@128")
EAGLE3 = {"speculative-algorithm": "EAGLE3", "speculative-num-steps": 3, "speculative-num-draft-tokens": 4}


def line(rows: list[Row], trial: int, standing: Standing | None = None, **options: object) -> Entry:
    [found] = [e for e in entries(rows, SCORE, standing=standing, **options) if e.trial == trial]  # type: ignore[arg-type]
    return found


def baseline(build_row: Build) -> list[Row]:
    return [build_row(0, 1, 63.6, role="baseline"), build_row(0, 128, 2370.0, role="baseline")]


def test_a_trial_that_speculated_is_told_by_its_acceptance(build_row: Build) -> None:
    rows = [*baseline(build_row), build_row(1, 128, 849.0, flags=EAGLE3, accept_length=1.65, admits=48)]
    found = line(rows, 1)
    assert (found.state, found.reason, found.accept_length) == ("done", None, 1.65)
    assert found.finding == "accept length 1.65 of 4, 48 of 128 requests ran at once, -64 % at C=128: no speedup"
    assert found.gain_percent == pytest.approx(-64.177, abs=1e-3)
    assert found.settings is not None
    assert "speculative-algorithm=EAGLE3" in found.settings


def test_the_baseline_its_repeats_and_the_confirmation_say_what_they_are_for(build_row: Build) -> None:
    rows = [
        *baseline(build_row),
        build_row(1, 128, 2400.0, role="sentinel", repeats=0, repeat=1),
        build_row(2, 128, 2700.0),
        build_row(3, 128, 2350.0, role="confirmation", repeats=0, repeat=1),
        build_row(4, 128, 2650.0, role="confirmation", repeats=2, repeat=1),
        build_row(5, 128, 2380.0, role="confirmation", repeats=0, repeat=2),
        build_row(6, 128, 2690.0, role="confirmation", repeats=2, repeat=2),
    ]
    assert line(baseline(build_row), 0).finding == "2,370 simulated tok/s at C=128: what the others are compared with"
    assert line(rows, 0).finding == (
        "2,385 simulated tok/s at C=128 over its 2 starts in the search, this one 2,370: what the others are compared "
        "with"
    )
    assert line(rows, 0).gain_percent is None
    assert line(rows, 1).finding == (
        "the baseline again: 2,400 simulated tok/s at C=128, +0.6 % on the mean of its 2 starts in the search"
    )
    assert line(rows, 2).finding.startswith("+13 % at C=128; started afresh in 2 rounds +13 %: confirmed")
    assert "round 1 of the confirmation, trial 2 started afresh: 2,650" in line(rows, 4).finding
    # Its gain is told beside the start of its round, at the finalist's.
    assert line(rows, 4).gain_percent is None
    assert "round 2 of the confirmation, the baseline started afresh" in line(rows, 5).finding


def test_a_difference_inside_the_noise_is_none_that_can_be_told(build_row: Build) -> None:
    rows = [*baseline(build_row), build_row(1, 128, 2600.0, role="sentinel", repeats=0), build_row(2, 128, 2500.0)]
    found = line(rows, 2)
    assert found.finding.endswith("at C=128: no difference from the baseline that can be told")
    assert found.gain_low_percent is not None
    assert found.gain_low_percent < 0 < found.gain_percent  # type: ignore[operator]


def test_a_loss_at_the_score_s_load_and_a_gain_elsewhere_are_both_told(build_row: Build) -> None:
    rows = [
        build_row(0, 1, 63.6, role="baseline", half_width=1.0),
        build_row(0, 128, 2370.0, role="baseline", half_width=9.0),
        build_row(1, 1, 90.0, half_width=1.0),
        build_row(1, 128, 2000.0, half_width=9.0),
    ]
    assert line(rows, 1).finding == "-16 % at C=128: worse than the baseline; +41.5 % at C=1"


def test_failures_and_settings_that_cannot_run_give_their_class_and_message(build_row: Build) -> None:
    rows = [
        *baseline(build_row),
        build_row(1, None, None, state="failed", failure_kind="out_of_memory", failure_message="CUDA\n out of memory"),
        build_row(2, None, None, state="infeasible", failure_kind="bad_config", failure_message="x " * 300),
    ]
    failed, cannot = line(rows, 1), line(rows, 2)
    assert (failed.state, failed.reason) == ("failed", "out_of_memory")
    assert failed.finding == "failed (out of memory): CUDA out of memory"
    assert (cannot.state, cannot.reason) == ("infeasible", "bad_config")
    assert len(cannot.finding) < 230
    assert cannot.finding.endswith(" ...")


def test_what_may_not_win_is_infeasible_with_the_reason(build_row: Build) -> None:
    rows = [*baseline(build_row), build_row(1, 128, 3000.0, differs=True), build_row(2, 128, 2900.0, ttft_ms=300.0)]
    wrong = line(rows, 1)
    assert (wrong.state, wrong.reason) == ("infeasible", "output_differs")
    assert "not the baseline's" in wrong.finding
    slow = line(rows, 2, limits=[parse_constraint("ttft_ms.p99@128 <= 400")])
    assert (slow.state, slow.reason) == ("infeasible", "constraint")
    assert slow.finding.startswith("breaks ttft_ms.p99@128 <= 400 (600, 200 beyond): does not count")
    assert slow.score == 2900.0


def test_a_trial_whose_level_does_not_count_has_failed_with_the_reason(build_row: Build) -> None:
    rows = [*baseline(build_row), build_row(1, 128, 3000.0, cache_state="warm")]
    found = line(rows, 1)
    assert (found.state, found.reason) == ("failed", "no_score")
    assert "cache" in found.finding


def unfinished(row: Row, kind: str | None = None) -> Row:
    return dataclasses.replace(row, outcome=dataclasses.replace(row.outcome, state="interrupted", failure_kind=kind))


def test_what_is_at_work_waits_or_was_left_is_told_apart(build_row: Build) -> None:
    rows = [*baseline(build_row), unfinished(build_row(1, 1)), unfinished(build_row(2, 1), "gpu_busy")]
    attempts = {
        1: Attempt(1, "candidate", 1, "running"),
        2: Attempt(2, "candidate", 2, "waiting"),
        3: Attempt(3, "candidate", 2, "waiting", {"max-running-requests": 48}),
    }
    alive, dead = Standing(attempts, alive=True, levels=2), Standing(attempts, alive=False, levels=2)
    running = line(rows, 1, alive)
    assert (running.state, running.finding) == ("running", "C=1 measured (1 of 2 levels)")
    left = line(rows, 1, dead)
    assert left.state == "stopped"
    assert left.finding == (
        "the sweep ended while it ran; C=1 measured (1 of 2 levels); the same command goes on with it"
    )
    for standing in (alive, dead):
        again = line(rows, 2, standing)
        assert (again.state, again.reason) == ("pending", "gpu_busy")
        assert "to be started again" in again.finding
    waits = line(rows, 3, alive)
    assert (waits.state, waits.settings) == ("pending", "max-running-requests=48")
    assert waits.finding == "interrupted; start 2, nothing measured yet; to be started again"
    assert line(rows, 3, dead).state == "stopped"


def test_what_stopped_the_study_is_told_with_what_to_do(build_row: Build) -> None:
    row = unfinished(build_row(1, None, None, failure_message="no space left"), "disk_full")
    found = line([*baseline(build_row), row], 1)
    assert (found.state, found.reason) == ("stopped", "disk_full")
    assert "mend it, and the same command goes on with it: no space left" in found.finding


def test_rows_alone_tell_an_interrupted_trial(build_row: Build) -> None:
    assert line([*baseline(build_row), unfinished(build_row(1, 1))], 1).state == "stopped"
    assert line([*baseline(build_row), unfinished(build_row(1, 1), "crashed")], 1).state == "pending"


def test_what_was_not_launched_stands_at_the_end(build_row: Build) -> None:
    more = Unlaunched("confirmation", 4, "pending", "of the confirmation")
    found = entries(baseline(build_row), SCORE, standing=Standing(unlaunched=[more]))
    assert [(e.trial, e.state, e.count) for e in found] == [(0, "done", 1), (None, "pending", 4)]


def test_a_study_with_nothing_but_failures_has_a_line_for_each(build_row: Build) -> None:
    rows = [build_row(n, None, None, role="baseline" if not n else "candidate", state="failed") for n in range(3)]
    assert [e.finding for e in entries(rows, SCORE)] == ["failed (unknown)"] * 3
    assert entries([], SCORE) == []


def test_what_is_queued_for_its_first_start_is_pending(build_row: Build) -> None:
    standing = Standing({1: Attempt(1, "confirmation", 1, "waiting", repeats=0, repeat=1)})
    found = line(baseline(build_row), 1, standing)
    assert (found.state, found.finding, found.role) == ("pending", "to be started", "confirmation")


def test_a_cost_that_is_0_has_no_gain_and_breaks_nothing(build_row: Build) -> None:
    def queued(row: Row, ms: float) -> Row:
        assert row.level is not None
        metrics = dataclasses.replace(row.level.metrics, queue_time_ms=ms)
        return dataclasses.replace(row, level=dataclasses.replace(row.level, metrics=metrics))

    rows = [
        queued(build_row(0, 128, role="baseline"), 4.0),
        queued(build_row(1, 128, role="sentinel", repeats=0), 0.0),
        queued(build_row(2, 128), 0.0),
        queued(build_row(3, 128), 2.0),
    ]
    found = entries(rows, parse_objective("queue_time_ms@128"))
    assert [(e.score, e.gain_percent) for e in found] == [(4.0, None), (0.0, None), (0.0, None), (2.0, -50.0)]
    assert "its ratio to the baseline's cannot be told, one is 0" in found[2].finding
    assert found[3].finding == "-50 % at C=128: better than the baseline, unconfirmed"
