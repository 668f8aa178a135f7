"""The command that makes the CPU environment: what it refuses, what it installs from where, and what it does again."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from launchers.sglang.cpu import __main__ as command
from launchers.sglang.cpu.environment import Environment, Wanted
from launchers.sglang.cpu.errors import KitError
from launchers.sglang.cpu.packages import explain, not_found
from launchers.sglang.cpu.pip import Pip
from launchers.sglang.cpu.steps import Step, Steps

_ROOT = Path(command.__file__).parents[3]


def silent(line: str) -> None:
    pass


def test_it_runs_on_a_python_with_nothing_installed() -> None:
    # -S leaves the site's packages out, -B and -I everything else that is not of this folder.
    start = f"import sys; sys.path.insert(0, {str(_ROOT)!r}); import runpy; sys.argv = ['x', '--help']; "
    argv = [sys.executable, "-I", "-S", "-c", start + "runpy.run_module('launchers.sglang.cpu', run_name='__main__')"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--torch-index" in done.stdout


def test_the_defaults_make_four_drafters_and_never_the_cuda_build() -> None:
    wanted = command.parse([])
    assert wanted.noises == (0.0, 0.1, 0.2, 0.3)
    assert wanted.folder == Path(".venv-sglang")
    assert (wanted.torch_index or "").endswith("/cpu")


def test_the_drafters_are_the_users_to_choose_each_once() -> None:
    assert command.parse(["--noise", "0.05", "0.4", "0.05"]).noises == (0.05, 0.4)


@pytest.mark.parametrize("noise", ["-0.1", "nan", "inf", "much"])
def test_a_noise_that_is_none_is_refused(noise: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        command.parse([f"--noise={noise}"])
    assert caught.value.code == 2
    assert "--noise" in capsys.readouterr().err


@pytest.mark.parametrize("version", [(3, 10, 9), (3, 14, 0)])
def test_a_python_that_the_pinned_packages_do_not_know_is_refused(
    version: tuple[int, int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command.sys, "version_info", version)
    assert command.main(["--folder", str(tmp_path / "env")]) == 1
    assert "python3.11" in capsys.readouterr().err
    assert not (tmp_path / "env").exists()


def test_another_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command.platform, "machine", lambda: "aarch64")
    assert "x86-64" in (command.unsuitable() or "")


def test_a_folder_that_it_did_not_make_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    assert command.main(["--folder", str(tmp_path)]) == 1
    assert "not made by this command" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_too_small_a_disk_is_told_before_anything_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 10**9})
    monkeypatch.setattr("launchers.sglang.cpu.environment.shutil.disk_usage", lambda path: usage)
    with pytest.raises(KitError, match=r"has 1\.0 GB of free disk, and 4\.5 GB are needed"):
        Environment(Wanted(tmp_path / "env"), silent).make()


class Work:
    """A step that counts how often it was done, and can be made to fail."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.leaf, self.times, self.fails = name, folder / name, 0, False

    def __call__(self) -> None:
        self.times += 1
        if self.fails:
            raise KeyboardInterrupt
        self.leaf.touch()

    def step(self, inputs: object = None) -> Step:
        return Step(self.name, inputs, (self.leaf,), self)


def test_a_step_is_done_once_and_again_after_a_change_or_a_loss(tmp_path: Path) -> None:
    steps, work = Steps(tmp_path / "record.json", silent), Work(tmp_path, "models")
    steps.forget()
    steps.do(work.step())
    steps.do(work.step())
    assert work.times == 1
    steps.do(work.step(inputs=[0.1]))
    assert work.times == 2
    work.leaf.unlink()
    steps.do(work.step(inputs=[0.1]))
    assert work.times == 3


def test_what_was_interrupted_is_done_again_and_what_ended_before_is_not(tmp_path: Path) -> None:
    steps = Steps(tmp_path / "record.json", silent)
    before, broken = Work(tmp_path, "venv"), Work(tmp_path, "packages")
    steps.forget()
    # It left something before it was interrupted.
    broken.fails = True
    broken.leaf.touch()
    with pytest.raises(KeyboardInterrupt):
        steps.do(before.step(), broken.step())
    broken.fails = False
    Steps(tmp_path / "record.json", silent).do(before.step(), broken.step())
    assert (before.times, broken.times) == (1, 2)


def wheel(folder: Path, name: str, version: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}/__init__.py", f"version = {version!r}\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")


def index(folder: Path, name: str, version: str) -> str:
    """A package index on disk with one package; its URL."""
    wheel(folder / name, name, version)
    (folder / name / "index.html").write_text(
        "".join(f'<a href="{path.name}">{path.name}</a>' for path in (folder / name).glob("*.whl"))
    )
    return folder.as_uri()


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=True, symlinks=True)
    return folder / "bin/python"


@pytest.fixture
def installed(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None, str], str]:
    """What `install_torch` installs, given the version that pip's own index has."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")

    def install(cpu_index: str | None, own: str) -> str | None:
        monkeypatch.setenv("PIP_INDEX_URL", index(tmp_path / "own", "torch", own))
        subprocess.run([python, "-I", "-m", "pip", "uninstall", "-qy", "torch"], check=True, capture_output=True)
        Pip(python, silent).install_torch(cpu_index)
        ask = "import torch; print(torch.version)"
        return subprocess.run([python, "-Ic", ask], check=True, capture_output=True, text=True).stdout.strip()

    return install


def test_torch_is_the_cpu_build_of_the_index_that_pip_is_set_up_with(
    installed: Callable[[str | None, str], str],
) -> None:
    # Nobody listens at the other index: it is not asked.
    assert installed("http://127.0.0.1:9/cpu", "2.13.0+cpu") == "2.13.0+cpu"


def test_torch_is_the_cpu_index_s_where_pip_s_own_has_the_cuda_build(
    installed: Callable[[str | None, str], str], tmp_path: Path
) -> None:
    assert installed(index(tmp_path / "cpu", "torch", "2.13.0+cpu"), "2.13.0") == "2.13.0+cpu"


def test_the_cuda_build_is_not_taken_unasked(installed: Callable[[str | None, str], str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(KitError, match=r"no index .* has torch==2\.13\.0\+cpu.*\n.*--torch-index none"):
        installed((tmp_path / "empty").as_uri(), "2.13.0")


def test_the_cuda_build_is_taken_when_asked(installed: Callable[[str | None, str], str]) -> None:
    assert installed(None, "2.13.0") == "2.13.0"


# Lines of pip 23.2.
_FULL = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"
_RETRY = (
    "WARNING: Retrying (Retry(total=4, connect=None, read=None, redirect=None, status=None)) after connection broken "
    "by 'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f>: Failed to establish a "
    "new connection: [Errno -3] Temporary failure in name resolution')': /simple/torch/\n"
)
_MISSING = (
    "ERROR: Could not find a version that satisfies the requirement torch==2.13.0+cpu (from versions: 2.12.0, 2.13.0)\n"
    "ERROR: No matching distribution found for torch==2.13.0+cpu\n"
)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (_FULL, "the disk is full"),
        (_RETRY + _MISSING, "does not answer"),
        (_MISSING, "no index that pip asks has torch==2.13.0+cpu"),
        ("a\nb\nerror: the compiler said no\n", "the compiler said no"),
    ],
)
def test_pip_s_failure_is_told_with_its_remedy(output: str, words: str) -> None:
    assert words in explain(output)


def test_an_index_that_does_not_answer_is_not_one_that_has_nothing() -> None:
    assert not_found(_MISSING)
    assert not not_found(_RETRY + _MISSING)
