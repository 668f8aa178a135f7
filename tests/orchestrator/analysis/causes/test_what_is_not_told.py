"""Never more certain than the rows: what they do not tell is not said, or said to be unknown."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from cause_rows import EAGLE3, Build, kinds, nccl, of, timed

from orchestrator.analysis.causes.drafting import first_chance
from orchestrator.analysis.causes.effects import together
from orchestrator.analysis.explain import explain, explain_trial
from orchestrator.analysis.objectives import parse_objective
from orchestrator.analysis.rows import Row
from orchestrator.benchmark.intervals import Interval
from orchestrator.offered_load import Load


def pair(build_row: Build, **changes: Any) -> list[Row]:
    options: dict[str, Any] = {"flags": EAGLE3, "accept_length": 2.0, "admits": 64} | changes
    return [
        timed(build_row(0, 8, 100.0, role="baseline", admits=64), 10.0),
        timed(build_row(1, 8, 80.0, **options), 12.5),
    ]


def test_break_even_is_the_cycle_over_a_plain_step(build_row: Build) -> None:
    found = of(pair(build_row), "break_even")
    assert (found.data["cycle_ms"], found.data["plain_step_ms"], found.data["break_even"]) == (25.0, 10.0, 2.5)


@pytest.mark.parametrize("missing", [{"admits": None}, {"accept_length": None}, {"state": "failed"}, {"differs": True}])
def test_without_cap_acceptance_or_a_comparable_level_there_is_no_break_even(
    build_row: Build, missing: dict[str, Any]
) -> None:
    assert "break_even" not in kinds(pair(build_row, **missing))


def test_without_the_time_per_token_there_is_no_break_even(build_row: Build) -> None:
    base, row = pair(build_row)
    assert "break_even" not in kinds([base, timed(row, None)])
    assert "break_even" not in kinds([timed(base, None), row])


def test_without_a_baseline_nothing_is_held_against_it(build_row: Build) -> None:
    assert kinds(pair(build_row)[1:]) == []
    assert explain([]) == []


def test_a_batch_beyond_the_ladder_is_not_guessed(build_row: Build) -> None:
    """The baseline ran 8 and 16; 12 lies between, 4 does not."""
    ladder = [
        timed(build_row(0, users, 100.0, role="baseline", admits=64), ms) for users, ms in ((8, 10.0), (16, 18.0))
    ]
    under = timed(build_row(1, 16, 50.0, flags=EAGLE3, accept_length=2.0, admits=12), 15.0)
    found = of([*ladder, under], "break_even")
    assert found.data["plain_step_ms"] == pytest.approx(14.0)
    below = timed(build_row(1, 16, 50.0, flags=EAGLE3, accept_length=2.0, admits=4), 15.0)
    assert "break_even" not in kinds([*ladder, below])


def test_an_open_loop_has_no_batch(build_row: Build) -> None:
    rate = Load(request_rate=2.0)
    rows = [
        build_row(0, rate, role="baseline", admits=64),
        build_row(1, rate, flags=EAGLE3, accept_length=2.0, admits=64),
    ]
    assert "break_even" not in kinds(rows)


def test_a_kv_pool_that_may_have_held_fewer_leaves_the_batch_open(build_row: Build) -> None:
    base, row = pair(build_row)
    short = dataclasses.replace(row, start=dataclasses.replace(row.start, effective_kv_tokens=1000))
    assert "break_even" not in kinds([base, short])
    assert "kv_short" in kinds([base, short])


def test_other_settings_that_differ_are_named_as_another_possible_cause(build_row: Build) -> None:
    found = of(pair(build_row, flags={**EAGLE3, "chunked-prefill-size": 2048}), "break_even")
    assert "It differs in chunked-prefill-size=2048 too, so not all of this need be the speculation's." in found.text
    assert "It differs" not in of(pair(build_row), "break_even").text


def test_a_plain_trial_that_ran_fewer_at_once_is_no_measure(build_row: Build) -> None:
    """Its queue would make any other look fast."""
    chunks = {"chunked-prefill-size": 2048}
    base, row = pair(build_row, flags={**EAGLE3, **chunks})

    def against(admits: int) -> object:
        plain = timed(build_row(2, 8, 40.0, flags=chunks, admits=admits), 9.0)
        return of([base, row, plain], "break_even").data["against"]

    assert against(64) == 2
    assert against(4) == 0


def test_a_start_that_is_the_baseline_again_by_other_words_does_not_move_the_plain_step(build_row: Build) -> None:
    base, row = pair(build_row)
    restless = timed(build_row(2, 8, 40.0, flags={"max-running-requests": 64}, admits=64), 30.0)
    assert of([base, row, restless], "break_even").data["plain_step_ms"] == 10.0


def test_a_throughput_that_goes_against_the_cycles_is_told_as_such(build_row: Build) -> None:
    """Two tokens a cycle of 1.6 plain steps, and yet slower."""
    base, row = pair(build_row)
    assert "Its cycles say otherwise" in of([base, timed(row, 8.0)], "break_even").text
    [capped_base] = [timed(build_row(0, 8, 100.0, role="baseline", admits=64), 10.0)]
    small = timed(build_row(0, 2, 40.0, role="baseline", admits=64), 9.0)
    capped = timed(build_row(1, 8, 80.0, flags=EAGLE3, accept_length=2.0, admits=2), 6.0)
    assert "what it loses, it loses in the queue" in of([capped_base, small, capped], "break_even").text


def test_communication_is_what_nccl_alone_took_off_a_step_of_the_same_batch(build_row: Build) -> None:
    base = [timed(build_row(0, users, 100.0, role="baseline", admits=64), 10.0 - (users < 8)) for users in (4, 8)]
    found = of([*base, nccl(build_row, 64)], "communication")
    assert (found.data["removed_ms"], found.data["share"]) == (pytest.approx(2.0), pytest.approx(0.2))
    assert "communication" not in kinds([*base, nccl(build_row, 4)])
    other = nccl(build_row, 64, **{"chunked-prefill-size": 2048})
    assert "communication" not in kinds([*base, other])


def test_three_shapes_of_a_draft_do_not_divide_a_cycle(build_row: Build) -> None:
    def shape(trial: int, steps: int, tokens: int, ms: float) -> Row:
        flags = {
            "speculative-algorithm": "EAGLE3",
            "speculative-num-steps": steps,
            "speculative-num-draft-tokens": tokens,
            "speculative-eagle-topk": 2,
        }
        return timed(build_row(trial, 8, 80.0, flags=flags, accept_length=2.0, admits=64), ms / 2)

    base = pair(build_row)[0]
    # 5 ms in every cycle, 2 a draft step, 1 a token.
    shapes = [(1, 1, 4), (2, 3, 4), (3, 3, 8), (4, 5, 16)]
    rows = [base, *(shape(n, s, t, 15.0 + 2 * s + t) for n, s, t in shapes)]
    assert "cycle_undivided" in kinds(rows[:4])
    parts = of(rows, "cycle_parts").data["levels"][8]
    assert parts["cycle"]["ms"] == pytest.approx(5.0)
    assert parts["step"]["ms"] == pytest.approx(2.0)
    assert parts["token"]["ms"] == pytest.approx(1.0)


def test_a_setting_without_effect_is_told_with_how_surely(build_row: Build) -> None:
    def rows(rate: float) -> list[Row]:
        return [
            build_row(0, 8, 100.0, role="baseline", half_width=2.0),
            build_row(1, 8, rate, flags={"schedule-policy": "lpm"}, half_width=2.0),
        ]

    same = of(rows(101.0), "no_effect")
    assert same.data["name"] == "schedule-policy"
    assert same.text.startswith(
        "schedule-policy: lpm instead of left out has no effect that can be told: -2.0 to +4.1 %"
    )
    other = of(rows(130.0), "setting_effect")
    assert "moved throughput by +30.0 % (+26.6 to +33.5 %) at C=8 (trial 1 against 0, all else equal)" in other.text


def test_a_value_that_the_baseline_has_by_itself_is_no_other_setting(build_row: Build) -> None:
    rows = [
        build_row(0, 8, 100.0, role="baseline", effective={"schedule-policy": "fcfs"}),
        build_row(1, 8, 130.0, flags={"schedule-policy": "fcfs"}),
    ]
    assert kinds(rows) == []


def test_a_setting_that_the_rules_take_out_does_nothing(build_row: Build) -> None:
    row = build_row(1, 8, flags={"a-flag": 1})
    left_out = dataclasses.replace(row, trial=dataclasses.replace(row.trial, canonical_flags={}))
    assert of([left_out], "inert_setting").text.startswith("a-flag does nothing in trial 1")


def test_prompts_out_of_the_prefix_cache_are_told_where_trials_differ_in_them(build_row: Build) -> None:
    def cached(row: Row, share: float) -> Row:
        assert row.level is not None
        assert row.level.metrics.prompt_tokens is not None
        tokens = int(share * row.level.metrics.prompt_tokens)
        metrics = dataclasses.replace(row.level.metrics, cached_tokens=tokens)
        return dataclasses.replace(row, level=dataclasses.replace(row.level, metrics=metrics))

    found = of([cached(build_row(0, 8, role="baseline"), 0.0), cached(build_row(1, 8), 0.5)], "prefix_cache")
    assert found.text == (
        "At C=8 0 to 50 % of the prompts' tokens came out of the prefix cache, most in trial 1: a part of what trials "
        "differ by there may be that."
    )
    assert "prefix_cache" not in kinds([cached(build_row(0, 8, role="baseline"), 0.01)])


def test_simulated_and_measured_rows_are_never_explained_together(build_row: Build) -> None:
    with pytest.raises(ValueError, match="simulated and measured"):
        explain([build_row(0, 8, role="baseline"), build_row(1, 8, simulated=False)])


def test_intervals_of_several_pairs_are_brought_together() -> None:
    both = together([Interval(1.1, 1.0, 1.21), Interval(1.1, 1.0, 1.21)])
    assert both.mean == pytest.approx(1.1)
    assert both.low == pytest.approx(1.1 / 1.1 ** (0.5**0.5))


@pytest.mark.parametrize(("length", "steps", "chance"), [(1.65, 3, 0.412), (1.0, 5, 0.0), (4.0, 3, 1.0)])
def test_the_chance_of_a_token_follows_from_the_accept_length(length: float, steps: int, chance: float) -> None:
    assert first_chance(length, steps) == pytest.approx(chance, abs=1e-3)


def test_a_trial_that_is_explained_alone_is_not_compared_with_its_like(build_row: Build) -> None:
    rows = [*pair(build_row), timed(build_row(2, 8, 90.0, flags=EAGLE3, accept_length=2.2, admits=64), 11.0)]
    [found] = [f for f in explain_trial(rows, 1, parse_objective("output_tokens_per_s@8")) if f.kind == "break_even"]
    assert (found.data["trial"], found.data["others"]) == (1, [])
