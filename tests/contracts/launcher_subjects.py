"""The launchers that the contract suite is run against. One joins with one more entry in SUBJECTS."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launchers.base import Launcher, LaunchSpec
from launchers.errors import BadArgument, InvalidCombination, LaunchError, OutOfMemory, ServerCrashed
from launchers.simulated.launcher import SimulatedLauncher


@dataclass(frozen=True)
class Failing:
    """A start that fails: flags and environment, and what is to be raised."""

    flags: Mapping[str, Any]
    env: Mapping[str, str]
    error: type[LaunchError]
    exit_code: int | None
    #: A part of the tail.
    says: str


@dataclass(frozen=True)
class Subject:
    """A launcher under test, and how to make its servers misbehave."""

    name: str
    #: (log folder, startup_timeout_s, clock or None) to a launcher.
    make: Callable[..., Launcher]
    #: A statement that sets `launcher`, given `folder`: for an owner in another process.
    source: str
    model: str
    flags: Mapping[str, Any] = field(default_factory=dict)
    #: A start that never gets beyond loading its weights.
    hangs_loading: Mapping[str, str] = field(default_factory=dict)
    #: A server that is ready and ignores SIGTERM.
    ignores_term: Mapping[str, str] = field(default_factory=dict)
    failing: Mapping[str, Failing] = field(default_factory=dict)

    def spec(self, flags: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None) -> LaunchSpec:
        """A spec with a marker of its own, by which its processes are found."""
        marker = f"contract-{uuid.uuid4().hex}"
        return LaunchSpec(
            self.model, {**self.flags, **(flags or {})}, env or {}, study_marker=marker, run_marker="contract"
        )


def fault(**fields: Any) -> dict[str, str]:
    """The simulated server's fault as its environment."""
    return {"SIMULATED_FAULT": json.dumps(fields)}


def make_simulated(folder: Path, timeout_s: float = 120.0, **options: Any) -> Launcher:
    return SimulatedLauncher(folder, "tiny", 1000.0, startup_timeout_s=timeout_s, **options)


SIMULATED = Subject(
    name="simulated",
    make=make_simulated,
    source=(
        "from launchers.simulated.launcher import SimulatedLauncher\n"
        "launcher = SimulatedLauncher(folder, 'tiny', 1000.0)"
    ),
    model="example/tiny",
    hangs_loading=fault(kind="hang", phase="load_weight"),
    ignores_term=fault(kind="ignore_sigterm"),
    failing={
        "unknown flag": Failing({"no-such-flag": 3}, {}, BadArgument, 2, "unrecognized arguments: --no-such-flag"),
        "unknown value": Failing({"max-running-requests": "abc"}, {}, BadArgument, 2, "invalid int value"),
        "refused together": Failing(
            {"speculative-algorithm": "EAGLE", "speculative-num-steps": 3}, {}, InvalidCombination, 1, "TypeError"
        ),
        "draft tree too large": Failing(
            {
                "speculative-algorithm": "EAGLE3",
                "speculative-draft-model-path": "example/tiny-eagle3",
                "speculative-num-steps": 1,
                "speculative-eagle-topk": 2,
                "speculative-num-draft-tokens": 30,
            },
            {},
            InvalidCombination,
            -9,
            "selected index k out of range",
        ),
        "out of memory": Failing(
            {}, fault(kind="out_of_memory", phase="kv_pool"), OutOfMemory, -9, "leave no GPU memory"
        ),
        "unknown death": Failing(
            {}, fault(kind="refusal", text="Bus trouble", exit_code=9), ServerCrashed, 9, "Bus trouble"
        ),
    },
)
SUBJECTS = (SIMULATED,)
