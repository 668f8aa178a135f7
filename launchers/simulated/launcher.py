"""The launcher of the simulated server."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import launchers
from launchers.base import LaunchSpec, to_argv
from launchers.command import listening_words, refuse_flags
from launchers.local import LocalLauncher
from launchers.sglang.dialect import SGLANG
from launchers.sglang.progress import simulated_seconds
from launchers.simulated.profile import load_profile


class SimulatedLauncher(LocalLauncher):
    """Starts the digital twin of SGLang; a start takes its real length divided by `startup_speedup`."""

    simulated = True

    def __init__(
        self,
        log_folder: Path,
        profile: str,
        startup_speedup: float = 100.0,
        startup_timeout_s: float = 120.0,
        stop_grace_s: float = 10.0,
        **options: Any,
    ) -> None:
        """Further options are those of LocalLauncher."""
        super().__init__(log_folder, SGLANG, startup_timeout_s=startup_timeout_s, stop_grace_s=stop_grace_s, **options)
        self.profile = profile
        self.startup_speedup = startup_speedup

    def command(self, spec: LaunchSpec, port: int) -> tuple[list[str], dict[str, str]]:
        """The twin's own options, then the flags. Raises BadArgument for a secret or a flag of the launcher's own."""
        refuse_flags(spec)
        argv = [sys.executable, "-m", "launchers.simulated", "--profile", self.profile]
        argv += ["--startup-speedup", f"{self.startup_speedup:g}", "--model-path", spec.model]
        return [*argv, *to_argv(spec.flags), *listening_words(port)], dict(spec.env)

    def interpreter(self) -> str:
        """This one."""
        return sys.executable

    def own_environment(self) -> dict[str, str]:
        """Where the twin is imported from, whatever the working folder is."""
        return {"PYTHONPATH": str(Path(launchers.__file__).parents[1])}

    def startup_s(self, info: Mapping[str, Any], wall_s: Mapping[str, float]) -> dict[str, float]:
        """Simulated seconds, as the twin tells them: the wall clock's are shortened."""
        return simulated_seconds(info.get("startup_time"))

    def gpu_names(self) -> tuple[str, ...]:
        """The GPUs that the profile pretends to have."""
        hardware = load_profile(self.profile).hardware
        return (hardware.gpu,) * hardware.gpus

    def versions(self) -> Mapping[str, str]:
        """The version of SGLang that the twin mimics."""
        return {"sglang": "simulated 0.5.23"}
