"""The launchers that the contract suite is run against. One joins with one more entry in SUBJECTS."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import real_sglang

from launchers.base import Launcher, LaunchSpec
from launchers.errors import BadArgument, InvalidCombination, LaunchError, ModelUnavailable, OutOfMemory, UnknownFailure
from launchers.sglang.launcher import SGLangLauncher
from launchers.simulated.launcher import SimulatedLauncher


@dataclass(frozen=True)
class Settings:
    """What a start has beyond its launcher's usual settings."""

    flags: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    #: None: the usual one.
    model: str | None = None


@dataclass(frozen=True)
class Failing:
    """A start that fails, and what is to be raised."""

    settings: Settings
    error: type[LaunchError]
    exit_code: int | None
    #: A part of the tail.
    says: str
    #: How often it is tried: what else ends on the machine meanwhile may give it what it was to lack.
    tries: int = 1


@dataclass(frozen=True)
class Subject:
    """A launcher under test, and how to make its servers misbehave."""

    name: str
    #: (log folder, startup_timeout_s, further options of the launcher) to a launcher.
    make: Callable[..., Launcher]
    #: A statement that sets `launcher`, given `folder`: for an owner in another process.
    source: str
    usual: Settings
    #: Given an empty folder, a start that never gets beyond loading its weights.
    hangs_loading: Callable[[Path], Settings]
    #: A server that is ready and ignores SIGTERM; None where it cannot be made to.
    ignores_term: Settings | None = None
    failing: Mapping[str, Failing] = field(default_factory=dict)

    def spec(self, settings: Settings | None = None) -> LaunchSpec:
        """A spec with a marker of its own, by which its processes are found."""
        more = settings or Settings()
        model = more.model or self.usual.model
        assert model is not None
        return LaunchSpec(
            model,
            {**self.usual.flags, **more.flags},
            {**self.usual.env, **more.env},
            study_marker=f"contract-{uuid.uuid4().hex}",
            run_marker="contract",
        )


def fault(**fields: Any) -> dict[str, str]:
    """The simulated server's fault as its environment."""
    return {"SIMULATED_FAULT": json.dumps(fields)}


def make_simulated(folder: Path, timeout_s: float = 120.0, **options: Any) -> Launcher:
    return SimulatedLauncher(folder, "tiny", 1000.0, startup_timeout_s=timeout_s, **options)


#: Refused by every SGLang in the same words.
REFUSED = {
    "unknown flag": Failing(Settings({"no-such-flag": 3}), BadArgument, 2, "unrecognized arguments: --no-such-flag"),
    "unknown value": Failing(Settings({"max-running-requests": "abc"}), BadArgument, 2, "invalid int value"),
}


def spec_failures(algorithm: str, drafter: str) -> dict[str, Failing]:
    """Speculative settings that cannot run."""
    draft = {"speculative-algorithm": algorithm, "speculative-draft-model-path": drafter}
    tree = {"speculative-num-steps": 1, "speculative-eagle-topk": 2, "speculative-num-draft-tokens": 30}
    return {
        "unknown algorithm": Failing(
            Settings({"speculative-algorithm": "FOO"}), BadArgument, 1, "Unknown speculative algorithm name: FOO"
        ),
        "refused together": Failing(
            Settings({**draft, "speculative-num-steps": 3}), InvalidCombination, 1, "TypeError"
        ),
        "draft tree too large": Failing(
            Settings({**draft, **tree}), InvalidCombination, -9, "selected index k out of range"
        ),
    }


SIMULATED = Subject(
    name="simulated",
    make=make_simulated,
    source=(
        "from launchers.simulated.launcher import SimulatedLauncher\n"
        "launcher = SimulatedLauncher(folder, 'tiny', 1000.0)"
    ),
    usual=Settings(model="example/tiny"),
    hangs_loading=lambda folder: Settings(env=fault(kind="hang", phase="load_weight")),
    ignores_term=Settings(env=fault(kind="ignore_sigterm")),
    failing={
        **REFUSED,
        **spec_failures("EAGLE", "example/tiny-eagle"),
        "out of memory": Failing(
            Settings(env=fault(kind="out_of_memory", phase="kv_pool")), OutOfMemory, -9, "leave no GPU memory"
        ),
        "unknown death": Failing(
            Settings(env=fault(kind="refusal", text="Bus trouble", exit_code=9)), UnknownFailure, 9, "Bus trouble"
        ),
    },
)


def make_sglang(folder: Path, timeout_s: float = 240.0, **options: Any) -> Launcher:
    return SGLangLauncher(folder, str(real_sglang.PYTHON), timeout_s, **options)


def weights_that_never_come(folder: Path) -> Settings:
    """A model whose weights are a pipe that nobody writes to: its reader waits in open()."""
    for file in real_sglang.MARKOV.iterdir():
        if file.suffix != ".safetensors":
            (folder / file.name).symlink_to(file)
    os.mkfifo(folder / "model.safetensors")
    return Settings(model=str(folder))


SGLANG = Subject(
    name="sglang",
    make=make_sglang,
    source=(
        "from launchers.sglang.launcher import SGLangLauncher\n"
        f"launcher = SGLangLauncher(folder, {str(real_sglang.PYTHON)!r})"
    ),
    usual=Settings(real_sglang.FLAGS, real_sglang.ENV, str(real_sglang.MARKOV)),
    hangs_loading=weights_that_never_come,
    failing={
        **REFUSED,
        **spec_failures("EAGLE", str(real_sglang.drafter(0.1))),
        "unknown choice": Failing(Settings({"schedule-policy": "nonsense"}), BadArgument, 2, "invalid choice"),
        "no such model": Failing(Settings(model="/no/such/model"), ModelUnavailable, 1, "Repo id must be in the form"),
        "out of memory": Failing(
            Settings({"max-total-tokens": None, "mem-fraction-static": 0.0001}),
            OutOfMemory,
            -9,
            "leave no GPU memory for the KV cache",
            tries=3,
        ),
    },
)
SUBJECTS = (SIMULATED, SGLANG)
