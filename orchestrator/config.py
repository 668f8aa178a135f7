"""The search space file as frozen values: what a sweep is asked to do.

`orchestrator.yaml_source` reads the file; nothing here knows files, clocks or processes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from orchestrator.analysis.objectives import (
    OF_SLO,
    OF_USERS,
    Constraint,
    Metric,
    Objective,
    parse_constraint,
    parse_objective,
)
from orchestrator.fields import (
    Condition,
    ConstraintText,
    EnvName,
    EnvValue,
    FlagName,
    FlagValue,
    Frozen,
    ObjectiveText,
    PhaseName,
    Range,
    as_tuple,
    env_value,
    located,
    value_key,
)
from orchestrator.offered_load import Load
from orchestrator.workload import Workload

_STUDY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class RealStart(Frozen):
    """How a real SGLang is started and how long it may take."""

    #: The interpreter that has sglang; the orchestrator's own where it has one, else `.venv-sglang`.
    python: str | None = None
    #: `sglang serve` is the newer name of the same entry point.
    command: Literal["sglang.launch_server", "sglang serve"] = "sglang.launch_server"
    #: The deadline of a start: 547 GB from a slow disk take half an hour.
    startup_timeout_s: float = Field(2700.0, gt=0)
    #: How long a start may show no movement at all; by phase where one differs (`{loading weights: 1200}`).
    stall_s: float = Field(600.0, gt=0)
    #: The same for single phases of a start.
    stall_s_by_phase: dict[PhaseName, Annotated[float, Field(gt=0)]] = {}
    #: How long a ready server may answer nothing and show no movement while requests are open.
    hang_s: float = Field(90.0, gt=0)
    #: Between TERM and KILL: a server drains its requests.
    stop_grace_s: float = Field(90.0, ge=0)


class AutoLauncher(RealStart):
    """SGLang where GPUs and an sglang are found on the node, else the simulated server."""

    kind: Literal["auto"] = "auto"
    #: Performance model of the simulated server: a name, or a path to a YAML.
    profile: str = "tiny"
    #: How many times shorter than a real one a simulated start is.
    startup_speedup: float = Field(100.0, gt=0)


class SimulatedLauncher(Frozen):
    """The digital twin of SGLang; `profile` names its performance model (a name, or a path to a YAML)."""

    kind: Literal["simulated"] = "simulated"
    #: A name that ships with the project, or a path to a YAML.
    profile: str = "tiny"
    #: How many times shorter than a real one a start is.
    startup_speedup: float = Field(100.0, gt=0)
    #: The deadline of a start, on the wall clock.
    startup_timeout_s: float = Field(120.0, gt=0)


class SGLangLauncher(RealStart):
    """A real SGLang."""

    kind: Literal["sglang"] = "sglang"


Launcher = Annotated[AutoLauncher | SimulatedLauncher | SGLangLauncher, Field(discriminator="kind")]


class Node(Frozen):
    """What one server needs of a node."""

    #: 0: it runs on the CPUs, and a trial holds all of a node's.
    gpus: int = Field(8, ge=0)


class Server(Frozen):
    """Settings that every server of the study gets, the baseline included."""

    #: Flags of SGLang without dashes, with their values; true is the bare flag.
    flags: dict[FlagName, FlagValue] = {}
    #: Variables of the server.
    env: dict[EnvName, EnvValue] = {}


class Parameter(Frozen):
    """One knob: `choices`, an `int` range or a `float` range (both ends included).

    `when` names other parameters and the value, or list of values, each must have for this one to act.
    """

    #: The values it may have; null leaves the flag or variable out.
    choices: list[FlagValue | None] | None = Field(None, min_length=1)
    #: Lowest and highest whole number.
    int_range: Annotated[tuple[int, int], Range] | None = Field(None, alias="int")
    #: Lowest and highest number.
    float_range: Annotated[tuple[int | float, int | float], Range] | None = Field(None, alias="float")
    #: Drawn evenly by order of magnitude.
    log: bool = False
    #: Distance of the values of a range.
    step: int | float | None = None
    #: Other parameters by name, each with the value, or the list of values, that makes this one act.
    when: dict[str, Condition] = {}

    @model_validator(mode="after")
    def _one_kind(self) -> Parameter:
        kinds = [k for k in ("choices", "int_range", "float_range") if getattr(self, k) is not None]
        if len(kinds) != 1:
            raise ValueError("a parameter has exactly one of choices, int, float")
        if self.choices is not None:
            if self.log or self.step is not None:
                raise ValueError("log and step belong to int and float ranges")
            keys = [value_key(choice) for choice in self.choices]
            for index, key in enumerate(keys):
                if key in keys[:index]:
                    raise ValueError(f"the choice {self.choices[index]!r} is listed twice")
            return self
        low, high = self.int_range or self.float_range or (0, 0)
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError("both ends of a range are finite")
        if low > high:
            raise ValueError(f"the range is empty: {low} is above {high}")
        if self.step is not None and self.log:
            raise ValueError("log and step exclude each other")
        if self.step is not None and self.step <= 0:
            raise ValueError("step is above 0")
        if self.int_range and isinstance(self.step, float):
            raise ValueError("an int range has an int step")
        if self.log and low <= 0:
            raise ValueError("a log range starts above 0")
        return self


class EnvParameter(Parameter):
    """A knob in the environment: its choices are strings and numbers, null leaves the variable out."""

    @field_validator("choices", mode="before")
    @classmethod
    def _text(cls, choices: Any) -> Any:
        for choice in choices if isinstance(choices, list) else []:
            if choice is not None:
                env_value(choice)
        return choices


class Space(Frozen):
    """The parameters that are searched: flags of the server and variables of its environment."""

    #: By the name of the flag, without dashes.
    flags: dict[FlagName, Parameter] = {}
    #: By the name of the variable.
    env: dict[EnvName, EnvParameter] = {}


class Score(Frozen):
    """The one number the search improves: a metric at a load of the ladder, by its users or its requests per second."""

    #: A metric without its load; a latency with a statistic: `ttft_ms.p99`.
    metric: str = "output_tokens_per_s"
    #: The level, by its users.
    concurrency: int | None = Field(None, ge=1)
    #: The level, by its requests per second.
    request_rate: float | None = Field(None, gt=0)

    @property
    def objective(self) -> Objective:
        """The score as an objective; its direction is the metric's own (more tokens, less latency)."""
        return Objective(Metric.parse(f"{self.metric}@{self._load.text}"))

    @property
    def _load(self) -> Load:
        return Load(self.concurrency, None if self.request_rate is None else float(self.request_rate))

    @model_validator(mode="after")
    def _known(self) -> Score:
        if (self.concurrency is None) == (self.request_rate is None):
            raise ValueError("a score has a concurrency or a request_rate: one of them")
        Metric.parse(f"{self.metric}@{self._load.text}")
        return self


class Budget(Frozen):
    """When the search ends: `trials` in total over all resumes, baseline included; `time` for one run."""

    #: Over all runs of the study together, baseline and repeats included.
    trials: int = Field(24, ge=1)
    #: Of one run: `90s`, `30m`, `2h`, `1h30m`; no trial is begun that would end later.
    time: str | None = None

    @field_validator("time")
    @classmethod
    def _time(cls, time: str | None) -> str | None:
        if time is not None:
            parse_duration_s(time)
        return time

    @property
    def time_s(self) -> float | None:
        """Seconds, or None for no limit."""
        return None if self.time is None else parse_duration_s(self.time)


class Repeats(Frozen):
    """Starts beyond the search: they show what starts of the same setting differ by, and confirm the winner.

    Together they take at most `share` of the budget's node-hours; where that does not pay for all, fewer are made.
    """

    #: Of the budget's node-hours, at most.
    share: float = Field(0.2, ge=0, le=0.5)
    #: The baseline again, at once (A/A).
    aa: int = Field(1, ge=0)
    #: The baseline again after every so many candidates; 0: never.
    sentinel_every: int = Field(8, ge=0)
    #: How many of the best are started afresh beside the baseline, and in how many rounds at least.
    finalists: int = Field(2, ge=0)
    #: In so many rounds at least.
    starts: int = Field(3, ge=0)
    #: More rounds are made, as far as `share` goes, until a gain of `gap` would be found with this probability.
    gap: float = Field(0.03, gt=0)
    #: With this probability.
    power: float = Field(0.9, gt=0, lt=1)


class TPESampler(Frozen):
    """Optuna's multivariate TPE."""

    kind: Literal["tpe"] = "tpe"
    #: Of the draws.
    seed: int = Field(0, ge=0)
    #: So many random draws come first.
    startup_trials: int = Field(10, ge=1)


class RandomSampler(Frozen):
    """Independent uniform draws."""

    kind: Literal["random"] = "random"
    #: Of the draws.
    seed: int = Field(0, ge=0)


Sampler = Annotated[TPESampler | RandomSampler, Field(discriminator="kind")]


class SweepConfig(Frozen):
    """A whole study."""

    #: The name of its folder.
    study: str
    #: As SGLang takes it: a Hugging Face name or a folder.
    model: str = Field(min_length=1)
    #: What starts the servers.
    launcher: Launcher = AutoLauncher()
    #: What one server needs.
    node: Node = Node()
    #: Settings of every server, the baseline included.
    server: Server = Server()
    #: What is searched.
    space: Space
    #: What is asked of every server.
    workload: Workload = Workload()
    #: The one number that the search improves.
    score: Score
    #: Objectives of the front: `maximize output_tokens_per_s@128`; none: the score alone.
    pareto: Annotated[tuple[ObjectiveText, ...], BeforeValidator(as_tuple)] = ()
    #: Bounds that a winner keeps: `ttft_ms.p99@32 <= 4000`.
    constraints: Annotated[tuple[ConstraintText, ...], BeforeValidator(as_tuple)] = ()
    #: When the search ends.
    budget: Budget = Budget()
    #: What is spent on proof.
    repeats: Repeats = Repeats()
    #: How configurations are drawn.
    sampler: Sampler = TPESampler()
    #: Replaces the keys it names when the launcher resolves to simulated.
    simulated: dict[str, Any] = {}

    @field_validator("study")
    @classmethod
    def _study(cls, study: str) -> str:
        if not _STUDY.fullmatch(study):
            raise ValueError("a study's name is a folder's: letters, digits, dots, dashes and underscores")
        return study

    @model_validator(mode="after")
    def _consistent(self) -> SweepConfig:
        ladder = self.workload.ladder
        at = "concurrency" if self.score.request_rate is None else "request_rate"
        wanted: list[tuple[tuple[str | int, ...], Metric]] = [
            (("score", at), self.score.objective.metric),
            *((("pareto", i), parse_objective(text).metric) for i, text in enumerate(self.pareto)),
            *((("constraints", i), limit.metric) for i, limit in enumerate(self.limits)),
        ]
        for path, metric in wanted:
            if metric.load not in ladder:
                raise located(path, f"{metric} is not measured: the ladder is [{', '.join(c.text for c in ladder)}]")
            if metric.name in OF_SLO and self.workload.slo is None:
                raise located(path, f"{metric} needs bounds to be met: give workload.slo, like {{ttft_ms: 500}}")
            if metric.name in OF_USERS and not metric.load.closed:
                raise located(path, f"{metric}: an open loop has no users")
        for section in ("flags", "env"):
            fixed, searched = getattr(self.server, section), getattr(self.space, section)
            for name in searched:
                if name in fixed:
                    raise located(
                        ("space", section, name),
                        f"it stands in server.{section} and in space.{section}: keep one",
                    )
        for name in self.space.env:
            if name in self.space.flags:
                raise located(("space", "env", name), "it stands in space.flags too: keep one")
        return self

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The objectives of the Pareto front; the score alone where `pareto` is empty."""
        return tuple(map(parse_objective, self.pareto)) or (self.score.objective,)

    @property
    def confirmation_ladder(self) -> tuple[Load, ...]:
        """What a start of the confirmation measures: the loads of the score and of the constraints."""
        wanted = {self.score.objective.metric.load, *(limit.metric.load for limit in self.limits)}
        return tuple(load for load in self.workload.ladder if load in wanted)

    @property
    def limits(self) -> tuple[Constraint, ...]:
        """The constraints, parsed."""
        return tuple(map(parse_constraint, self.constraints))


def parse_duration_s(text: str) -> float:
    """Seconds of `90s`, `30m`, `2h`, `1h30m`, `1d`.

    Raises ValueError on anything else, a bare number included (its unit is not known).
    """
    match = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text.strip())
    if not match or not any(match.groups()):
        raise ValueError(f"{text!r} is no duration; write 90s, 30m, 2h or 1h30m")
    days, hours, minutes, seconds = (int(g or 0) for g in match.groups())
    total = float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    if not total:
        raise ValueError(f"{text!r} is no time at all; write 90s, 30m, 2h or 1h30m")
    return total


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the keys of `over` replaced, mappings merged key by key to any depth."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
