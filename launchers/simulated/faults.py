"""Faults on demand: what goes wrong in a simulated start or run, when, and for which configurations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

#: Environment variable holding a fault as JSON; it replaces the profile's.
FAULT_VARIABLE = "SIMULATED_FAULT"

StartPhase = Literal["distributed_init", "load_weight", "kv_pool", "graph_capture", "warmup"]


class StreamShape(StrEnum):
    """How an answer with status 200 goes wrong; each was met at a server or a gateway in front of one."""

    #: A gateway's error object and a proper `[DONE]`.
    GATEWAY_TIMEOUT = "gateway_timeout"
    #: An error object with code 500 after good events, then `[DONE]`.
    ERROR_OBJECT = "error_object"
    #: The first event is an OpenAI error object with code 400.
    BAD_REQUEST = "bad_request"
    #: The body ends well, but without finish_reason and `[DONE]`.
    CLEAN_END = "clean_end"
    #: The connection is cut within the chunked body.
    CUT = "cut"
    #: No byte of body at all.
    EMPTY = "empty"
    #: The answer is whole, only `[DONE]` is missing.
    NO_DONE = "no_done"
    #: `"error"` holds a string instead of an object.
    ERROR_STRING = "error_string"


class _Fault(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    #: Flags (without dashes) and environment variables with the value each must have; all must match.
    when: dict[str, bool | int | float | str | None] = {}

    def applies(self, flags: Mapping[str, Any], env: Mapping[str, str]) -> bool:
        """Whether this configuration is hit. Values compare as text, None matches what is not set."""
        for name, wanted in self.when.items():
            found = flags.get(name, env.get(name))
            if (None if found is None else str(found)) != (None if wanted is None else str(wanted)):
                return False
        return True


class SlowLoad(_Fault):
    """The weights take `seconds` more (simulated seconds) and nothing is printed meanwhile."""

    kind: Literal["slow_load"] = "slow_load"
    seconds: float = Field(gt=0)


class Hang(_Fault):
    """Stops for good: in a phase of the start, or (`running`) once `after_requests` requests have begun.

    A hang while running ends as SGLang's watchdog ends it, after `--watchdog-timeout` real seconds.
    """

    kind: Literal["hang"] = "hang"
    phase: StartPhase | Literal["running"]
    after_requests: int = Field(1, ge=1)


class Refusal(_Fault):
    """The command line is refused with `text` on stderr and `exit_code`."""

    kind: Literal["refusal"] = "refusal"
    text: str
    exit_code: int = Field(1, ge=1, le=255)


class OutOfMemory(_Fault):
    """GPU memory runs out in a phase of the start, or while running, once `after_requests` have begun."""

    kind: Literal["out_of_memory"] = "out_of_memory"
    phase: Literal["load_weight", "kv_pool", "graph_capture", "running"]
    after_requests: int = Field(1, ge=1)


class Crash(_Fault):
    """The scheduler dies once `after_requests` requests have begun; the process ends with `exit_code`."""

    kind: Literal["crash"] = "crash"
    after_requests: int = Field(ge=1)
    exit_code: Literal[-9, 0] = -9


class StreamError(_Fault):
    """Every `every`-th streamed answer goes wrong after `after_tokens` tokens."""

    kind: Literal["stream_error"] = "stream_error"
    shape: StreamShape
    after_tokens: int = Field(5, ge=0)
    every: int = Field(1, ge=1)


class Garbled(_Fault):
    """Every answer is another text than the model's, at full speed: a broken kernel, or data torn on its way."""

    kind: Literal["garbled"] = "garbled"


class IgnoreSigterm(_Fault):
    """SIGTERM does nothing, in any phase."""

    kind: Literal["ignore_sigterm"] = "ignore_sigterm"


FaultConfig = Annotated[
    SlowLoad | Hang | Refusal | OutOfMemory | Crash | StreamError | Garbled | IgnoreSigterm,
    Field(discriminator="kind"),
]

_ADAPTER: TypeAdapter[FaultConfig] = TypeAdapter(FaultConfig)


def parse_fault(text: str) -> FaultConfig:
    """A fault from JSON text. Raises ValueError naming the variable, the key and the fault's kinds."""
    try:
        return _ADAPTER.validate_python(json.loads(text))
    except (ValidationError, json.JSONDecodeError) as error:
        raise ValueError(
            f'{FAULT_VARIABLE} is not a fault: {error}. Write JSON such as {{"kind": "crash", "after_requests": 3}}.'
        ) from error


def active_fault(
    profile_fault: FaultConfig | None, flags: Mapping[str, Any], env: Mapping[str, str]
) -> FaultConfig | None:
    """The fault that hits this configuration: the environment's, else the profile's, if `when` matches."""
    text = env.get(FAULT_VARIABLE)
    fault = parse_fault(text) if text else profile_fault
    return fault if fault is not None and fault.applies(flags, env) else None
