"""No cause states a direction that its interval does not bear, nor hides what else it may be."""

from __future__ import annotations

import dataclasses

import pytest
from cause_rows import EAGLE3, Build, nccl, of, timed

from orchestrator.analysis.explain import explain
from orchestrator.analysis.finding import Finding
from orchestrator.analysis.rows import Row


def fresh(build_row: Build, *rates: float) -> list[Row]:
    """Rounds of trial 1 at these rates beside the baseline at 100."""
    rows = []
    for number, rate in enumerate(rates, start=1):
        rows.append(build_row(10 * number, 8, 100.0 + number % 2, role="confirmation", repeats=0, repeat=number))
        rows.append(build_row(10 * number + 1, 8, rate, role="confirmation", repeats=1, repeat=number))
    return rows


def test_communication_is_judged_by_the_fresh_starts_where_there_are_any(build_row: Build) -> None:
    base = timed(build_row(0, 8, 100.0, role="baseline", admits=64), 10.0)
    rows = [base, nccl(build_row, 64)]
    single = of(rows, "communication")
    assert (
        "throughput is +25.0 % on the baseline in a single start, and what starts differ by is not known" in single.text
    )
    tie = of([*rows, *fresh(build_row, 98.0, 108.0, 99.0)], "communication_untold")
    assert "cannot be told" in tie.text
    assert "having been communication" not in tie.text
    assert "in 3 rounds of fresh starts" in tie.text
    assert tie.data["gain_low_percent"] < 0 < tie.data["gain_high_percent"]
    told = of([*rows, *fresh(build_row, 120.0, 120.1, 120.2)], "communication")
    assert told.data["gain_percent"] == pytest.approx(19.4, abs=0.2)
    assert {trial for trial, _ in told.rows} == {0, 1, 10, 11, 20, 21, 30, 31}


def test_a_drafter_that_was_started_afresh_is_judged_by_that(build_row: Build) -> None:
    rows = [timed(build_row(0, 8, 100.0, role="baseline", admits=64), 10.0)]
    rows.append(timed(build_row(1, 8, 125.0, flags=EAGLE3, accept_length=2.0, admits=64), 8.0))
    assert ": it pays (trial 1)" in of(rows, "break_even").text
    tie = of([*rows, *fresh(build_row, 98.0, 108.0, 99.0)], "break_even")
    assert tie.data["verdict"] == "tie"
    assert "against the baseline in 3 rounds of fresh starts: a tie (trial 1)" in tie.text


def test_a_setting_of_a_finalist_is_judged_by_its_fresh_starts(build_row: Build) -> None:
    rows = [build_row(0, 8, 100.0, role="baseline"), build_row(1, 8, 130.0, flags={"schedule-policy": "lpm"})]
    assert of(rows, "setting_effect").data["percent"] == {8: pytest.approx(30.0)}
    afresh = of([*rows, *fresh(build_row, 98.0, 108.0, 99.0)], "no_effect")
    assert afresh.data["percent"][8] < 5
    assert {trial for trial, _ in afresh.rows} == {0, 1, 10, 11, 20, 21, 30, 31}


def test_a_cap_that_differs_beside_nccl_is_named(build_row: Build) -> None:
    base = timed(build_row(0, 8, 100.0, role="baseline", admits=64), 10.0)
    assert "No other setting differs." in of([base, nccl(build_row, 64)], "communication").text
    capped = of([base, nccl(build_row, 32, **{"max-running-requests": 32})], "communication").text
    assert "max-running-requests differs (32, the baseline's not set), and both ran all requests at once" in capped
    assert "max-running-requests=32 throughput" not in capped


def test_of_several_nccl_settings_the_choice_is_said_and_one_that_is_told_goes_first(build_row: Build) -> None:
    """Trial 2's step is the shorter one, and its throughput a tie."""
    base = timed(build_row(0, 8, 100.0, role="baseline", admits=64, half_width=1.0), 10.0)
    tie = nccl(build_row, 64)
    metrics = dataclasses.replace(
        tie.level.metrics,
        output_tokens_per_s=101.0,
        output_tokens_per_s_half_width=5.0,  # type: ignore[union-attr]
    )
    tie = timed(dataclasses.replace(tie, level=dataclasses.replace(tie.level, metrics=metrics)), 7.0)  # type: ignore[type-var]
    tie = dataclasses.replace(tie, trial=dataclasses.replace(tie.trial, trial=2))
    found = of([base, nccl(build_row, 64), tie], "communication")
    assert found.data["trial"] == 1
    assert "of 2 tried, and the best of several looks better than it is" in found.text


def deep(build_row: Build, rate: float) -> list[Row]:
    """One step at 100, and six at `rate`, with more tokens and a longer cycle."""
    shallow = {"speculative-algorithm": "EAGLE", "speculative-num-steps": 1, "speculative-eagle-topk": 1}
    rows = [timed(build_row(0, 8, 90.0, role="baseline", admits=64, half_width=2.0), 11.0)]
    for trial, own, steps, length in ((1, 100.0, 1, 1.6), (2, rate, 6, 2.4)):
        flags = {**shallow, "speculative-num-steps": steps, "speculative-num-draft-tokens": steps + 1}
        row = build_row(trial, 8, own, flags=flags, accept_length=length, admits=64, half_width=2.0)
        rows.append(timed(row, 1000 * 8 / own / 8))
    return rows


@pytest.mark.parametrize(
    ("rate", "verdict", "words"),
    [
        (98.0, "tie", "which of the two outweighs the other cannot be told, throughput -2.0 % ("),
        (80.0, "less", "deeper costs more than it brings, throughput -20.0 % ("),
        (125.0, "more", "deeper brings more than it costs, throughput +25.0 % ("),
    ],
)
def test_deeper_drafting_is_judged_by_the_interval_of_its_throughput(
    build_row: Build, rate: float, verdict: str, words: str
) -> None:
    rows = deep(build_row, rate)
    found = of(rows, "draft_depth")
    assert found.data["verdict"] == verdict
    assert words in found.text
    effect = [f.kind for f in explain(rows) if f.data.get("name") == "speculative-num-steps"]
    assert effect in ([], ["no_effect" if verdict == "tie" else "setting_effect"])


def drafted(build_row: Build, poor: float) -> list[Row]:
    rows = [timed(build_row(0, 8, 90.0, role="baseline", admits=64, half_width=2.0), 11.0)]
    for trial, (rate, path, length) in enumerate(((100.0, "a/good", 2.0), (poor, "a/poor", 1.9)), start=1):
        flags = {**EAGLE3, "speculative-draft-model-path": path}
        row = build_row(trial, 8, rate, flags=flags, accept_length=length, admits=64, half_width=2.0)
        rows.append(timed(row, 20.0 / length))
    return rows


def test_drafters_beside_each_other_are_told_apart_by_their_interval_alone(build_row: Build) -> None:
    tie = of(drafted(build_row, 98.0), "drafters")
    assert "Which of poor and good is faster cannot be told: -2.0 % (" in tie.text
    assert "acceptance" not in tie.text
    told = of(drafted(build_row, 80.0), "drafters")
    assert "poor gives -20.0 % (" in told.text
    assert "consistent with acceptance alone making the difference" in told.text


def ladder(build_row: Build, **rates: float) -> Finding:
    """Of a drafter at 4, 8 and 16 users, the baseline at 100 everywhere: the sentence on where it pays."""
    rows = []
    for users in (4, 8, 16):
        rows.append(timed(build_row(0, users, 100.0, role="baseline", admits=64, half_width=2.0), 10.0))
        row = build_row(1, users, rates[f"c{users}"], flags=EAGLE3, accept_length=2.0, admits=64, half_width=2.0)
        rows.append(timed(row, 12.0))
    return of(rows, "crossover")


def test_where_nothing_is_told_a_drafter_is_not_said_to_pay_nowhere(build_row: Build) -> None:
    """A tie is no loss."""
    name = "EAGLE3"
    ties = ladder(build_row, c4=101.0, c8=99.0, c16=100.0).text
    assert ties.startswith(f"{name}: whether it pays cannot be told at C=4, C=8 and C=16, by single starts. It gets")
    some = ladder(build_row, c4=101.0, c8=80.0, c16=70.0).text
    assert some.startswith(
        f"{name}: whether it pays cannot be told at C=4; it costs at C=8 and C=16, by single starts. It gets"
    )
    none = ladder(build_row, c4=90.0, c8=80.0, c16=70.0).text
    assert none.startswith(f"{name} pays at no load: it costs at C=4, C=8 and C=16, by single starts. It gets")
    mixed = ladder(build_row, c4=120.0, c8=101.0, c16=110.0).text
    assert mixed.startswith(f"{name} pays at C=4 and C=16, at C=8 no difference can be told, by single starts. It gets")


def test_a_crossover_names_what_else_the_trial_has_otherwise(build_row: Build) -> None:
    rows = []
    for users in (4, 8):
        rows.append(timed(build_row(0, users, 100.0, role="baseline", admits=64), 10.0))
        flags = {**EAGLE3, "chunked-prefill-size": 2048}
        rows.append(timed(build_row(1, users, 80.0, flags=flags, accept_length=2.0, admits=64), 12.0))
    found = of(rows, "crossover").text
    assert found.endswith("It differs in chunked-prefill-size=2048 too, so not all of this need be the speculation's.")
