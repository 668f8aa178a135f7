"""The launcher of real SGLang servers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from launchers.base import LaunchSpec, to_argv
from launchers.local import LocalLauncher

_ASK_VERSION = "import importlib.metadata as m; print(m.version('sglang'))"


class SGLangLauncher(LocalLauncher):
    """Starts SGLang under the interpreter `python`; sglang is executed there, never imported here."""

    simulated = False

    def __init__(
        self, log_folder: Path, python: str | None = None, startup_timeout_s: float = 2700.0
    ) -> None:
        # SGLang drains for as long as requests run: 90 s seen on a loaded node.
        super().__init__(log_folder, startup_timeout_s=startup_timeout_s, stop_grace_s=90.0)
        self.python = python or sys.executable

    def command(self, spec: LaunchSpec, port: int) -> tuple[list[str], dict[str, str]]:
        """`python -m sglang.launch_server` with the flags as given."""
        argv = [self.python, "-m", "sglang.launch_server", "--model-path", spec.model, *to_argv(spec.flags)]
        argv += ["--host", "127.0.0.1", "--port", str(port), "--enable-metrics"]
        return argv, dict(spec.env)

    def startup_s(self, info: Mapping[str, Any], wall_s: Mapping[str, float]) -> dict[str, float]:
        """The wall clock's seconds by phase."""
        return dict(wall_s)

    @cached_property
    def _version(self) -> str:
        done = subprocess.run(
            [self.python, "-c", _ASK_VERSION], capture_output=True, text=True, timeout=120, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else "unknown"

    def versions(self) -> Mapping[str, str]:
        """The installed version of sglang."""
        return {"sglang": self._version}


def sglang_found(python: str | None) -> bool:
    """Whether the interpreter has an sglang."""
    try:
        done = subprocess.run(
            [python or sys.executable, "-c", _ASK_VERSION], capture_output=True, timeout=120, check=False
        )
    except OSError:
        return False
    return done.returncode == 0
