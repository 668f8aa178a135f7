"""Knobs as Optuna distributions and back. Optuna stores scalars; lists and mappings travel as JSON text."""

from __future__ import annotations

import json
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from orchestrator.search.space import Knob


def distribution(knob: Knob) -> BaseDistribution:
    """The distribution of a knob. The order of choices in the file makes no difference to it."""
    parameter, values = knob.parameter, knob.choices
    if parameter.float_range is not None:
        low, high = parameter.float_range
        # The last step that fits: Optuna prints a warning where it has to lower the end itself.
        high = high if values is None else values[-1]
        return FloatDistribution(float(low), float(high), log=parameter.log, step=parameter.step)
    assert values is not None
    if parameter.int_range is not None:
        return IntDistribution(values[0], values[-1], log=parameter.log, step=int(parameter.step or 1))
    return CategoricalDistribution([to_optuna(knob, choice) for choice in values])


def to_optuna(knob: Knob, value: Any) -> Any:
    """A value as Optuna stores it."""
    return json.dumps(value, sort_keys=True) if _as_json(knob) else value


def from_optuna(knob: Knob, value: Any) -> Any:
    """The value that `to_optuna` stored."""
    return json.loads(value) if _as_json(knob) else knob.snapped(value)


def _as_json(knob: Knob) -> bool:
    """Whether a knob's choices cannot be told apart or stored as they are (lists; 1 beside true)."""
    choices = knob.parameter.choices
    if choices is None:
        return False
    kinds = {type(c) for c in choices if c is not None}
    return bool(kinds & {list, dict}) or (bool in kinds and bool(kinds & {int, float}))
