"""The kinds of value that the search space file is made of, each with its own plain error. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError

from launchers.base import Phase
from launchers.command import OWN_FLAGS
from launchers.secrets import is_secret_flag, is_secret_variable
from orchestrator.analysis.objectives import parse_constraint, parse_objective

_FLAG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Frozen(BaseModel):
    """Base of every value read from a file: immutable, unknown keys refused, no value turned into another type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def located(path: tuple[str | int, ...], message: str) -> PydanticCustomError:
    """An error of a whole model that belongs to one key; the file's reader finds the key's line by `path`."""
    return PydanticCustomError("located", "{message}", {"message": message, "path": path})


def phase_name(name: str) -> str:
    """A phase of a start. Raises ValueError with the names there are."""
    phases = [str(phase) for phase in Phase if phase is not Phase.READY]
    if name not in phases:
        raise ValueError(f"{name!r} is no phase of a start: {', '.join(phases)}")
    return name


def _flag_name(name: str) -> str:
    if not _FLAG.fullmatch(name):
        raise ValueError(f"{name!r}: a flag is written without leading dashes, with dashes: tp-size")
    if is_secret_flag(name):
        raise ValueError(f"{name!r} would show a secret to everyone on the machine, and is not needed: leave it out")
    if name in OWN_FLAGS:
        raise ValueError(f"{name!r} is set by the sweep itself ({OWN_FLAGS[name]}): leave it out")
    return name


def _env_name(name: str) -> str:
    if not _ENV.fullmatch(name):
        raise ValueError(f"{name!r}: an environment variable has letters, digits and underscores: NCCL_PROTO")
    if is_secret_variable(name):
        raise ValueError(
            f"{name!r} would put a secret into the study's files: set it in the shell that starts the sweep, or Ray on "
            "a node; servers inherit it"
        )
    return name


def _flag_value(value: Any) -> Any:
    words = value if isinstance(value, list) else [value]
    if value is None:
        raise ValueError("null stands in `choices` only; to leave a flag out, leave its line out")
    if isinstance(value, list) and any(word is None or isinstance(word, list | dict) for word in words):
        raise ValueError("a list is the words of one flag: strings and numbers, nothing nested")
    return value


def env_value(value: Any) -> Any:
    """The value, if it can stand in an environment. Raises ValueError."""
    if value is None or isinstance(value, bool | list | dict):
        text = "true" if value is True else "false" if value is False else "..."
        raise ValueError(f"an environment value is a string or a number, not {value!r}; quote it: '{text}'")
    return value


def _condition(value: Any) -> Any:
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, list | dict):
            raise ValueError("a condition is a value, or a list of values, of the parameter it names")
    if value == []:
        raise ValueError("the condition names no value, so it never holds")
    return value


def _range(value: Any) -> Any:
    ends = tuple(value) if isinstance(value, list | tuple) else ()
    if len(ends) != 2 or any(isinstance(e, bool) or not isinstance(e, int | float) for e in ends):
        raise ValueError("a range is its two ends: [1, 10]")
    return ends


def as_tuple(value: Any) -> Any:
    """Lists become tuples: a file has no tuples, and the models are strict."""
    return tuple(value) if isinstance(value, list) else value


def _parsed_by(parse: Callable[[str], object]) -> Callable[[str], str]:
    def check(text: str) -> str:
        parse(text)
        return text

    return check


Scalar = bool | int | float | str
FlagName = Annotated[str, AfterValidator(_flag_name)]
EnvName = Annotated[str, AfterValidator(_env_name)]
PhaseName = Annotated[str, AfterValidator(phase_name)]
#: A flag's value: a scalar, a list (several words) or a mapping (passed as JSON).
FlagValue = Annotated[Scalar | list[Scalar] | dict[str, Any], BeforeValidator(_flag_value)]
EnvValue = Annotated[int | float | str, BeforeValidator(env_value)]
Condition = Annotated[Scalar | list[Scalar | None] | None, BeforeValidator(_condition)]


Range = BeforeValidator(_range)
ObjectiveText = Annotated[str, AfterValidator(_parsed_by(parse_objective))]
ConstraintText = Annotated[str, AfterValidator(_parsed_by(parse_constraint))]


def value_key(value: Any) -> str:
    """Equal for values that are one setting: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, list):
        return f"[{','.join(map(value_key, value))}]"
    return json.dumps(value, sort_keys=True)
