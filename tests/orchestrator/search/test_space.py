"""The space: what is drawn, enumerated and counted agree, for any parameters and conditions."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.config import Parameter, Space
from orchestrator.fields import value_key
from orchestrator.search.distributions import distribution, from_optuna, to_optuna
from orchestrator.search.space import Knob, SearchSpace, SpaceError

#: Optuna warns on the terminal where a range and its step do not fit.
pytestmark = pytest.mark.filterwarnings("error")

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.5, 1.0, 2.5]),
    st.sampled_from(["a", "b", "", "1", "true", "null"]),
    st.lists(st.sampled_from(["a", 1, True]), min_size=1, max_size=2),
)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """Up to four finite parameters; each may depend on earlier ones, so conditions nest to any depth."""
    flags: dict[str, Parameter] = {}
    for name in ("a", "b", "c", "d")[: draw(st.integers(0, 4))]:
        kind = draw(st.sampled_from(["choices", "int", "float"]))
        entry: dict[str, Any] = {}
        if kind == "choices":
            entry["choices"] = draw(st.lists(VALUES, min_size=1, max_size=3, unique_by=value_key))
        elif kind == "int":
            low = draw(st.integers(-2, 3))
            entry["int"] = [low, low + draw(st.integers(0, 4))]
            if draw(st.booleans()):
                entry["step"] = draw(st.integers(1, 3))
            elif low > 0:
                entry["log"] = draw(st.booleans())
        else:
            low_f = draw(st.sampled_from([0, 0.1, 0.05, 1.0, -0.3]))
            entry["float"] = [low_f, low_f + draw(st.sampled_from([0.0, 0.3, 0.25, 0.7]))]
            entry["step"] = draw(st.sampled_from([0.1, 0.05, 0.2]))
        when: dict[str, Any] = {}
        for other in draw(st.lists(st.sampled_from(sorted(flags)), unique=True)) if flags else []:
            possible = [v for v in (Knob(other, "flags", flags[other]).choices or ()) if not isinstance(v, list)]
            if possible:
                wanted = draw(st.lists(st.sampled_from(possible), min_size=1, max_size=2, unique_by=value_key))
                when[other] = wanted if len(wanted) > 1 else wanted[0]
        flags[name] = Parameter(**entry, when=when)
    # The order in the file is not the order of the conditions.
    return Space(flags={name: flags[name] for name in draw(st.permutations(sorted(flags)))})


def key(point: dict[str, Any]) -> str:
    return repr(sorted((name, value_key(value)) for name, value in point.items()))


def brute_force(space: Space) -> set[str]:
    """Every assignment of values or absence, kept where presence is what the conditions say."""
    absent = object()
    knobs = {name: Knob(name, "flags", parameter) for name, parameter in space.flags.items()}
    found = set()
    for values in itertools.product(*([absent, *(k.choices or ())] for k in knobs.values())):
        point = dict(zip(knobs, values, strict=True))

        def holds(name: str, point: dict[str, Any] = point) -> bool:
            for other, wanted in knobs[name].parameter.when.items():
                allowed = wanted if isinstance(wanted, list) else [wanted]
                if point[other] is absent or value_key(point[other]) not in [value_key(a) for a in allowed]:
                    return False
            return True

        if all((point[name] is not absent) == holds(name) for name in knobs):
            found.add(key({n: v for n, v in point.items() if v is not absent}))
    return found


@given(spaces())
def test_the_points_are_all_assignments_that_fit_the_conditions_each_once(space: Space) -> None:
    points = [key(point) for point in SearchSpace.build(space).points()]
    assert len(points) == len(set(points))
    assert set(points) == brute_force(space)


@settings(max_examples=60)
@given(spaces(), st.integers(0, 2**31), st.sampled_from(["random", "tpe"]))
def test_every_draw_of_optuna_is_one_of_the_points(space: Space, seed: int, kind: str) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    built = SearchSpace.build(space)
    points = {key(point) for point in built.points()}
    sampler = (
        optuna.samplers.RandomSampler(seed=seed)
        if kind == "random"
        else optuna.samplers.TPESampler(seed=seed, n_startup_trials=1)
    )
    study = optuna.create_study(sampler=sampler)
    for value in range(4):
        trial = study.ask()
        drawn = built.draw(lambda k, t=trial: from_optuna(k, t._suggest(k.name, distribution(k))))  # type: ignore[misc]
        assert key(drawn) in points
        study.tell(trial, float(value))


@given(spaces())
def test_every_point_can_be_told_to_optuna_and_comes_back_the_same(space: Space) -> None:
    built = SearchSpace.build(space)
    for point in built.points():
        for knob in built.knobs:
            if knob.name in point:
                stored = to_optuna(knob, point[knob.name])
                held = distribution(knob)
                assert held._contains(held.to_internal_repr(stored))
                back = from_optuna(knob, held.to_external_repr(held.to_internal_repr(stored)))
                assert value_key(back) == value_key(point[knob.name])


@given(spaces())
def test_the_count_is_that_of_the_points(space: Space) -> None:
    built = SearchSpace.build(space)
    points = list(built.points())
    # A coarse identity: everything but the first knob; refused where that one is absent.
    first = built.knobs[0].name if built.knobs else ""

    def identity(point: Any) -> str | None:
        return None if first not in point else key({n: v for n, v in point.items() if n != first})

    distinct = {identity(p) for p in points} - {None}
    assert built.count(identity) == (len(points), len(distinct), True)
    assert built.count(identity, limit=len(points)) == (len(points), len(distinct), True)
    if len(points) > 1:
        seen, _, whole = built.count(identity, limit=len(points) - 1)
        assert (seen, whole) == (len(points) - 1, False)


def _space(**flags: dict[str, Any]) -> SearchSpace:
    return SearchSpace.build(Space(flags={name: Parameter(**entry) for name, entry in flags.items()}))


@given(st.permutations([None, True, 1.5, "a", "b", 3]))
def test_the_order_of_choices_in_the_file_changes_nothing(order: list[Any]) -> None:
    (ordered,) = _space(x={"choices": [None, True, 1.5, "a", "b", 3]}).knobs
    (shuffled,) = _space(x={"choices": order}).knobs
    assert distribution(shuffled) == distribution(ordered)
    assert list(shuffled.choices or ()) == list(ordered.choices or ())


@pytest.mark.parametrize(
    ("entry", "values"),
    [
        ({"int": [1, 10], "step": 3}, [1, 4, 7, 10]),
        ({"int": [1, 9], "step": 3}, [1, 4, 7]),
        ({"int": [2, 2]}, [2]),
        ({"int": [1, 4], "log": True}, [1, 2, 3, 4]),
        ({"float": [0.1, 0.4], "step": 0.1}, [0.1, 0.2, 0.3, 0.4]),
        ({"float": [0, 1], "step": 0.3}, [0.0, 0.3, 0.6, 0.9]),
    ],
)
def test_both_ends_are_drawn_and_nothing_else(entry: dict[str, Any], values: list[Any]) -> None:
    space = _space(x=entry)
    assert [point["x"] for point in space.points()] == values
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    drawn = Counter()
    for _ in range(60):
        trial = study.ask()
        drawn[
            space.draw(lambda k, t=trial: from_optuna(k, t._suggest(k.name, distribution(k))))["x"]  # type: ignore[misc]
        ] += 1
    assert sorted(drawn) == values


def test_a_continuous_range_keeps_its_ends_and_is_not_enumerated() -> None:
    space = _space(x={"float": [0.1, 0.9]}, y={"choices": [1]})
    (x, _) = space.knobs
    held = distribution(x)
    assert isinstance(held, optuna.distributions.FloatDistribution)
    assert (held.low, held.high) == (0.1, 0.9)
    assert not space.enumerable
    with pytest.raises(ValueError, match="x is a continuous range"):
        next(space.points())


def test_an_endless_range_costs_nothing_until_it_is_walked() -> None:
    space = _space(x={"int": [1, 10**15]}, y={"float": [0, 1], "step": 1e-12}, z={"int": [1, 2], "when": {"x": 10**14}})
    assert next(space.points()) == {"x": 1, "y": 0.0}
    assert space.count(lambda p: key(dict(p)), limit=10) == (10, 10, False)
    with pytest.raises(SpaceError, match="x never takes the value 0"):
        _space(x={"int": [1, 10**15]}, z={"int": [1, 2], "when": {"x": 0}})


def test_conditions_tell_one_from_true() -> None:
    space = _space(
        x={"choices": [1, True, "1"]},
        one={"choices": ["p", "q"], "when": {"x": 1}},
        true={"choices": ["p", "q", "r"], "when": {"x": True}},
    )
    assert sum(1 for _ in space.points()) == 2 + 3 + 1


def test_a_condition_on_null_holds_where_the_flag_is_left_out_but_not_where_it_has_no_say() -> None:
    space = _space(
        algorithm={"choices": [None, "E"]},
        steps={"choices": [None, 3], "when": {"algorithm": "E"}},
        extra={"choices": [1, 2], "when": {"steps": None}},
    )
    assert sorted(key(p) for p in space.points()) == sorted(
        key(p)
        for p in (
            {"algorithm": None},
            {"algorithm": "E", "steps": None, "extra": 1},
            {"algorithm": "E", "steps": None, "extra": 2},
            {"algorithm": "E", "steps": 3},
        )
    )


def test_a_long_chain_of_conditions_is_ordered_whatever_the_order_in_the_file() -> None:
    names = [f"p{i}" for i in range(40)]
    entries = {name: {"choices": [0, 1], "when": {names[i - 1]: 1} if i else {}} for i, name in enumerate(names)}
    shuffled = random.Random(3).sample(names, len(names))
    space = _space(**{name: entries[name] for name in shuffled})
    assert [knob.name for knob in space.knobs] == names
    # p0..pk are 1 and the next one is 0, for each k, or all are 1.
    assert space.count(lambda p: key(dict(p))) == (41, 41, True)


def test_the_split_puts_flags_and_environment_in_their_places() -> None:
    space = SearchSpace.build(
        Space.model_validate({"flags": {"f": {"choices": [None, 2]}}, "env": {"E": {"choices": [None, 4, "LL"]}}})
    )
    assert space.split({"f": 2, "E": 4}) == ({"f": 2}, {"E": "4"})
    assert space.split({"f": None, "E": None}) == ({}, {})
