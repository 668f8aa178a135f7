"""How a trial stands to the constraints: by its own figures, or by those of what it starts again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.analysis.constraints import feasible, kept
from orchestrator.analysis.objectives import parse_constraint, parse_objective
from orchestrator.analysis.rows import Row

Build = Callable[..., Row]
SCORE = parse_objective("output_tokens_per_s@128")
LIMIT = parse_constraint("ttft_ms.p99@32 <= 150")


def again(build_row: Build, *loads: int, ttft_ms: float = 50.0) -> list[Row]:
    return [build_row(9, load, role="sentinel", repeats=3, repeat=1, ttft_ms=ttft_ms) for load in loads]


def test_its_own_figure_comes_first(build_row: Build) -> None:
    slow = [build_row(3, load, ttft_ms=500.0) for load in (32, 128)]
    assert kept(slow, (), LIMIT).text == "violated: 1,000"
    assert feasible(slow, (), SCORE, [LIMIT]) is False
    own = again(build_row, 32, 128)
    assert kept(own, slow, LIMIT).text == "met: 100"
    assert feasible(own, slow, SCORE, [LIMIT]) is True


@pytest.mark.parametrize(("ttft_ms", "told", "counts"), [(50.0, "met: 100", True), (500.0, "violated: 1,000", False)])
def test_without_one_that_of_what_it_starts_again_counts(
    build_row: Build, ttft_ms: float, told: str, counts: bool
) -> None:
    of = [build_row(3, load, ttft_ms=ttft_ms) for load in (32, 128)]
    assert kept(again(build_row, 128), of, LIMIT).text == f"{told} (of trial 3, which it starts again)"
    assert feasible(again(build_row, 128), of, SCORE, [LIMIT]) is counts


def test_what_nobody_can_tell_is_null_and_what_was_not_measured_is_not_met(build_row: Build) -> None:
    assert kept(again(build_row, 128), (), LIMIT).violation is None
    assert feasible(again(build_row, 128), (), SCORE, [LIMIT]) is None
    # Another constraint is known to be broken.
    assert feasible(again(build_row, 128), (), SCORE, [LIMIT, parse_constraint("ttft_ms.p99@128 <= 1")]) is False
    assert kept([build_row(3, 128)], (), LIMIT).text == "violated: not measured"
    assert feasible([build_row(3, 128)], (), SCORE, [LIMIT]) is False
    assert feasible([build_row(3, 128, state="interrupted")], (), SCORE, []) is False
