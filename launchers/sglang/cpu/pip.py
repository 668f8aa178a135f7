"""pip of the environment, with errors that say what to do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from launchers.sglang.cpu.errors import KitError
from launchers.sglang.cpu.packages import TORCH, TORCH_CPU, explain, not_found

#: pip's lines that show that it moves.
_PROGRESS = ("Collecting ", "Downloading ", "Installing ", "Building ")


class Pip:
    """Installs into the environment of `python`. `say` is told of its progress."""

    def __init__(self, python: Path, say: Callable[[str], None]) -> None:
        self._python = python
        self._say = say

    def install(self, *words: str) -> None:
        """`pip install` these words. Raises KitError."""
        code, output = self._run(words)
        if code:
            raise KitError(explain(output))

    def install_torch(self, cpu_index: str | None) -> None:
        """The CPU build from the indexes that pip is set up with, a mirror say, else from `cpu_index`.

        None takes whatever build those have. The CUDA build is never taken unasked. Raises KitError.
        """
        if cpu_index is None:
            self.install(TORCH)
            return
        code, output = self._run([TORCH_CPU])
        if code and not_found(output):
            self._say(f"  pip's indexes have no {TORCH_CPU}: asking {cpu_index}")
            code, output = self._run([TORCH_CPU, "--extra-index-url", cpu_index])
        if code:
            raise KitError(
                f"{TORCH_CPU}: {explain(output)}\nWhere only a mirror of PyPI can be reached, `--torch-index none` "
                "takes its torch; that may be the CUDA build, several GB, which runs on a CPU too"
            )

    def _run(self, words: Sequence[str]) -> tuple[int, str]:
        """pip's exit code and output."""
        argv = [str(self._python), "-I", "-m", "pip", "install", "--no-input", "--progress-bar", "off", *words]
        lines: list[str] = []
        # Its messages are read by rules, which are English.
        env = {**os.environ, "LC_ALL": "C.UTF-8"}
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env) as pip:
            for line in pip.stdout or ():
                lines.append(line)
                if line.startswith(_PROGRESS):
                    self._say(f"  {line.strip()[:100]}")
        return pip.returncode, "".join(lines)
