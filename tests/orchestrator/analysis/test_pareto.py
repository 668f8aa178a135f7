"""The front against its definition, written out point by point."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.analysis.objectives import Direction
from orchestrator.analysis.pareto import non_dominated

BOTH: tuple[Direction, ...] = ("maximize", "maximize")


def dominates(a: Sequence[float], b: Sequence[float], directions: Sequence[Direction]) -> bool:
    pairs = [(x, y) if d == "maximize" else (y, x) for x, y, d in zip(a, b, directions, strict=True)]
    return all(x >= y for x, y in pairs) and any(x > y for x, y in pairs)


@st.composite
def fronts(draw: st.DrawFn) -> tuple[list[tuple[float, ...]], tuple[Direction, ...]]:
    """Points on a coarse grid, so that ties and duplicates are frequent."""
    directions = draw(st.lists(st.sampled_from(["maximize", "minimize"]), min_size=1, max_size=4).map(tuple))
    value = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e3, 1e3))
    points = draw(st.lists(st.tuples(*[value] * len(directions)), max_size=25))
    return points, directions


@given(fronts(), st.randoms(use_true_random=False))
def test_the_front_is_exactly_what_nothing_dominates_in_any_order(drawn, random) -> None:  # type: ignore[no-untyped-def]
    points, directions = drawn
    expected = [i for i, point in enumerate(points) if not any(dominates(other, point, directions) for other in points)]
    assert non_dominated(points, directions) == expected
    order = list(range(len(points)))
    random.shuffle(order)
    shuffled = non_dominated([points[i] for i in order], directions)
    assert sorted(order[i] for i in shuffled) == expected


def test_ties_are_dominated_and_duplicates_stay_together() -> None:
    a, b, c, d = (10.0, 100.0), (5.0, 100.0), (10.0, 100.0), (12.0, 90.0)
    assert non_dominated([a, b, c, d], BOTH) == [0, 2, 3]
    assert non_dominated([d, c, b, a], BOTH) == [0, 1, 3]
    assert non_dominated([(5.0, 90.0), (5.0, 100.0)], BOTH) == [1]
    assert non_dominated([], BOTH) == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_finite_number_is_refused_with_its_point(value: float) -> None:
    with pytest.raises(ValueError, match="point 1"):
        non_dominated([(1.0, 1.0), (1.0, value)], BOTH)


def test_points_of_another_length_and_no_objective_are_refused() -> None:
    with pytest.raises(ValueError, match="point 0 has 1 values for 2 objectives"):
        non_dominated([(1.0,)], BOTH)
    with pytest.raises(ValueError, match="at least one objective"):
        non_dominated([()], ())
