"""The environment: its folder, virtual environment, packages, kernel stand-in and models.

Only the standard library is used: this runs before anything is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launchers.sglang.cpu.errors import KitError
from launchers.sglang.cpu.packages import REQUIREMENTS, TORCH, TORCH_CPU_INDEX, WITHOUT_DEPENDENCIES
from launchers.sglang.cpu.pip import Pip
from launchers.sglang.cpu.steps import Step, Steps

_HERE = Path(__file__).parent
_NEEDED_BYTES = 4_500_000_000

#: Packages of which a file is missing or cut short, as an interrupted pip leaves them. Python rewrites compiled files.
_FIND_DAMAGED = """
import importlib.metadata, os
for package in importlib.metadata.distributions():
    for file in package.files or ():
        if file.suffix == ".pyc":
            continue
        path = package.locate_file(file)
        if not os.path.exists(path) or (file.size is not None and os.path.getsize(path) != file.size):
            print(f"{package.metadata['Name']}=={package.version}")
            break
"""
#: Imports the stand-in as SGLang does, and prints one line.
_CHECK = """
import sgl_kernel, sglang, torch, torchvision
import sglang.kernels.ops.speculative.spec_tree, sglang.srt.server_args
print(f"sglang {sglang.__version__}, torch {torch.__version__}, torchvision {torchvision.__version__}, "
      f"sgl_kernel {sgl_kernel.__version__}")
"""
_CHECK_ENV = {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1"}


@dataclass(frozen=True)
class Wanted:
    """What is asked for: where the environment goes, its models, and the index of torch (None: pip's own)."""

    folder: Path
    noises: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3)
    seed: int = 0
    torch_index: str | None = TORCH_CPU_INDEX


class Environment:
    """A virtual environment in the making. `say` is told of each step."""

    def __init__(self, wanted: Wanted, say: Callable[[str], None]) -> None:
        self._wanted = wanted
        self._say = say
        self.folder = wanted.folder.absolute()
        self.python = self.folder / "bin/python"
        self.models = self.folder / "models"
        self._steps = Steps(self.folder / "cpu-kit.json", say)
        self._pip = Pip(self.python, say)

    def make(self) -> str:
        """Do what is not done yet; the versions of what is there. Raises KitError."""
        self._own_folder()
        self._steps.do(Step("virtual environment", [], (self.python,), self._make_venv))
        site = Path(self._output("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        index = self._wanted.torch_index
        self._steps.do(
            Step("torch", [TORCH, index is None], (site / "torch",), lambda: self._pip.install_torch(index)),
            Step("packages", [REQUIREMENTS, WITHOUT_DEPENDENCIES], (site / "sglang",), self._install_packages),
            Step(
                "kernel stand-in",
                _contents(_HERE.glob("sgl_kernel/*.py"), [_HERE / "torchvision_operators.py"]),
                (site / "sgl_kernel/__init__.py", site / "torchvision_operators.pth"),
                lambda: self._install_stand_in(site),
            ),
            Step(
                "models",
                [_contents([_HERE / "models.py"]), self._wanted.noises, self._wanted.seed],
                tuple(self.models / name / "model.safetensors" for name in self._model_names()),
                self._make_models,
            ),
        )
        return self._output("-c", _CHECK).strip().splitlines()[-1]

    def _own_folder(self) -> None:
        """Take a new or empty folder, or one that this command began before."""
        if self._steps.begun:
            return
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise KitError(
                f"{self.folder} was not made by this command, and is left alone: remove it, or name another --folder"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        free_bytes = shutil.disk_usage(self.folder).free
        if free_bytes < _NEEDED_BYTES:
            raise KitError(
                f"{self.folder} has {free_bytes / 1e9:.1f} GB of free disk, and {_NEEDED_BYTES / 1e9:.1f} GB are "
                "needed: make room, or name another --folder"
            )
        self._steps.forget()

    def _make_venv(self) -> None:
        # Nothing of it ended, so a half-made one is made anew; models that may be there are not its part.
        self._steps.forget()
        for left in self.folder.iterdir():
            if left not in (self._steps.record, self.models):
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        done = _run([sys.executable, "-m", "venv", str(self.folder)])
        if done.returncode:
            raise KitError(
                f"{sys.executable} cannot make a virtual environment (on Debian and Ubuntu, "
                f"`apt-get install python3-venv` helps):\n{(done.stdout + done.stderr).strip()}"
            )

    def _install_packages(self) -> None:
        # torch is named so that what depends on it keeps the build that is there.
        self._pip.install(TORCH, *REQUIREMENTS)
        self._pip.install("--no-deps", *WITHOUT_DEPENDENCIES)
        damaged = self._output("-c", _FIND_DAMAGED).split()
        if damaged:
            self._say(f"  repairing {', '.join(damaged)}")
            self._pip.install("--force-reinstall", "--no-deps", *damaged)

    def _install_stand_in(self, site: Path) -> None:
        shutil.rmtree(site / "sgl_kernel", ignore_errors=True)
        shutil.copytree(_HERE / "sgl_kernel", site / "sgl_kernel", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(_HERE / "torchvision_operators.py", site)
        # A sitecustomize would be hidden by one that the distribution ships; a .pth is always read.
        (site / "torchvision_operators.pth").write_text("import torchvision_operators\n")

    def _model_names(self) -> list[str]:
        return ["tiny-llama", "markov", *(f"markov-eagle-{noise}" for noise in self._wanted.noises)]

    def _make_models(self) -> None:
        """Make all beside, then put each in its place; other folders there are left alone."""
        partial = self.folder / "models.partial"
        shutil.rmtree(partial, ignore_errors=True)
        noises = [str(noise) for noise in self._wanted.noises]
        self._output(str(_HERE / "models.py"), str(partial), "--seed", str(self._wanted.seed), "--noise", *noises)
        self.models.mkdir(exist_ok=True)
        for made in sorted(partial.iterdir()):
            shutil.rmtree(self.models / made.name, ignore_errors=True)
            made.rename(self.models / made.name)
        partial.rmdir()

    def _output(self, *words: str) -> str:
        """What the environment's Python prints. Raises KitError where it fails."""
        done = _run([str(self.python), "-I", *words], {**os.environ, **_CHECK_ENV})
        if done.returncode:
            reason = "\n".join(done.stderr.strip().splitlines()[-3:])
            raise KitError(f"{self.python} failed; if it lasts, remove {self.folder} and run this again:\n{reason}")
        return done.stdout


def _run(argv: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=env)


def _contents(*groups: Iterable[Path]) -> list[str]:
    return [f"{path.name}\n{path.read_text()}" for group in groups for path in sorted(group)]
