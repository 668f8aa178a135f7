"""The search space: parameters with their conditions, drawn in order, counted, enumerated. Pure."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal

from orchestrator.config import Parameter, Space
from orchestrator.fields import value_key

#: What one draw fixes, by parameter name; parameters whose condition does not hold are absent.
Params = Mapping[str, Any]
#: Gives a parameter's value. Optuna's suggest, a recorded value, or an enumeration.
Suggest = Callable[["Knob"], Any]


@dataclass(frozen=True)
class Knob:
    """A parameter with its name and where it goes."""

    name: str
    target: Literal["flags", "env"]
    parameter: Parameter

    @cached_property
    def choices(self) -> Sequence[Any] | None:
        """All its values in an order that the file's order does not change; None for a continuous range."""
        p = self.parameter
        if p.choices is not None:
            return sorted(p.choices, key=lambda c: (c is not None, type(c).__name__, value_key(c)))
        if p.int_range is not None:
            return range(p.int_range[0], p.int_range[1] + 1, int(p.step or 1))
        if p.float_range is not None and p.step is not None:
            return _Steps(*p.float_range, p.step)
        return None

    @property
    def extent(self) -> Sequence[Any]:
        """Its listed values, or both ends of its range."""
        if self.parameter.choices is not None:
            return self.choices or ()
        return self.parameter.int_range or self.parameter.float_range or ()

    def active(self, params: Params) -> bool:
        """Whether every condition holds. A parameter that is itself absent meets no condition."""
        for other, wanted in self.parameter.when.items():
            allowed = wanted if isinstance(wanted, list) else [wanted]
            if other not in params or not any(_same(params[other], value) for value in allowed):
                return False
        return True

    def contains(self, value: Any) -> bool:
        """Whether the value can be drawn."""
        if isinstance(self.choices, range):
            return _is_number(value) and value in self.choices
        if isinstance(self.choices, _Steps):
            return _is_number(value) and float(value) == self.choices.nearest(value)
        if self.choices is not None:
            return any(_same(value, choice) for choice in self.choices)
        low, high = self.parameter.float_range or (0.0, 0.0)
        return _is_number(value) and low <= value <= high

    def snapped(self, value: Any) -> Any:
        """The value of a stepped float range that is meant: sums of steps carry rounding errors."""
        return self.choices.nearest(value) if isinstance(self.choices, _Steps) else value


class SpaceError(ValueError):
    """The conditions cannot be used. `path` is the key path of the one at fault."""

    def __init__(self, path: tuple[str | int, ...], message: str) -> None:
        super().__init__(message)
        self.path = path


class _Steps(Sequence[float]):
    """low, low + step, ... up to high, as the decimals that a person would write: 0.3, not 0.1 + 0.2."""

    def __init__(self, low: float, high: float, step: float) -> None:
        self._low, self._step = Decimal(str(low)), Decimal(str(step))
        self._number = int((Decimal(str(high)) - self._low) // self._step) + 1

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._number))]
        if not -self._number <= index < self._number:
            raise IndexError(index)
        return float(self._low + (index % self._number) * self._step)

    def nearest(self, value: float) -> float:
        index = round((Decimal(str(value)) - self._low) / self._step)
        return float(self[min(max(index, 0), self._number - 1)])


@dataclass(frozen=True)
class SearchSpace:
    """Knobs in an order in which every condition comes before what depends on it."""

    knobs: tuple[Knob, ...]

    @classmethod
    def build(cls, space: Space) -> SearchSpace:
        """Order the parameters by their conditions.

        Raises SpaceError on a condition that names no parameter, a value that the parameter never takes,
        or on a cycle.
        """
        given = {n: Knob(n, "flags", p) for n, p in space.flags.items()}
        given |= {n: Knob(n, "env", p) for n, p in space.env.items()}
        for knob in given.values():
            for other, wanted in knob.parameter.when.items():
                path: tuple[str, ...] = ("space", knob.target, knob.name, "when", other)
                if other not in given:
                    near = difflib.get_close_matches(other, given, 1, 0.5)
                    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(given)}"
                    raise SpaceError(path, f"no parameter of the space has this name; {hint}")
                for value in wanted if isinstance(wanted, list) else [wanted]:
                    if not given[other].contains(value):
                        raise SpaceError(path, f"{other} never takes the value {value!r}")
        ordered: dict[str, Knob] = {}
        while len(ordered) < len(given):
            ready = [k for n, k in given.items() if n not in ordered and ordered.keys() >= k.parameter.when.keys()]
            if not ready:
                cycle = _cycle(given, ordered)
                first = given[cycle[0]]
                path = ("space", first.target, first.name, "when")
                raise SpaceError(path, f"the conditions form a cycle: {' needs '.join([*cycle, cycle[0]])}")
            ordered |= {k.name: k for k in ready}
        return cls(tuple(ordered.values()))

    def draw(self, suggest: Suggest) -> dict[str, Any]:
        """One configuration: each knob whose condition holds, in order."""
        params: dict[str, Any] = {}
        for knob in self.knobs:
            if knob.active(params):
                params[knob.name] = suggest(knob)
        return params

    def split(self, params: Params) -> tuple[dict[str, Any], dict[str, str]]:
        """Parameters as server flags and environment; None leaves one out."""
        flags: dict[str, Any] = {}
        env: dict[str, str] = {}
        for knob in self.knobs:
            value = params.get(knob.name)
            if value is not None:
                if knob.target == "flags":
                    flags[knob.name] = value
                else:
                    env[knob.name] = str(value)
        return flags, env

    @property
    def enumerable(self) -> bool:
        """Whether the space holds finitely many points."""
        return all(knob.choices is not None for knob in self.knobs)

    def points(self) -> Iterator[dict[str, Any]]:
        """Every configuration once, in a fixed order. Raises ValueError where a range is continuous."""
        if not self.enumerable:
            name = next(k.name for k in self.knobs if k.choices is None)
            raise ValueError(f"{name} is a continuous range: the space cannot be enumerated")
        yield from self._points({}, 0)

    def _points(self, params: dict[str, Any], index: int) -> Iterator[dict[str, Any]]:
        if index == len(self.knobs):
            yield dict(params)
            return
        knob = self.knobs[index]
        if not knob.active(params):
            yield from self._points(params, index + 1)
            return
        for value in knob.choices or ():
            yield from self._points({**params, knob.name: value}, index + 1)

    def count(self, identity: Callable[[Params], object | None], limit: int = 100_000) -> tuple[int, int, bool]:
        """How many points, how many distinct identities among them (None is no server), and whether all were seen.

        Stops after `limit` points.
        """
        seen: set[object] = set()
        number = 0
        for point in itertools.islice(self.points(), limit + 1):
            if number == limit:
                return number, len(seen), False
            number += 1
            key = identity(point)
            if key is not None:
                seen.add(key)
        return number, len(seen), True


def _cycle(knobs: Mapping[str, Knob], ordered: Mapping[str, Knob]) -> list[str]:
    """The names of one cycle among the knobs that could not be ordered."""
    seen: list[str] = []
    name = next(n for n in knobs if n not in ordered)
    while name not in seen:
        seen.append(name)
        name = next(n for n in knobs[name].parameter.when if n not in ordered)
    return seen[seen.index(name) :]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(a: Any, b: Any) -> bool:
    """Equality that tells 1 from True and takes 1 for 1.0."""
    if type(a) is type(b) and not isinstance(a, list | dict):
        return bool(a == b)
    return value_key(a) == value_key(b)
