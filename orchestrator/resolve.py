"""Which launcher a sweep gets, and the config as it then runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from launchers.gpus import gpu_names
from launchers.sglang.launcher import sglang_found
from launchers.simulated.profile import load_profile
from orchestrator.config import RealStart, SGLangLauncher, SimulatedLauncher, SweepConfig, merge
from orchestrator.yaml_source import ConfigError


@dataclasses.dataclass(frozen=True)
class Resolved:
    """A sweep whose launcher is decided."""

    #: As it runs: launcher resolved, `simulated:` merged in where it applies, options over it.
    config: SweepConfig
    #: As it would run on real GPUs.
    written: SweepConfig
    launcher: SimulatedLauncher | SGLangLauncher
    #: What a person must know of it, one line each.
    notes: tuple[str, ...]

    @property
    def simulated(self) -> bool:
        """Whether no GPU is measured."""
        return isinstance(self.launcher, SimulatedLauncher)


def count_gpus() -> int:
    """GPUs of this machine."""
    return len(gpu_names())


def resolve(
    written: SweepConfig,
    simulated: SweepConfig,
    kind: str | None,
    changes: Mapping[str, Any],
    gpus: Callable[[], int] = count_gpus,
    has_sglang: Callable[[str | None], bool] = sglang_found,
) -> Resolved:
    """Decide the launcher. `kind` is the command line's, None for the file's; `changes` go over the file.

    `gpus()` counts those of this machine, `has_sglang(python)` looks for an sglang of that interpreter.
    Raises ConfigError.
    """
    real = written.launcher
    asked = kind or real.kind
    python = None if isinstance(real, SimulatedLauncher) else real.python
    why = "asked for"
    if asked == "auto":
        found = gpus()
        asked = "sglang" if found and has_sglang(python) else "simulated"
        why = "no sglang found" if found else "no GPU found"
    notes: tuple[str, ...] = ()
    if asked == "sglang":
        launcher: SimulatedLauncher | SGLangLauncher = SGLangLauncher()
        if not isinstance(real, SimulatedLauncher):
            launcher = SGLangLauncher(**{name: getattr(real, name) for name in RealStart.model_fields})
        config = written
    else:
        mine = simulated.launcher
        if isinstance(mine, SGLangLauncher):
            launcher = SimulatedLauncher()
        elif isinstance(mine, SimulatedLauncher):
            launcher = mine
        else:
            launcher = SimulatedLauncher(profile=mine.profile, startup_speedup=mine.startup_speedup)
        try:
            load_profile(launcher.profile)
        except ValueError as error:
            raise ConfigError(f"launcher.profile: {error}") from None
        config = simulated
        notes = (
            f"SIMULATED ({why}): a digital twin of SGLang answers, profile {launcher.profile}. No GPU is measured.",
        )
        if written.simulated:
            notes += (f"The file's `simulated:` block replaces: {', '.join(_keys(written.simulated))}",)
    data = merge(config.model_dump(by_alias=True), changes) | {
        "launcher": launcher.model_dump(),
        "simulated": {},
    }
    return Resolved(SweepConfig.model_validate(data), written, launcher, notes)


def _keys(block: Mapping[str, Any], path: str = "") -> list[str]:
    found = []
    for key, value in block.items():
        found += _keys(value, f"{path}{key}.") if isinstance(value, Mapping) else [f"{path}{key} = {value}"]
    return found
