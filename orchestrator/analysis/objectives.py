"""Metrics, objectives and constraints as text.

`output_tokens_per_s@128`, `ttft_ms.p99@2.5rps`, `maximize output_tokens_per_s@128`, `ttft_ms.p99@32 <= 4000`.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass
from typing import Literal, TypeGuard, cast

from orchestrator.offered_load import Load

Direction = Literal["maximize", "minimize"]
Op = Literal["<=", ">="]

#: Metrics that are one number a level; more is better.
RATES = (
    "output_tokens_per_s",
    "output_tokens_per_s_whole",
    "output_tokens_per_s_per_user",
    "output_tokens_per_s_per_gpu",
    "total_tokens_per_s",
    "total_tokens_per_s_whole",
    "requests_per_s",
    "completed_requests_per_s",
    "goodput_requests_per_s",
    "slo_attainment",
    "accept_length",
    "accept_rate",
)
#: Metrics that are one number a level; less is better, and 0 is a value.
COSTS = ("queue_time_ms",)
#: Metrics that are a distribution a level, in milliseconds; less is better.
LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "itl_per_token_ms", "e2e_ms", "normalized_latency_ms")
#: Goodput is that of the workload's `slo`.
OF_SLO = ("goodput_requests_per_s", "slo_attainment")
#: An open loop has no users.
OF_USERS = ("output_tokens_per_s_per_user",)
STATS = ("mean", "p50", "p90", "p99")

_METRIC = re.compile(r"(?P<name>[^.@\s]+)(?:\.(?P<stat>[^.@\s]+))?(?:@(?P<load>[0-9]+|[0-9]+(?:\.[0-9]+)?rps))?")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric at a load; `stat` is None for a rate and one of STATS for a latency."""

    name: str
    stat: str | None
    load: Load

    def __post_init__(self) -> None:
        if self.name in LATENCIES:
            if self.stat is None:
                choices = ", ".join(f"{self.name}.{stat}" for stat in STATS)
                raise ValueError(f"{self.name} is a distribution, not one number: write one of {choices}")
            if self.stat not in STATS:
                raise ValueError(
                    f"{self.name} has no statistic {self.stat!r}; it has {', '.join(STATS)}{_nearest(self.stat, STATS)}"
                )
        elif self.name in (*RATES, *COSTS):
            if self.stat is not None:
                raise ValueError(f"{self.name} is one number and has no statistic: drop .{self.stat}")
        else:
            known = (*RATES, *COSTS, *LATENCIES)
            raise ValueError(f"unknown metric {self.name!r}{_nearest(self.name, known)}; known are {', '.join(known)}")
        if self.load.repeat:
            raise ValueError(f"{self}: a metric is that of a load's first measurement")

    @classmethod
    def parse(cls, text: str) -> Metric:
        """The metric written as `name@128` or `name.stat@128` users, or `@2.5rps` (requests per second).

        Raises ValueError naming the part that is wrong and what could stand there.
        """
        match = _METRIC.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is no metric; write output_tokens_per_s@128 or ttft_ms.p99@32")
        name, stat, load = match["name"], match["stat"], match["load"]
        if load is None:
            # The name's own error comes first: it is the likelier slip.
            cls(name, stat, Load(1))
            raise ValueError(f"{text.strip()!r} says no load; write {text.strip()}@128")
        try:
            return cls(name, stat, Load.parse(load))
        except ValueError as error:
            raise ValueError(f"{text.strip()}: {error}") from None

    @property
    def column(self) -> str:
        """The metric's column in the result files: `ttft_ms_p99`."""
        return self.name if self.stat is None else f"{self.name}_{self.stat}"

    @property
    def natural_direction(self) -> Direction:
        """The direction in which this metric is better."""
        return "maximize" if self.name in RATES else "minimize"

    def valid(self, value: float | None) -> TypeGuard[float]:
        """Whether a measured value of this metric may be scored: see `valid`; a cost may be 0."""
        return valid(value) or (value == 0 and self.name in COSTS)

    def __str__(self) -> str:
        return f"{self.name}{'' if self.stat is None else f'.{self.stat}'}@{self.load.text}"


@dataclass(frozen=True, slots=True, init=False)
class Objective:
    """A metric and the direction in which it is to go; by default the metric's own."""

    metric: Metric
    direction: Direction

    def __init__(self, metric: Metric, direction: Direction | None = None) -> None:
        if direction not in (None, "maximize", "minimize"):
            raise ValueError(f"unknown direction {direction!r}; it is maximize or minimize")
        object.__setattr__(self, "metric", metric)
        object.__setattr__(self, "direction", direction or metric.natural_direction)

    def better(self, value: float, than: float) -> bool:
        """Whether `value` is strictly better."""
        return value > than if self.direction == "maximize" else value < than

    def __str__(self) -> str:
        return f"{self.direction} {self.metric}"


@dataclass(frozen=True, slots=True)
class Constraint:
    """A bound on a metric, inclusive."""

    metric: Metric
    op: Op
    bound: float

    def violation(self, value: float | None) -> float:
        """How far `value` is over the bound, in the metric's unit; at or below 0 is feasible (Optuna's sign).

        Infinity for a value that is absent or none (NaN, infinite, 0 or less): not measured is not met.
        """
        if not self.metric.valid(value):
            return math.inf
        return value - self.bound if self.op == "<=" else self.bound - value

    def __str__(self) -> str:
        bound = int(self.bound) if self.bound.is_integer() else self.bound
        return f"{self.metric} {self.op} {bound}"


def parse_objective(text: str) -> Objective:
    """The objective written as `maximize METRIC`, `minimize METRIC` or `METRIC` alone.

    Raises ValueError saying which word is wrong.
    """
    words = text.split()
    if len(words) == 1:
        return Objective(Metric.parse(words[0]))
    if len(words) != 2:
        raise ValueError(f"{text!r} is no objective; write maximize output_tokens_per_s@128")
    direction, metric = words
    if direction not in ("maximize", "minimize"):
        hint = _nearest(direction, ("maximize", "minimize"))
        raise ValueError(f"unknown direction {direction!r}{hint}; it is maximize or minimize")
    return Objective(Metric.parse(metric), cast(Direction, direction))


def parse_constraint(text: str) -> Constraint:
    """The constraint written as `METRIC <= NUMBER` or `METRIC >= NUMBER`.

    Raises ValueError saying which part is wrong.
    """
    match = re.fullmatch(r"\s*([^<>=!\s]+)\s*([<>=!]+)\s*(\S+)\s*", text)
    if match is None:
        raise ValueError(f"{text!r} is no constraint; write ttft_ms.p99@32 <= 4000")
    metric, op, bound = match.groups()
    if op not in ("<=", ">="):
        raise ValueError(f"{text!r}: {op!r} is not known; a constraint is written with <= or >=")
    if _NUMBER.fullmatch(bound) is None or not math.isfinite(float(bound)):
        raise ValueError(f"{text!r}: the bound {bound!r} is no number; write it without a unit, like 4000")
    return Constraint(Metric.parse(metric), cast(Op, op), float(bound))


def valid(value: float | None) -> TypeGuard[float]:
    """Whether a measured value may be scored: finite and above 0.

    A rate or a latency of 0 was not measured, and an infinite one would win every comparison.
    """
    return value is not None and math.isfinite(value) and value > 0


def _nearest(word: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""
