"""The key of a level: ordered, told in one way to a person, a metric and a file."""

from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.offered_load import Load

LOADS = st.one_of(
    st.builds(Load, st.integers(1, 99_999), st.none(), st.integers(0, 30)),
    st.builds(Load, st.none(), st.integers(1, 10**8).map(lambda n: n / 1000), st.integers(0, 30)),
)


@given(LOADS)
def test_a_load_survives_its_file_name_its_text_and_a_journey(load: Load) -> None:
    assert Load.from_stem(load.stem) == load
    assert Load.parse(load.text) == load.first
    assert pickle.loads(pickle.dumps(load)) == load


@given(st.lists(LOADS, min_size=2, max_size=8, unique=True))
def test_no_two_loads_share_a_name(loads: list[Load]) -> None:
    assert len({load.stem for load in loads}) == len({load.label for load in loads}) == len(loads)


def test_the_names_of_a_load() -> None:
    assert (Load(8).label, Load(8).stem, Load(8).text, Load(8).when) == ("C=8", "c0008", "8", "under 8 users")
    rate = Load(request_rate=2.5)
    assert (rate.label, rate.stem, rate.text, rate.when) == ("2.5 req/s", "r0002.500", "2.5rps", "at 2.5 req/s")
    assert Load(request_rate=8.0).label == "8 req/s"
    assert [Load(8, repeat=n).label for n in (1, 2)] == ["C=8 again", "C=8 (3)"]
    assert Load(8, repeat=1).stem == "c0008-1"


def test_closed_loops_come_first_each_by_its_size_and_a_repeat_after_what_it_repeats() -> None:
    ordered = [Load(8), Load(8, repeat=1), Load(128), Load(request_rate=0.5), Load(request_rate=0.5, repeat=2)]
    shuffled = ordered[::-1]
    assert sorted(shuffled) == ordered
    assert Load(8) <= Load(8)
    assert Load(128) < Load(request_rate=0.5)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({}, "one of them"),
        ({"concurrency": 1, "request_rate": 1.0}, "one of them"),
        ({"concurrency": 0}, "1 or more"),
        ({"request_rate": 0.0}, "above 0"),
        ({"request_rate": math.inf}, "above 0"),
        ({"request_rate": 0.0001}, "at most 3 decimals"),
        ({"concurrency": 1, "repeat": -1}, "repeat 0"),
    ],
)
def test_what_is_no_load_is_refused(wrong: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Load(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "rps", "8 users", "1e3rps", "-1"])
def test_text_that_is_no_load_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no load"):
        Load.parse(text)


@pytest.mark.parametrize("stem", ["c8", "outcome", "c0008.requests", "r2.5", "c0008-"])
def test_other_files_are_no_levels(stem: str) -> None:
    assert Load.from_stem(stem) is None
