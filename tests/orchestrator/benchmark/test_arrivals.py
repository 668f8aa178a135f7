"""The turns of an open loop: seeded, of the rate asked for, and as unruly."""

from __future__ import annotations

import itertools
from statistics import fmean, pstdev

import pytest
from pydantic import ValidationError

from orchestrator.benchmark.arrivals import arrivals_s
from orchestrator.workload import Arrivals


def gaps_s(arrivals: Arrivals, rate: float = 4.0, key: str = "r0004.000", count: int = 20_000) -> list[float]:
    turns = list(itertools.islice(arrivals_s(arrivals, rate, key), count))
    assert turns == sorted(turns)
    return [later - earlier for earlier, later in itertools.pairwise(turns)]


@pytest.mark.parametrize(
    ("arrivals", "variation"),
    [
        (Arrivals(), 1.0),
        (Arrivals(kind="gamma"), 1.0),
        (Arrivals(kind="gamma", burstiness=0.25), 2.0),
        (Arrivals(kind="gamma", burstiness=4.0), 0.5),
        (Arrivals(kind="constant"), 0.0),
    ],
)
def test_the_gaps_have_the_rate_and_a_variation_of_one_over_the_root_of_the_burstiness(
    arrivals: Arrivals, variation: float
) -> None:
    gaps = gaps_s(arrivals)
    assert fmean(gaps) == pytest.approx(0.25, rel=0.05)
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(variation, rel=0.05, abs=1e-6)


def test_the_same_level_has_the_same_turns_and_another_level_or_seed_others() -> None:
    again = [gaps_s(Arrivals(), count=5) for _ in range(2)]
    assert again[0] == again[1]
    assert gaps_s(Arrivals(seed=1), count=5) != again[0]
    assert gaps_s(Arrivals(), key="r0004.000-1", count=5) != again[0]


def test_only_gamma_has_a_burstiness() -> None:
    with pytest.raises(ValidationError, match="goes with kind gamma"):
        Arrivals(burstiness=0.5)
