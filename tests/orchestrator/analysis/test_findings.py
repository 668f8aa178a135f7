"""What the findings say, on studies small enough to check by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.analysis.finding import Finding
from orchestrator.analysis.findings import findings
from orchestrator.analysis.rows import Row

Build = Callable[..., Row]
EAGLE3 = {"speculative-algorithm": "EAGLE3"}


def only(found: list[Finding], kind: str) -> Finding:
    [finding] = [f for f in found if f.kind == kind]
    return finding


def kinds(found: list[Finding]) -> set[str]:
    return {f.kind for f in found}


def test_the_gain_over_the_baseline_is_given_where_there_is_one(build_row: Build) -> None:
    found = findings(
        [
            build_row(0, 1, 63.6, role="baseline", simulated=False),
            build_row(0, 128, 2370.0, role="baseline", simulated=False),
            build_row(1, 1, 70.0, simulated=False),
            build_row(1, 128, 2400.0, state="failed", failure_kind="crashed", simulated=False),
            build_row(2, 1, 90.0, simulated=False, flags=EAGLE3, accept_length=2.25),
            build_row(2, 128, 2300.0, simulated=False, flags=EAGLE3),
        ]
    )
    gain = only(found, "beats_baseline")
    assert gain.data["trial"] == 2
    assert gain.data["gain_percent"] == pytest.approx(41.509, abs=1e-3)
    assert gain.text == (
        "At C=1 trial 2 gives 90.0 tok/s, +41.5 % on the baseline's 63.6, accept length 2.25: "
        "speculative-algorithm=EAGLE3. Unconfirmed: one start of each."
    )
    assert only(found, "baseline_best").data["concurrency"] == 128


def test_nothing_beats_the_baseline_is_said_plainly(build_row: Build) -> None:
    found = findings([build_row(0, 1, 90.0, role="baseline"), build_row(1, 1, 71.0), build_row(2, 1, 60.0)])
    assert only(found, "nothing_beats_baseline").text == (
        "Nothing beats the baseline: at C=1 trial 1 comes closest (-21.1 %)."
    )
    assert "beats_baseline" not in kinds(found)


def test_an_equal_candidate_does_not_beat_the_baseline(build_row: Build) -> None:
    assert "nothing_beats_baseline" in kinds(findings([build_row(0, 1, 90.0, role="baseline"), build_row(1, 1, 90.0)]))


def test_without_a_baseline_no_gain_is_claimed(build_row: Build) -> None:
    failed = build_row(0, None, role="baseline", state="failed", failure_kind="crashed")
    assert {"no_baseline", "failed_trials"} <= kinds(findings([failed, build_row(1, 1, 90.0)]))
    assert findings([]) == []


def test_numbers_of_a_simulated_server_say_so(build_row: Build) -> None:
    found = findings([build_row(0, 1, 50.0, role="baseline"), build_row(1, 1, 60.0)])
    assert "60.0 simulated tok/s" in only(found, "beats_baseline").text


def test_simulated_and_measured_rows_are_never_compared(build_row: Build) -> None:
    with pytest.raises(ValueError, match="two studies"):
        findings([build_row(0, 1, simulated=False), build_row(1, 1)])


def test_speculation_that_lost_everywhere_did_not_pay(build_row: Build) -> None:
    found = findings(
        [
            build_row(0, 1, 90.0, role="baseline"),
            build_row(0, 128, 2370.0, role="baseline"),
            build_row(1, 1, 60.0, flags=EAGLE3),
            build_row(2, 1, 71.0, flags=EAGLE3, accept_length=2.25),
            build_row(2, 128, 849.0, flags=EAGLE3, accept_length=1.65),
        ]
    )
    lost = only(found, "speculation_lost")
    assert lost.text == (
        "Speculation did not pay: the best of 2 speculative trial(s) against the best plain one gives "
        "C=1 (-21.1 %, accept length 2.25), C=128 (-64.2 %, accept length 1.65)."
    )
    assert lost.data["levels"][1]["trial"] == 2


def test_speculation_that_pays_for_few_users_and_costs_for_many(build_row: Build) -> None:
    found = findings(
        [
            build_row(0, 1, 100.0, role="baseline"),
            build_row(0, 128, 2000.0, role="baseline"),
            build_row(1, 1, 160.0, flags=EAGLE3),
            build_row(1, 128, 1600.0, flags=EAGLE3),
        ]
    )
    text = only(found, "speculation_mixed").text
    assert text.startswith("Speculation pays at C=1 (+60.0 %) and costs at C=128 (-20.0 %)")
    assert "Unconfirmed" in text


def test_speculation_that_won_everywhere(build_row: Build) -> None:
    found = findings([build_row(0, 1, 100.0, role="baseline"), build_row(1, 1, 160.0, flags=EAGLE3)])
    assert "at every concurrency measured" in only(found, "speculation_won").text


def test_speculation_that_was_not_tried_or_never_ran(build_row: Build) -> None:
    plain = build_row(0, 1, 90.0, role="baseline", flags={"speculative-algorithm": None})
    assert not any(kind.startswith("speculation") for kind in kinds(findings([plain])))
    broken = build_row(1, None, flags=EAGLE3, state="failed", failure_kind="out_of_memory")
    assert "speculation_not_compared" in kinds(findings([plain, broken]))
