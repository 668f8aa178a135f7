"""The launcher of real SGLang servers."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from launchers.base import LaunchSpec, to_argv
from launchers.gpus import gpu_names
from launchers.local import LocalLauncher
from launchers.secrets import refuse_secret_flags
from launchers.sglang.dialect import SGLANG

_ASK_VERSION = "import importlib.metadata as m; print(m.version('sglang'))"


class SGLangLauncher(LocalLauncher):
    """Starts SGLang under the interpreter `python`; sglang is executed there, never imported here."""

    simulated = False

    def __init__(
        self,
        log_folder: Path,
        python: str | None = None,
        startup_timeout_s: float = 2700.0,
        # SGLang drains for as long as requests run: 90 s seen on a loaded node.
        stop_grace_s: float = 90.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            log_folder, SGLANG, startup_timeout_s=startup_timeout_s, stop_grace_s=stop_grace_s, clock=clock
        )
        self.python = python or sys.executable

    def command(self, spec: LaunchSpec, port: int) -> tuple[list[str], dict[str, str]]:
        """`python -m sglang.launch_server` with the flags as given. Raises BadArgument for a secret among them."""
        refuse_secret_flags(spec)
        argv = [self.python, "-m", "sglang.launch_server", "--model-path", spec.model, *to_argv(spec.flags)]
        argv += ["--host", "127.0.0.1", "--port", str(port), "--enable-metrics"]
        return argv, dict(spec.env)

    def startup_s(self, info: Mapping[str, Any], wall_s: Mapping[str, float]) -> dict[str, float]:
        """The wall clock's seconds by phase."""
        return dict(wall_s)

    @cached_property
    def _version(self) -> str:
        return installed_version(self.python) or "unknown"

    def gpu_names(self) -> tuple[str, ...]:
        """As the driver tells them."""
        return gpu_names()

    def versions(self) -> Mapping[str, str]:
        """The installed version of sglang."""
        return {"sglang": self._version}


def installed_version(python: str) -> str | None:
    """The version of the interpreter's sglang; None where either is missing."""
    try:
        done = subprocess.run([python, "-c", _ASK_VERSION], capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def sglang_found(python: str | None) -> bool:
    """Whether the interpreter, this one if None, has an sglang."""
    return installed_version(python or sys.executable) is not None
