"""What starts of one setting differ by, and which differences are told in spite of it."""

from __future__ import annotations

import math
import random

import pytest

from orchestrator.analysis.layout import Repeated
from orchestrator.analysis.noise import (
    NoiseFloor,
    Value,
    around,
    gap_found,
    geometric_mean,
    log_ratio,
    noise_floor,
    paired_ratio_of,
    ratio_of,
    rounds_needed,
)
from orchestrator.benchmark.intervals import largest_t, student_t


def test_the_floor_is_the_spread_of_what_was_started_again() -> None:
    starts = [Repeated(0, math.exp(x)) for x in (0.00, 0.02, -0.02)]
    floor = noise_floor(starts)
    assert floor is not None
    assert (floor.sd, floor.freedom) == (pytest.approx(0.02), 2)
    # Two of another setting, however fast, add a degree of freedom; a single one says nothing.
    more = noise_floor([*starts, Repeated(5, 300.0), Repeated(5, 300.0), Repeated(6, 7.0)])
    assert more is not None
    assert (more.sd, more.freedom) == (pytest.approx(0.02 * math.sqrt(2 / 3)), 3)


def test_without_a_repeat_there_is_no_floor() -> None:
    assert noise_floor([]) is None
    assert noise_floor([Repeated(0, 10.0), Repeated(1, 20.0)]) is None
    assert noise_floor([Repeated(0, 10.0, round=1), Repeated(1, 20.0, round=1)]) is None


def test_what_a_round_has_in_common_is_no_noise() -> None:
    # Each round is 10 % slower than the one before; in it the second setting is always 5 % faster.
    rounds = [Repeated(setting, 100 * 0.9**n * (1.05 if setting else 1), n) for n in range(3) for setting in (0, 1)]
    floor = noise_floor(rounds)
    assert floor is not None
    assert (floor.sd, floor.freedom) == (pytest.approx(0.0, abs=1e-12), 2)


def test_the_spread_is_found_in_rounds_and_outside_of_them() -> None:
    rng = random.Random(7)
    starts = [Repeated(0, math.exp(rng.gauss(0, 0.01))) for _ in range(40)]
    for number in range(40):
        common = rng.gauss(0, 0.2)
        starts += [Repeated(s, math.exp(common + rng.gauss(s, 0.01)), number) for s in (0, 1, 2)]
    floor = noise_floor(starts)
    assert floor is not None
    # The effects of two settings beside the baseline's level, and those of 40 rounds, are taken off.
    assert floor.freedom == 160 - 43
    assert floor.sd == pytest.approx(0.01, rel=0.15)


def test_a_level_adds_what_it_is_more_restless_by_than_those_of_the_floor() -> None:
    floor = NoiseFloor(0.01, 10, within_sd=0.02)

    def width(a: float | None, b: float | None, starts: int = 1) -> float:
        found = ratio_of(Value(110.0, a), Value(100.0, b, starts), floor)
        assert found.mean == pytest.approx(1.1)
        return math.log(found.high / found.low) / 2

    assert width(None, None) == pytest.approx(2.228 * 0.01 * math.sqrt(2), rel=1e-3)
    # A half-width of 3.9 % is a standard deviation of 2 %, as the floor's own levels had; one of 10 % is 5.1 %.
    assert width(1.1 * 3.9, 3.9) == pytest.approx(width(None, None))
    assert width(11.0, None) == pytest.approx(2.05 * math.sqrt(2 * 0.01**2 + 0.051**2 - 0.02**2), rel=0.03)
    # Four starts of the baseline are known twice as well as one.
    assert width(None, None, 4) == pytest.approx(2.228 * 0.01 * math.sqrt(1.25), rel=1e-3)


def test_the_floor_knows_how_restless_its_own_levels_were() -> None:
    floor = noise_floor([Repeated(0, 100.0, within_sd=0.01), Repeated(0, 101.0, within_sd=0.03)])
    assert floor is not None
    assert floor.within_sd == pytest.approx(math.sqrt((0.01**2 + 0.03**2) / 2))


def test_without_a_floor_only_the_levels_themselves_count() -> None:
    assert ratio_of(Value(110.0), Value(100.0), None).low == pytest.approx(1.1)
    assert ratio_of(Value(110.0, 20.0), Value(100.0), None).holds(1.0)


def rounds_of(pairs: list[tuple[float, float]], sentinels: int = 0) -> list[Repeated]:
    """Setting 1 beside the baseline, round by round, and starts of the baseline that are the same as one another."""
    starts = [Repeated(s, v, n) for n, pair in enumerate(pairs) for s, v in ((1, pair[0]), (0, pair[1]))]
    return [*starts, *(Repeated(0, 100.0) for _ in range(sentinels))]


def test_rounds_make_a_paired_interval_narrower() -> None:
    def half(rounds: int) -> float:
        apart = [0.01 * (-1) ** n for n in range(rounds)]
        found = paired_ratio_of(rounds_of([(100 * math.exp(x), 100.0) for x in apart]), 1)
        assert found is not None
        assert found.mean == pytest.approx(1.0)
        return math.log(found.high)

    # The spread of differences 0.01, -0.01, ... is 0.01 √(n / (n - 1)); t has n degrees of freedom.
    assert half(4) == pytest.approx(student_t(4) * 0.01 / math.sqrt(3), rel=0.15)
    assert half(16) < half(8) / 1.3 < half(4) / 1.6


def test_a_setting_that_varies_more_than_the_baseline_has_the_wider_interval_of_its_own_pairs() -> None:
    pairs = [(100 * math.exp(x), 100.0) for x in (0.03, -0.03, 0.03, -0.03)]
    found = paired_ratio_of(rounds_of(pairs, sentinels=40), 1)
    assert found is not None
    assert math.log(found.high) == pytest.approx(student_t(4) * 0.03 * math.sqrt(4 / 3) / 2, rel=1e-6)


def test_without_a_whole_round_there_is_no_paired_interval() -> None:
    starts = [Repeated(0, 100.0), Repeated(0, 101.0), Repeated(1, 103.0, 1), Repeated(0, 100.0, 2)]
    assert paired_ratio_of(starts, 1) is None


def test_what_nodes_differ_by_is_taken_out_of_the_rounds() -> None:
    # The second node is 10 % slower; setting 1 is 3 % faster, and ran on the slow node in both rounds.
    starts = [Repeated(0, 100 + w, node="a") for w in (-0.1, 0.1)] + [
        Repeated(0, 90 + w, node="b") for w in (-0.1, 0.1)
    ]
    starts += [Repeated(0, 100.0, n, node="a") for n in (1, 2)] + [Repeated(1, 92.7, n, node="b") for n in (1, 2)]
    found = paired_ratio_of(starts, 1)
    assert found is not None
    assert found.mean == pytest.approx(1.03, abs=1e-3)
    assert found.low > 1.01
    # Without a setting that ran on both nothing is told.
    assert paired_ratio_of([start for start in starts if (start.round, start.node) != (None, "b")], 1) is None


def test_the_best_of_many_is_doubted_as_all_of_them_together() -> None:
    floor = NoiseFloor(0.01, 10)
    one, many = (ratio_of(Value(103.0), Value(100.0), floor, of) for of in (1, 20))
    assert many.mean == one.mean
    reach = largest_t(10, 20) / student_t(10)
    assert math.log(many.high / many.mean) == pytest.approx(reach * math.log(one.high / one.mean))


def test_the_rounds_that_are_asked_for_find_the_gap_as_often_as_asked() -> None:
    floor = NoiseFloor(0.02, 60)
    rounds = rounds_needed(floor, gap=0.03, power=0.9)
    half = student_t(60) * 0.02 * math.sqrt(2 / rounds)
    assert gap_found(around(0.0, half), floor, 0.9) <= 0.03
    assert gap_found(around(0.0, half * math.sqrt(rounds / (rounds - 1))), floor, 0.9) > 0.03
    rng = random.Random(3)

    def found() -> bool:
        pairs = [(math.exp(rng.gauss(math.log(1.03), 0.02)), math.exp(rng.gauss(0, 0.02))) for _ in range(rounds)]
        quiet = [Repeated(0, math.exp(rng.gauss(0, 0.02))) for _ in range(60)]
        ratio = paired_ratio_of([*rounds_of(pairs), *quiet], 1)
        return ratio is not None and ratio.low > 1

    assert sum(found() for _ in range(300)) / 300 == pytest.approx(0.88, abs=0.05)


@pytest.mark.parametrize("bad", [0.0, -3.0, math.inf, math.nan])
def test_what_is_not_above_0_has_no_ratio_and_raises_nothing(bad: float) -> None:
    floor = NoiseFloor(0.01, 4)
    for one, other in ((bad, 2.0), (2.0, bad), (bad, bad)):
        assert log_ratio(one, other) is None
        assert ratio_of(Value(one, 1.0), Value(other, 1.0), floor) is None
        assert ratio_of(Value(one), Value(other), None) is None
    if not math.isfinite(bad):
        return
    kept = [(103.0, 100.0), (104.0, 100.0)]
    assert paired_ratio_of(rounds_of([*kept, (bad, 100.0), (103.0, bad)]), 1) == paired_ratio_of(
        [*rounds_of(kept), Repeated(0, 100.0, 3), Repeated(1, 103.0, 4)], 1
    )


def test_a_start_of_0_is_no_start_of_the_floor_and_makes_a_mean_of_0() -> None:
    starts = [Repeated(0, math.exp(x)) for x in (0.00, 0.02, -0.02)]
    assert noise_floor([*starts, Repeated(0, 0.0), Repeated(0, -1.0)]) == noise_floor(starts)
    assert noise_floor([Repeated(0, 0.0), Repeated(0, 0.0), Repeated(0, 1.0)]) is None
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([2.0, 0.0]) == geometric_mean([2.0, -1.0]) == 0.0


def test_a_spread_beyond_all_numbers_is_told_as_a_large_one() -> None:
    floor = noise_floor([Repeated(0, 1e-300), Repeated(0, 1e300)])
    assert floor is not None
    ratio = ratio_of(Value(1e300), Value(1e-300), floor)
    assert ratio is not None
    assert all(
        map(math.isfinite, (ratio.mean, ratio.low, ratio.high, floor.smallest_gain, gap_found(ratio, floor, 0.9)))
    )


def test_a_restless_level_never_makes_an_interval_narrower() -> None:
    """It adds degrees of freedom, which alone would make t smaller."""
    floor, base = NoiseFloor(0.02, 2, 0.05), Value(100.0, 9.0)
    widths = []
    for half_width in (0.0, 9.0, 10.0, 12.0, 20.0, 60.0):
        ratio = ratio_of(Value(100.0, half_width), base, floor)
        assert ratio is not None
        widths.append(ratio.high)
    assert min(widths) == widths[0]
    assert widths[0] == pytest.approx(math.exp(student_t(2) * 0.02 * math.sqrt(2)))
    assert widths[-1] > widths[0]
