"""Intervals: against tables, and by how often they hold what they are to hold."""

from __future__ import annotations

import math
import random
from statistics import NormalDist, fmean

import pytest

from orchestrator.benchmark.intervals import (
    Interval,
    autocorrelation,
    batch_means_interval,
    largest_t,
    mean_interval,
    paired_ratio,
    student_t,
)


# Two-sided 95 %, from printed tables.
@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (7, 2.365), (15, 2.131), (30, 2.042), (10**6, 1.960)],
)
def test_student_t_is_the_tables(freedom: int, quantile: float) -> None:
    assert student_t(freedom) == pytest.approx(quantile, rel=2.5e-3)


def test_other_confidences_and_no_freedom() -> None:
    assert student_t(10, 0.99) == pytest.approx(3.169, rel=3e-3)
    with pytest.raises(ValueError, match="degree of freedom"):
        student_t(0)


def test_a_single_value_says_nothing_of_its_spread() -> None:
    assert mean_interval([3.0]) == Interval(3.0, -math.inf, math.inf)
    assert paired_ratio([2.0], [3.0]) == Interval(pytest.approx(1.5), 0.0, math.inf)
    with pytest.raises(ValueError, match="no values"):
        mean_interval([])


def test_a_ratio_of_pairs_is_free_of_what_both_share() -> None:
    drift = [1.0, 1.4, 0.7, 1.2]
    found = paired_ratio([100 * d for d in drift], [110 * d for d in drift])
    assert (found.mean, found.low, found.high) == pytest.approx((1.1, 1.1, 1.1))
    assert not found.holds(1.0)
    # The other way round is the inverse.
    back = paired_ratio([110.0, 100.0, 130.0], [100.0, 120.0, 100.0])
    there = paired_ratio([100.0, 120.0, 100.0], [110.0, 100.0, 130.0])
    assert (1 / back.high, 1 / back.low) == pytest.approx((there.low, there.high))
    with pytest.raises(ValueError, match="zip"):
        paired_ratio([1.0], [1.0, 2.0])


def series(draw: random.Random, length: int, likeness: float) -> list[float]:
    """Of first order around 100: each value keeps `likeness` of the one before."""
    value, values = draw.gauss(0, 1) / math.sqrt(1 - likeness**2), []
    for _ in range(length):
        value = likeness * value + draw.gauss(0, 1)
        values.append(100 + value)
    return values


def coverage(likeness: float, tries: int = 600, length: int = 64) -> tuple[float, float]:
    """How often the interval holds the truth, by batch means and as if the values were independent."""
    draw = random.Random(1)
    held = naive = 0
    for _ in range(tries):
        values = series(draw, length, likeness)
        found = batch_means_interval(values)
        assert found is not None
        held += found.holds(100)
        naive += mean_interval(values).holds(100)
    return held / tries, naive / tries


def test_independent_batches_hold_the_truth_in_95_of_100() -> None:
    held, _ = coverage(0.0)
    assert held == pytest.approx(0.95, abs=0.03)


@pytest.mark.parametrize("likeness", [0.4, 0.7])
def test_batches_that_are_alike_do_not_pretend_to_be_many(likeness: float) -> None:
    held, naive = coverage(likeness)
    assert held == pytest.approx(0.95, abs=0.035)
    assert naive < 0.88


def test_too_few_batches_tell_nothing() -> None:
    assert batch_means_interval([1.0] * 7) is None
    assert batch_means_interval([1.0] * 8) == Interval(1.0, 1.0, 1.0)


def test_every_batch_counts_in_the_mean() -> None:
    values = [float(n) for n in range(17)]
    found = batch_means_interval(values)
    assert found is not None
    assert found.mean == fmean(values)


def test_autocorrelation() -> None:
    assert autocorrelation([1.0, -1.0] * 50) == pytest.approx(-0.99)
    assert autocorrelation([1.0] * 20 + [-1.0] * 20) == pytest.approx(0.925)
    assert autocorrelation([0.1 + 0.2] * 9) == 0.0


@pytest.mark.parametrize(("freedom", "of", "quantile"), [(2, 2, 5.57), (2, 3, 6.34), (2, 10, 8.57), (5, 3, 3.40)])
def test_the_largest_of_many_is_the_tables(freedom: int, of: int, quantile: float) -> None:
    assert largest_t(freedom, of) == pytest.approx(quantile, abs=0.015)


@pytest.mark.parametrize("of", [2, 10, 100])
def test_the_largest_of_many_with_a_known_spread_is_the_normals(of: int) -> None:
    assert largest_t(20_000, of) == pytest.approx(NormalDist().inv_cdf((1 + 0.95 ** (1 / of)) / 2), rel=1e-3)


def test_the_largest_of_one_is_students_and_of_more_is_larger() -> None:
    assert largest_t(2, 1) == student_t(2)
    assert student_t(2) < largest_t(2, 2) < largest_t(2, 12) < largest_t(1, 12)
    # Not as far as if each had an estimate of its own.
    assert largest_t(2, 12) < student_t(2, 0.95 ** (1 / 12))
    for freedom, of in ((0, 2), (2, 0)):
        with pytest.raises(ValueError):
            largest_t(freedom, of)


def test_all_of_many_intervals_hold_the_truth_at_once() -> None:
    draw = random.Random(3)
    held = 0
    for _ in range(4000):
        spread = math.sqrt(sum(draw.gauss(0, 1) ** 2 for _ in range(3)) / 3)
        held += max(abs(draw.gauss(0, 1)) for _ in range(8)) <= largest_t(3, 8) * spread
    assert held / 4000 == pytest.approx(0.95, abs=0.012)
