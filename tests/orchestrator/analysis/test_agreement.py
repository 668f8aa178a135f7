"""Greedy output compared with the baseline's: right output is left alone, broken output is found."""

from __future__ import annotations

import random

import pytest

from orchestrator.analysis.agreement import OUTPUT_TOKENS, PROMPTS, agreement, judged, lossy_thresholds
from orchestrator.analysis.rows import StartInfo

Tokens = tuple[tuple[int, ...], ...]


def text(seed: int) -> Tokens:
    rng = random.Random(seed)
    return tuple(tuple(rng.randrange(32_000) for _ in range(OUTPUT_TOKENS)) for _ in PROMPTS)


def forked(outputs: Tokens, *at: int) -> Tokens:
    """The outputs with the first prompts' answers parting at these positions, for good."""
    other = text(99)
    places = (*at, *[OUTPUT_TOKENS] * (len(outputs) - len(at)))
    return tuple(mine[:p] + theirs[p:] for mine, theirs, p in zip(outputs, other, places, strict=True))


BASE = text(1)


def start(outputs: Tokens | None, alone: Tokens | None = None) -> StartInfo:
    return StartInfo(1, "start", outputs=outputs, outputs_alone=alone)


def test_tokens_count_until_the_first_difference() -> None:
    assert agreement(((1, 2, 3, 4), (5, 6, 7, 8)), ((1, 2, 9, 4), (5, 6, 7, 8))).share == 0.75  # type: ignore[union-attr]
    # An answer that breaks off repeats no more than it has.
    assert agreement(((1, 2),), ((1, 2, 3, 4),)).share == 0.5  # type: ignore[union-attr]


@pytest.mark.parametrize(("mine", "theirs"), [((), ()), (((1,),), ((1,), (2,))), (((1,),), ((),))])
def test_nothing_to_compare_is_none(mine: Tokens, theirs: Tokens) -> None:
    assert agreement(mine, theirs) is None


def test_the_same_output_agrees_whole() -> None:
    found = judged(start(BASE), start(BASE, BASE))
    assert (found.output_agreement, found.output_self_agreement, found.output_differs) == (1.0, 1.0, False)


def test_broken_output_is_found_however_little_the_baseline_agrees_with_itself() -> None:
    """Garbage from the first tokens on, as of a protocol that tears data."""
    for alone in (BASE, forked(BASE, 30, 25, 10), forked(BASE, 30, 25, 10, 18, 5, 20)):
        found = judged(start(text(2)), start(BASE, alone))
        assert found.output_agreement == 0.0
        assert found.output_differs is True


def test_output_that_soon_leaves_the_baselines_is_found() -> None:
    lossy = forked(BASE, *[3, 9, 14, 2, 20, 6, 11, 8, 30, 4, 16, 5])
    assert judged(start(lossy), start(BASE, forked(BASE, 30, 25))).output_differs is True


def test_forks_that_other_kernels_bring_are_no_broken_output() -> None:
    few = judged(start(forked(BASE, 12, 33, 20)), start(BASE, BASE))
    assert few.output_agreement == pytest.approx(1 - (28 + 7 + 20) / 480)
    assert few.output_differs is False
    many = judged(start(forked(BASE, 3, 9, 30, 20, 15)), start(BASE, forked(BASE, 30, 8, 21, 10)))
    assert many.output_differs is False


def test_where_the_baseline_hardly_agrees_with_itself_nothing_is_called_broken() -> None:
    alone = forked(BASE, *[1] * len(PROMPTS))
    assert judged(start(text(2)), start(BASE, alone)).output_differs is False


def test_right_settings_are_hardly_ever_called_broken() -> None:
    """Of a thousand pairs whose answers fork by chance alike, once in 60 tokens, which is much, one in a hundred."""
    rng = random.Random(0)

    def noisy() -> Tokens:
        return forked(BASE, *[min(OUTPUT_TOKENS, int(rng.expovariate(1 / 60))) for _ in PROMPTS])

    alarms = sum(bool(judged(start(noisy()), start(BASE, noisy())).output_differs) for _ in range(1000))
    assert alarms <= 10


def test_without_the_answers_of_both_nothing_is_judged() -> None:
    for one, other in [(start(None), start(BASE, BASE)), (start(BASE), start(BASE)), (start(BASE), None)]:
        assert judged(one, other).output_differs is None


def test_lossy_thresholds_are_known_without_a_comparison() -> None:
    eagle = {"speculative-algorithm": "EAGLE"}
    assert lossy_thresholds(eagle | {"speculative-accept-threshold-acc": 0.9})
    assert not lossy_thresholds(eagle | {"speculative-accept-threshold-acc": 1.0})
    assert not lossy_thresholds({"speculative-accept-threshold-acc": 0.9})
    assert judged(start(BASE), start(BASE, BASE), lossy=True).output_differs is True
    assert judged(start(BASE), start(BASE, BASE), lossy=True).output_agreement == 1.0
