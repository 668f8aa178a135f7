"""What the findings say, on studies small enough to check by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.analysis.finding import Finding
from orchestrator.analysis.findings import findings
from orchestrator.analysis.objectives import parse_constraint, parse_objective
from orchestrator.analysis.rows import Row
from orchestrator.offered_load import Load

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
        "speculative-algorithm=EAGLE3. Unconfirmed: one start of each, and what starts differ by was not measured."
    )
    assert only(found, "baseline_best").data["concurrency"] == 128


def test_a_gain_inside_the_unrest_of_the_levels_is_a_tie(build_row: Build) -> None:
    def gain(half_width: float | None) -> Finding:
        baseline = build_row(0, 8, 100.0, role="baseline", half_width=3.0)
        [found] = [
            f for f in findings([baseline, build_row(1, 8, 105.0, half_width=half_width)]) if "gain_percent" in f.data
        ]
        return found

    # Together about 4.9 % of the logarithm, and log 1.05 is 0.0488.
    tie = gain(4.2)
    assert (tie.kind, tie.data["gain_low_percent"] < 0) == ("tie", True)
    assert tie.text.startswith("At C=8 no gain can be told: the best, trial 1, gives 105.0 simulated tok/s, +5.0 % (-0")
    assert gain(3.5).kind == "beats_baseline"
    assert "+5.0 % (+0.1 to +10.1 %) on the baseline's 100.0" in gain(3.5).text
    # Where the level was too short to tell, the baseline's own unrest is all that is known.
    assert gain(None).kind == "beats_baseline"


def test_a_gain_inside_what_starts_differ_by_is_a_tie(build_row: Build) -> None:
    def best(rate: float) -> Finding:
        rows = [build_row(0, 8, 100.0, role="baseline"), build_row(1, 8, rate)]
        rows += [build_row(2, 8, 103.0, role="sentinel", repeats=0), build_row(3, 8, 97.0, role="sentinel", repeats=0)]
        [found] = [f for f in findings(rows) if "gain_percent" in f.data]
        return found

    # The starts' standard deviation is 3.0 %; 4.3 of it times the root of 1 + 1/3 are 14.9 % of the logarithm.
    assert best(110.0).kind == "tie"
    assert best(120.0).kind == "beats_baseline"
    assert "Unconfirmed: the best of a search looks better than it is." in best(120.0).text


def test_speculation_within_the_unrest_makes_no_difference(build_row: Build) -> None:
    rows = [
        build_row(0, 1, 100.0, role="baseline", half_width=1.0),
        build_row(0, 8, 400.0, role="baseline", half_width=12.0),
        build_row(1, 1, 160.0, flags=EAGLE3, half_width=1.0),
        build_row(1, 8, 390.0, flags=EAGLE3, half_width=5.0),
    ]
    mixed = only(findings(rows), "speculation_mixed")
    assert mixed.text.startswith(
        "Speculation pays at C=1 (+60.0 %, +58.0 to +62.0 %), makes no difference that can be told at C=8 (-2.5 %, "
        "-5.8 to +0.9 %), best"
    )
    rows[3] = build_row(1, 8, 380.0, flags=EAGLE3, half_width=5.0)
    assert "and costs at C=8 (-5.0 %, -8.3 to -1.6 %)" in only(findings(rows), "speculation_mixed").text


def test_a_gain_by_speculation_within_the_unrest_is_neither_won_nor_lost(build_row: Build) -> None:
    baseline = build_row(0, 1, 100.0, role="baseline", half_width=10.0)
    told = only(findings([baseline, build_row(1, 1, 105.0, flags=EAGLE3)]), "speculation_untold")
    assert told.text.startswith("No gain by speculation can be told: the best of 1")
    assert "speculation_untold" in kinds(findings([baseline, build_row(1, 1, 95.0, flags=EAGLE3)]))
    assert "speculation_lost" in kinds(findings([baseline, build_row(1, 1, 70.0, flags=EAGLE3)]))


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


def test_what_is_said_of_throughput_is_said_of_closed_loops_measured_first(build_row: Build) -> None:
    found = findings(
        [
            build_row(0, 8, 100.0, role="baseline"),
            build_row(1, Load(8), 110.0),
            build_row(1, Load(8, repeat=1), 900.0),
            build_row(1, Load(request_rate=2.0), 900.0, failed=12),
        ]
    )
    assert only(found, "beats_baseline").data["output_tokens_per_s"] == 110.0
    assert only(found, "failed_requests").text.startswith("Trial 1 at 2 req/s: 12 of 24")


def open_loop(build_row: Build) -> list[Row]:
    rate = Load(request_rate=2.5)
    rows = [build_row(0, rate, 200.0, role="baseline"), build_row(9, rate, 201.0, role="sentinel", repeats=0)]
    return [*rows, build_row(1, rate, 250.0), build_row(2, rate, 150.0, flags=EAGLE3)]


def test_an_open_loop_is_compared_with_its_baseline_too(build_row: Build) -> None:
    found = findings(open_loop(build_row), parse_objective("output_tokens_per_s@2.5rps"))
    gain = only(found, "beats_baseline")
    assert gain.text.startswith("At 2.5 req/s trial 1 gives 250.0 simulated tok/s, +24.7 % (")
    assert (gain.data["request_rate"], gain.data["concurrency"]) == (2.5, None)
    assert "gives 2.5 req/s (-40.0 %, " in only(found, "speculation_lost").text
    assert "no_baseline" not in kinds(found)
    # What cannot be told there is said, and only there.
    assert "2.5 req/s is an open loop" in only(found, "causes_untold").text
    assert "causes_untold" not in kinds(findings([*open_loop(build_row), build_row(0, 8, 9.0, role="baseline")]))


def test_a_tie_of_an_open_loop_is_no_matter_of_longer_levels(build_row: Build) -> None:
    rate = Load(request_rate=2.5)
    rows = [build_row(0, rate, 200.0, role="baseline", half_width=5.0), build_row(1, rate, 201.0, half_width=5.0)]
    assert "An open loop offers all the same" in only(findings(rows), "tie").text


def test_a_trial_that_cannot_win_is_not_told_as_the_best(build_row: Build) -> None:
    rows = [build_row(0, 8, 100.0, role="baseline"), build_row(1, 8, 150.0, ttft_ms=90.0), build_row(2, 8, 120.0)]
    limits = [parse_constraint("ttft_ms.p99@8 <= 150")]
    score = parse_objective("output_tokens_per_s@8")
    assert only(findings(rows, score), "beats_baseline").data["trial"] == 1
    assert only(findings(rows, score, limits), "beats_baseline").data["trial"] == 2
