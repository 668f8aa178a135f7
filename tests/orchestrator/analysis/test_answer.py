"""The answer in three sentences, for each way that a study may end."""

from __future__ import annotations

import re
from collections.abc import Callable

from orchestrator.analysis.answer import Answer, answer
from orchestrator.analysis.finding import Finding
from orchestrator.analysis.objectives import Objective, parse_objective
from orchestrator.analysis.rows import Row
from orchestrator.offered_load import Load

Build = Callable[..., Row]
LADDER = (Load(1), Load(8))
SCORE = parse_objective("output_tokens_per_s@8")


def told(rows: list[Row], found: list[Finding] | None = None, score: Objective = SCORE) -> Answer:
    return answer(rows, score, [], LADDER, found or [])


def trial(build: Build, number: int, low: float, high: float, **more: object) -> list[Row]:
    role = more.pop("role", "candidate" if number else "baseline")
    return [
        build(trial=number, concurrency=c, rate=rate, role=role, flags={"f": number}, **more)
        for c, rate in ((1, low), (8, high))
    ]


def afresh(build: Build, first: int, setting: int, rates: list[float]) -> list[Row]:
    """One start a round of a setting, to confirm it."""
    return [
        build(trial=first + n, rate=rate, role="confirmation", repeats=setting, repeat=n + 1, flags={"f": setting})
        for n, rate in enumerate(rates)
    ]


def test_a_confirmed_winner_is_told_with_its_interval_and_where_it_is_overtaken(build_row: Build) -> None:
    rows = trial(build_row, 0, 50, 100) + trial(build_row, 1, 40, 130) + trial(build_row, 2, 75, 90)
    rows += afresh(build_row, 10, 0, [100, 101, 99]) + afresh(build_row, 20, 1, [120, 121.5, 118.5])
    found = told(rows)
    assert (found.verdict, found.best) == ("confirmed", 1)
    assert found.headline == "+20.0 % at C=8, confirmed"
    first, second, third = found.sentences
    assert "trial 1: f=1" in first
    assert "of 2 settings" in first
    assert "120.0 simulated tok/s, +20.0 % (" in second
    assert "confirmed in 3 rounds" in second
    assert "trial 2 leads at C=1 (+50.0 %, unconfirmed)" in third
    assert "trial 1 leads at C=8 (+20.0 %)" in third
    # Of logarithms, by starts in the search: 40/75 at C=1 to 130/90 at C=8.
    assert "trial 1 overtakes trial 2 between C=1 and C=8, at about C=4" in third


def test_nothing_beats_the_baseline_and_the_finding_says_why(build_row: Build) -> None:
    rows = trial(build_row, 0, 50, 100) + trial(build_row, 1, 40, 90)
    why = Finding("speculation_lost", "Speculation did not pay: because.")
    found = told(rows, [Finding("noise_floor", "Noise."), why])
    assert (found.verdict, found.best) == ("baseline", 0)
    assert found.headline == "Nothing beats the baseline at C=8"
    assert "of 1 setting tried the best, trial 1, is worse, -10.0 % in a single start" in found.sentences[0]
    assert found.sentences[1] == why.text
    assert found.sentences[2] == "Along the ladder the baseline leads at C=1 to C=8; no setting overtakes another."


def test_a_confirmation_that_found_a_tie_is_no_win(build_row: Build) -> None:
    rows = trial(build_row, 0, 50, 100) + trial(build_row, 1, 50, 120)
    rows += afresh(build_row, 10, 0, [100, 102, 98]) + afresh(build_row, 20, 1, [101, 99, 101])
    lost = Finding("speculation_lost", "Speculation did not pay: because.")
    found = told(rows, [lost, Finding("noise_floor", "Starts differ by so much.")])
    assert (found.verdict, found.best, found.headline) == ("tie", 0, "No gain can be told at C=8")
    assert "trial 1, ties with it in 3 rounds of fresh starts" in found.sentences[0]
    # What another setting lost by is no reason.
    assert found.sentences[1] == "Starts differ by so much."
    assert re.search(r"a gap of [0-9.]+ % would have been found", found.sentences[0])


def test_a_gain_within_the_noise_is_called_a_tie(build_row: Build) -> None:
    rows = trial(build_row, 0, 50, 100) + trial(build_row, 1, 50, 103)
    rows += [build_row(trial=2, rate=110, role="sentinel", repeats=0, repeat=1, flags={"f": 0})]
    found = told(rows + trial(build_row, 3, 50, 112))
    assert found.verdict == "tie"
    assert "a tie, no gain can be told" in found.sentences[1]
    assert found.sentences[2] == "Along the ladder no gain over the baseline can be told at C=1 to C=8."


def test_an_unconfirmed_gain_says_so_and_that_the_spread_is_unknown(build_row: Build) -> None:
    found = told(trial(build_row, 0, 50, 100) + trial(build_row, 1, 60, 150))
    assert (found.verdict, found.headline) == ("unconfirmed", "+50.0 % at C=8, unconfirmed")
    assert "Unconfirmed" in found.sentences[1]
    assert "what starts differ by was not measured" in found.sentences[1]


def test_less_is_better_where_the_score_is_a_latency(build_row: Build) -> None:
    score = parse_objective("ttft_ms.p50@8")
    rows = trial(build_row, 0, 50, 100, ttft_ms=50.0) + trial(build_row, 1, 50, 100, ttft_ms=40.0)
    found = told(rows, score=score)
    assert (found.verdict, found.best) == ("unconfirmed", 1)
    assert found.headline.startswith("-20.0 %")
    assert "trial 1 leads at C=1 to C=8 (-20.0 %, unconfirmed)" in found.sentences[2]


def test_without_a_baseline_no_gain_is_told(build_row: Build) -> None:
    found = told(trial(build_row, 1, 50, 100))
    assert found.verdict == "alone"
    assert "its gain cannot be said" in found.sentences[1]


def test_the_baseline_alone_is_told_as_that(build_row: Build) -> None:
    found = told(trial(build_row, 0, 50, 100))
    assert (found.verdict, found.best) == ("alone", 0)
    assert found.sentences == (
        "The baseline gives 100.0 simulated tok/s by output_tokens_per_s@8; nothing else was measured yet.",
    )


def test_only_failures_are_told_with_the_most_frequent_cause(build_row: Build) -> None:
    rows = [build_row(trial=0, concurrency=None, role="baseline", state="failed", failure_kind="crash")]
    rows += [
        build_row(
            trial=n, concurrency=None, state="infeasible", failure_kind="oom", failure_message="CUDA out of memory"
        )
        for n in (1, 2)
    ]
    found = told(rows)
    assert (found.verdict, found.best) == ("nothing", None)
    assert found.sentences == (
        "No setting has a score: of 3 trial(s), 2 infeasible, 1 failed.",
        "Most often the cause was oom (2): CUDA out of memory",
    )


def test_an_empty_study_has_an_answer() -> None:
    assert told([]).sentences == ("Nothing was measured yet: no trial has a level on disk.",)


def break_even(gain: float, accepted: float = 1.5, concurrency: int = 8, verdict: str = "costs") -> Finding:
    data = {"concurrency": concurrency, "verdict": verdict, "accept_length": accepted, "break_even": 3.0}
    return Finding("break_even", f"A drafter at {gain}.", data | {"gain_percent": gain})


def test_of_the_drafters_that_lose_the_best_says_why(build_row: Build) -> None:
    rows = trial(build_row, 0, 50, 100)
    rows += [build_row(1, c, rate, flags={"speculative-algorithm": "EAGLE3"}) for c, rate in ((1, 40), (8, 90))]
    found = [Finding("speculation_lost", "Lost."), break_even(-40), break_even(-20), break_even(-10, concurrency=1)]
    assert told(rows, found).sentences[1] == "A drafter at -20."
    # One whose cycles say otherwise is no reason.
    assert told(rows, [break_even(-20, accepted=3.5), found[0]]).sentences[1] == "Lost."
    assert told(rows, [break_even(-20, verdict="pays"), found[0]]).sentences[1] == "Lost."
    # Nor is any where a plain setting comes closer.
    assert told(rows + trial(build_row, 2, 45, 95), found).sentences[1] == "Lost."
