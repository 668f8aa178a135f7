"""A profile: the machine, model and drafters that the simulated server pretends to be, read from YAML.

All seconds are simulated seconds of the machine the profile describes.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from launchers.sglang.nccl import ALGORITHMS, P2P_LEVELS, PROTOCOLS
from launchers.simulated.faults import FaultConfig

PROFILES = Path(__file__).parent / "profiles"

Seconds = Annotated[float, Field(ge=0)]
Factor = Annotated[float, Field(gt=0)]
Chance = Annotated[float, Field(ge=0, le=1)]


class Part(BaseModel):
    """Base of every value of a profile: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Hardware(Part):
    """The node."""

    gpu: str
    gpus: int = Field(ge=1)
    gpu_memory_gb: float = Field(gt=0)


class Engine(Part):
    """What SGLang works out for itself on that machine."""

    context_length: int = Field(ge=2)
    vocab_size: int = Field(ge=2)
    #: max_total_num_tokens: places of the KV pool.
    kv_tokens: int = Field(ge=2)
    page_size: int = Field(1, ge=1)
    #: Requests run at once where nothing is asked; the twin bounds it by kv_tokens // 2 as SGLang does.
    default_max_running_requests: int = Field(ge=1)
    chunked_prefill_size: int = Field(ge=-1)
    max_prefill_tokens: int = Field(ge=1)
    #: Seed of the server where --random-seed is left out (SGLang draws one).
    random_seed: int = 0


class Startup(Part):
    """Length of each phase of a start."""

    distributed_init_s: Seconds
    load_weights_s: Seconds
    shards: int = Field(ge=1)
    kv_pool_s: Seconds
    graph_capture_s: Seconds
    warmup_s: Seconds
    #: With a drafter of its own: loading it, and capturing its graphs and the verify graphs.
    draft_load_s: Seconds
    draft_capture_s: Seconds


class Compute(Part):
    """Cost of one target forward pass, communication left out. T is its number of tokens."""

    #: Per step whatever the batch: launches, sampling, scheduling, dense weights read once.
    step_s: Seconds
    #: Reading every expert of every layer once; a step reads the share that T tokens touch.
    all_experts_s: Seconds
    #: 0 for a dense model.
    experts: int = Field(0, ge=0)
    experts_per_token: int = Field(0, ge=0)
    #: Per token of a decode or verify batch.
    token_s: Seconds
    #: Per token of a prefill batch.
    prefill_token_s: Seconds
    #: Per token of context that decode attention reads, once a step for each request.
    kv_read_s_per_token: Seconds

    @model_validator(mode="after")
    def _routed(self) -> Compute:
        if self.experts_per_token > self.experts:
            raise ValueError(f"{self.experts_per_token} experts per token of {self.experts}")
        return self

    def experts_share(self, tokens: int) -> float:
        """Expected share of distinct experts touched by `tokens` evenly routed tokens, in [0, 1]."""
        if not self.experts:
            return 0.0
        return 1.0 - (1.0 - self.experts_per_token / self.experts) ** tokens


class Link(Part):
    """One protocol: time of an empty all-reduce and the rate it approaches for large ones."""

    latency_s: Seconds
    bandwidth_gb_s: Factor


class PathFactors(Part):
    """How an algorithm or a P2P level changes a protocol's latency and bandwidth."""

    latency: Factor = 1.0
    bandwidth: Factor = 1.0


class Communication(Part):
    """All-reduces over the node's GPUs, all of them through NCCL.

    One takes latency + 2 (g - 1) / g * bytes / bandwidth on g GPUs (the ring's volume per GPU).
    """

    allreduces_per_step: int = Field(ge=0)
    #: Of one drafter pass.
    allreduces_per_draft: int = Field(0, ge=0)
    #: Bytes of one token's hidden state.
    token_bytes: int = Field(ge=0)
    #: Share of a prefill's all-reduces that compute does not hide.
    prefill_exposed: Chance
    #: Each by NCCL's own name, and under "auto" what NCCL does when nothing is set.
    protocols: dict[str, Link]
    algorithms: dict[str, PathFactors]
    p2p_levels: dict[str, PathFactors]
    #: Channels NCCL takes by itself, between NCCL_MIN_CTAS and NCCL_MAX_CTAS.
    channels: int = Field(ge=1)
    #: Bandwidth grows as n / (n + half) with n channels, scaled to 1 at `channels`.
    half_bandwidth_channels: float = Field(ge=0)
    #: Relative latency added by each channel above `channels` (taken off below).
    latency_per_channel: float = Field(ge=0)

    @model_validator(mode="after")
    def _has_auto(self) -> Communication:
        known = {
            "protocols": set(PROTOCOLS.values()),
            "algorithms": set(ALGORITHMS.values()),
            "p2p_levels": set(P2P_LEVELS),
        }
        for table, names in known.items():
            given = set(getattr(self, table))
            if "auto" not in given:
                raise ValueError(f"{table} has no 'auto': what NCCL does when nothing is set")
            for unknown in sorted(given - names - {"auto"}):
                raise ValueError(f"{table} knows no {unknown!r}; known are auto, {', '.join(sorted(names))}")
        return self


class Drafting(Part):
    """Cost of speculation beyond the verify pass itself, for batch B and tree (steps, topk, draft tokens)."""

    #: Per verify step whatever the batch: tree building, sampling, no overlap with the scheduler.
    step_s: Seconds
    #: One draft step at batch 0, and its growth for each of the B * topk branches it extends.
    draft_s: Seconds
    draft_branch_s: Seconds
    #: For each of the B * draft_tokens tokens: verifying and extending the drafter's cache, beyond `token_s`.
    verify_token_s: Seconds
    #: The drafter's share of a prefill.
    prefill_token_s: Seconds


class Drafter(Part):
    """A draft model, told by its path; acceptance given as conditional chances by position."""

    #: Chance that position i is accepted, those before it being so; the last one holds for all further.
    accept: tuple[Chance, ...] = Field(min_length=1)
    #: Share of the misses that each doubling of a tree's width catches.
    sibling_catch: Chance = 0.0
    description: str = ""

    def chance(self, position: int) -> float:
        """Conditional acceptance of a position, counted from 0."""
        return self.accept[min(position, len(self.accept) - 1)]


class Target(Part):
    """A figure this profile is held to, and how it is measured.

    Throughput is output tokens per second over the window of full concurrency, prefills inside it.
    """

    name: str
    concurrency: int = Field(ge=1)
    flags: dict[str, Any] = {}
    env: dict[str, str] = {}
    prompt_tokens: int = Field(ge=1)
    output_tokens: int = Field(ge=1)
    requests_per_user: int = Field(ge=1)
    warmup_requests_per_user: int = Field(1, ge=0)
    output_tokens_per_s: float = Field(gt=0)
    accept_length: float | None = None


class Unrest(Part):
    """Relative standard deviations of what the performance model gives: of a start's pace, and of each step."""

    start_sd: float = Field(0.0, ge=0, le=0.5)
    step_sd: float = Field(0.0, ge=0, le=0.5)


class Profile(Part):
    """Everything the simulated server needs to know about what it simulates."""

    name: str
    description: str
    model: str
    hardware: Hardware
    engine: Engine
    startup: Startup
    compute: Compute
    communication: Communication
    drafting: Drafting
    #: By draft model path, exact or as the path's last part.
    drafters: dict[str, Drafter] = {}
    #: For a draft path the profile does not know, and for drafting from the target's own path.
    unknown_drafter: Drafter
    targets: tuple[Target, ...] = ()
    unrest: Unrest = Unrest()
    fault: FaultConfig | None = None

    def drafter(self, path: str | None) -> Drafter:
        """The drafter at a draft model path: by exact path, else by its last part, else the unknown one."""
        if path is None:
            return self.unknown_drafter
        if path in self.drafters:
            return self.drafters[path]
        last = path.rstrip("/").rsplit("/", 1)[-1]
        for known, drafter in self.drafters.items():
            if known.rsplit("/", 1)[-1] == last:
                return drafter
        return self.unknown_drafter


def profile_names() -> tuple[str, ...]:
    """The profiles that come with the package, sorted."""
    return tuple(sorted(path.stem for path in PROFILES.glob("*.yaml")))


def load_profile(name_or_path: str) -> Profile:
    """The packaged profile of that name, or the one in that YAML file.

    Raises ValueError for an unknown name (with the nearest one and all of them) or an invalid file.
    """
    path = PROFILES / f"{name_or_path}.yaml"
    if name_or_path not in profile_names():
        path = Path(name_or_path)
        if path.suffix not in (".yaml", ".yml") or not path.is_file():
            raise ValueError(_unknown(name_or_path))
    return _read(path)


def _unknown(name: str) -> str:
    names = profile_names()
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return (
        f"There is no simulated profile {name!r}.{hint} "
        f"Known are {', '.join(names)}; or give the path of a profile's .yaml file."
    )


@lru_cache(maxsize=8)
def _read(path: Path) -> Profile:
    try:
        with path.open(encoding="utf-8") as file:
            loaded = yaml.safe_load(file)
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"The profile {path} cannot be read: {error}") from error
    if not isinstance(loaded, Mapping):
        raise ValueError(f"The profile {path} is no mapping; see the packaged profiles for the shape.")
    try:
        return Profile.model_validate(loaded)
    except ValidationError as error:
        raise ValueError(f"The profile {path} is not valid: {error}") from error
