"""Acceptance length from each of its sources, holes included."""

from __future__ import annotations

import math

import pytest

from orchestrator.benchmark.acceptance import Acceptance, from_counters, from_ranks, from_responses


def ranks(*lengths: object) -> list[dict[str, object]]:
    """Internal states of data-parallel ranks; ... for one that leaves the value out."""
    return [{} if value is ... else {"avg_spec_accept_length": value} for value in lengths]


def test_ranks_with_holes_give_the_mean_of_the_others_marked_partial() -> None:
    """P12(a): the first rank says nothing, and is neither taken for all nor for 0."""
    found = from_ranks(ranks(None, ..., 2.90, 3.67, None, 4.64))
    assert found is not None
    assert found.length == pytest.approx(3.7367, abs=1e-4)
    assert (found.source, found.partial) == ("ranks", True)


def test_ranks_that_all_tell_are_not_partial() -> None:
    assert from_ranks(ranks(2.0, 3.0)) == Acceptance(2.5, "ranks", partial=False)


def test_responses_are_weighted_by_their_verify_steps() -> None:
    """P12(b): 3.0 over 100 steps and 2.0 over 300."""
    assert from_responses([(300, 100), (600, 300)]) == Acceptance(2.25, "responses")


def test_a_response_gives_tokens_over_steps() -> None:
    """P12(c)."""
    assert from_responses([(512, 128)]) == Acceptance(4.0, "responses")
    assert from_responses([(512, 128), (100, None), (None, 3), (7, 0)]) == Acceptance(4.0, "responses")


@pytest.mark.parametrize("states", [[], [None], ranks(None, ...), ranks(0.0, math.nan, "2.5")])
def test_nothing_told_is_none_and_not_zero(states: list[dict[str, object] | None]) -> None:
    """P12(d)."""
    assert from_ranks(states) is None
    assert from_responses([]) is None
    assert from_counters({}, {}) is None


def test_counters_of_the_window_as_a_real_server_gave_them() -> None:
    """Recorded from 0.5.23 on CPU: three answers of 48 tokens in 13 verify steps each, after its own warm-up."""
    before = {"generation_tokens_total": 8.0, "spec_verify_calls_total": 3.0}
    after = {"generation_tokens_total": 152.0, "spec_verify_calls_total": 42.0}
    assert from_counters(before, after) == Acceptance(144 / 39, "counters")


def test_counters_of_a_server_that_restarted_or_does_not_speculate_tell_nothing() -> None:
    before = {"generation_tokens_total": 100.0, "spec_verify_calls_total": 50.0}
    assert from_counters(before, {"generation_tokens_total": 40.0, "spec_verify_calls_total": 60.0}) is None
    assert from_counters(before, {"generation_tokens_total": 400.0, "spec_verify_calls_total": 6.0}) is None
    assert from_counters({"generation_tokens_total": 1.0}, {"generation_tokens_total": 9.0}) is None
