"""The launcher of real SGLang servers."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from launchers.base import LaunchSpec, to_argv
from launchers.command import listening_words, refuse_flags
from launchers.errors import CannotRun
from launchers.gpus import gpu_names
from launchers.local import LocalLauncher
from launchers.preflight import NodeReport, NodeRequest
from launchers.sglang.dialect import SGLANG
from launchers.sglang.node_check import check_node
from launchers.sglang.preflight import Preflight
from launchers.sglang.progress import backed_by
from launchers.sglang.resolver import Resolver
from launchers.visible import visible_gpus

Entry = Literal["sglang.launch_server", "sglang serve"]
#: Where an environment of its own is looked for, in the folder of the run.
OWN_VENV = Path(".venv-sglang/bin/python")
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
        *,
        command: Entry = "sglang.launch_server",
        folder: Path | None = None,
        **options: Any,
    ) -> None:
        """`python`: see `find_python`, with `folder`, that of the run (default: where this process is).

        Further options are those of LocalLauncher.
        """
        super().__init__(log_folder, SGLANG, startup_timeout_s=startup_timeout_s, stop_grace_s=stop_grace_s, **options)
        self._folder = folder or Path.cwd()
        self.python = find_python(python, self._folder)
        self._entry = command

    def command(self, spec: LaunchSpec, port: int) -> tuple[list[str], dict[str, str]]:
        """SGLang with the flags as given. Raises BadArgument for a secret or a flag of the launcher's own."""
        refuse_flags(spec)
        module = self._entry == "sglang.launch_server"
        entry = [self.python, "-m", self._entry] if module else _script(self.python)
        return [*entry, "--model-path", spec.model, *to_argv(spec.flags), *listening_words(port)], dict(spec.env)

    def interpreter(self) -> str:
        """The one that runs the server. Raises CannotRun where there is none."""
        if not os.access(self.python, os.X_OK):
            raise CannotRun(
                f"no interpreter at {self.python}, so no sglang",
                hint="name one that has sglang in launcher.python, install sglang into this environment, or on a "
                f"machine without a GPU make {OWN_VENV.parts[0]} with `python3 -m launchers.sglang.cpu`",
            )
        return self.python

    def gpu_environment(self, spec: LaunchSpec, node: Mapping[str, str]) -> dict[str, str]:
        """The GPUs by name, in the host's order; none for a server that runs on the CPUs.

        Raises CannotRun where the node does not show as many.
        """
        if spec.gpus and not self._gpu_names:
            # Nobody tells what there is: the server shall see what its node shows.
            return {}
        try:
            visible = visible_gpus(node.get("CUDA_VISIBLE_DEVICES"), spec.gpus, self._gpu_names)
        except ValueError as error:
            raise CannotRun(str(error)) from error
        return {"CUDA_VISIBLE_DEVICES": visible}

    def preflight(self, spec: LaunchSpec) -> None:
        """Ask SGLang's own resolver, in a process that stays. Raises InvalidCombination, BadArgument or CannotRun."""
        refuse_flags(spec)
        self._preflight.check(spec)

    def check_node(self, request: NodeRequest) -> NodeReport:
        """What of this node would spoil the first start. Raises CannotRun where there is no interpreter."""
        version = installed_version(self.interpreter())
        return check_node(request, self.inherited_environment(), self._resolver, version)

    @property
    def findings(self) -> tuple[str, ...]:
        """Where our rules and SGLang's own resolver differed."""
        return tuple(self._preflight.findings)

    @cached_property
    def _resolver(self) -> Resolver:
        return Resolver(self.interpreter(), self.inherited_environment())

    @cached_property
    def _preflight(self) -> Preflight:
        return Preflight(self._resolver, self.inherited_environment(), self._folder)

    @cached_property
    def _gpu_names(self) -> tuple[str, ...]:
        return gpu_names()

    def startup_s(self, info: Mapping[str, Any], wall_s: Mapping[str, float]) -> dict[str, float]:
        """The wall clock's seconds by phase, completed by the server's own."""
        return backed_by(wall_s, info.get("startup_time"))

    @cached_property
    def _version(self) -> str:
        return installed_version(self.python) or "unknown"

    def gpu_names(self) -> tuple[str, ...]:
        """As the driver tells them."""
        return self._gpu_names

    def versions(self) -> Mapping[str, str]:
        """The installed version of sglang."""
        return {"sglang": self._version}


def find_python(named: str | None, folder: Path) -> str:
    """The interpreter to run SGLang with, as an absolute path, whether it is there or not.

    A named one is looked for on PATH, or from `folder` where it is a relative path. Without a name it is this
    one if it has an sglang, else that of `.venv-sglang` in the folder. Links are kept: through its link an
    interpreter knows its environment.
    """
    if named is None:
        return sys.executable if _has_sglang() else os.path.abspath(folder / OWN_VENV)
    if os.sep not in named:
        return shutil.which(named) or named
    return os.path.abspath(folder / Path(named).expanduser())


def _has_sglang() -> bool:
    """Whether this interpreter does. Nothing is imported."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return bool(importlib.metadata.version("sglang"))
    return False


def _script(python: str) -> list[str]:
    """`sglang serve` of the interpreter's environment."""
    return [str(Path(python).with_name("sglang")), "serve"]


def installed_version(python: str) -> str | None:
    """The version of the interpreter's sglang; None where either is missing."""
    try:
        done = subprocess.run([python, "-c", _ASK_VERSION], capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def sglang_found(python: str | None) -> bool:
    """Whether the interpreter (default: see `find_python`) has an sglang."""
    return installed_version(find_python(python, Path.cwd())) is not None
