"""Which trial is handed on, and which none should run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.analysis.rows import Row
from orchestrator.export.choice import NotExportable, choose
from orchestrator.kept_study import KeptStudy

Build = Callable[..., Row]
Kept = Callable[..., KeptStudy]


def test_without_a_confirmation_the_best_of_the_search_is_taken_and_called_unconfirmed(
    build_row: Build, kept: Kept
) -> None:
    study = kept(build_row(0, rate=100.0, role="baseline"), build_row(1, rate=90.0), build_row(2, rate=140.0))
    choice = choose(study)
    assert (choice.trial, choice.baseline, choice.confirmation) == (2, False, None)
    assert "Unconfirmed" in choice.why
    assert any("+40.0 %" in text for text in choice.findings)


def confirmed(build_row: Build, gains: dict[int, float]) -> list[Row]:
    rows = [build_row(0, rate=100.0, role="baseline"), *(build_row(t, rate=200.0 - t) for t in gains)]
    number = 10
    for repeat in range(3):
        for trial, gain in {0: 1.0, **gains}.items():
            rate = 100.0 * gain * (1 + 0.004 * ((trial + repeat) % 2))
            rows.append(build_row(number, rate=rate, role="confirmation", repeats=trial, repeat=repeat))
            number += 1
    return rows


def test_the_confirmed_one_is_taken_although_another_looked_better(build_row: Build, kept: Kept) -> None:
    choice = choose(kept(*confirmed(build_row, {1: 1.0, 2: 1.2})))
    assert choice.trial == 2
    assert choice.confirmation is not None
    assert choice.confirmation.verdict == "better"
    assert "confirmed" in choice.why


def test_where_none_was_confirmed_it_is_the_baseline_and_that_is_said(build_row: Build, kept: Kept) -> None:
    choice = choose(kept(*confirmed(build_row, {1: 1.0, 2: 0.9})))
    assert (choice.trial, choice.baseline) == (0, True)
    assert choice.why == "No setting was confirmed to beat the baseline by output_tokens_per_s@8: this is the baseline."


def test_nothing_beats_the_baseline(build_row: Build, kept: Kept) -> None:
    baseline = build_row(0, rate=100.0, role="baseline")
    assert "Nothing beats the baseline" in choose(kept(baseline, build_row(1, rate=90.0))).why
    assert "Only the baseline was measured" in choose(kept(baseline)).why


def test_a_further_start_stands_for_the_trial_that_it_started_again(build_row: Build, kept: Kept) -> None:
    choice = choose(kept(*confirmed(build_row, {1: 1.1})), "11")
    assert choice.trial == 1
    assert "a further start of trial 1" in choice.why


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ("1", "trial 1 failed: out of luck"),
        ("2", "trial 2 cannot run"),
        ("3", "trial 3 is not finished"),
        ("4", "trial 4 does not answer as the baseline does"),
        ("5", r"trial 5 breaks ttft_ms.p99@8 <= 1000 \(1,800, 800 beyond\)"),
        ("6", "there is no trial 6 in .*: it has 0 to 5"),
        ("-1", "'-1' is no trial"),
        ("worst", "write a trial's number, or best"),
    ],
)
def test_what_nobody_should_run_is_refused(build_row: Build, kept: Kept, wanted: str, told: str) -> None:
    study = kept(
        build_row(0, role="baseline"),
        build_row(1, concurrency=None, state="failed", failure_kind="unknown", failure_message="out of luck"),
        build_row(2, concurrency=None, state="infeasible", failure_kind="out_of_memory"),
        build_row(3, state="interrupted"),
        build_row(4, rate=900.0, differs=True),
        build_row(5, rate=900.0, ttft_ms=900.0),
    )
    with pytest.raises(NotExportable, match=told):
        choose(study, wanted)
    assert choose(study).trial == 0


def test_without_any_winner_there_is_nothing_to_take(build_row: Build, kept: Kept) -> None:
    with pytest.raises(NotExportable, match="nothing was measured yet"):
        choose(kept())
    failed = build_row(0, concurrency=None, state="failed", failure_kind="unknown", role="baseline")
    with pytest.raises(NotExportable, match=r"no trial .* is complete"):
        choose(kept(failed))


def test_a_baseline_that_breaks_a_constraint_is_not_handed_on(build_row: Build, kept: Kept) -> None:
    rows = [build_row(0, rate=200.0, role="baseline", ttft_ms=900.0), build_row(1, rate=150.0)]
    for number in (1, 2):
        for of, rate, ttft_ms in ((0, 200.0, 900.0), (1, 150.0, 50.0)):
            again = build_row(
                len(rows), rate=rate + number, role="confirmation", repeats=of, repeat=number, ttft_ms=ttft_ms
            )
            rows.append(again)
    study = kept(*rows)
    found = choose(study)
    assert found.trial == 1
    assert "that fresh starts confirmed to keep the constraints" in found.why
    assert "The baseline breaks ttft_ms.p99@8 <= 1000 (1,800, 800 beyond)." in found.why
    with pytest.raises(NotExportable, match="trial 0 breaks ttft_ms"):
        choose(study, "0")
