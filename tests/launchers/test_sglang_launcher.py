"""The command line of real servers, and finding an sglang to run it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from launchers.base import LaunchSpec, Phase
from launchers.errors import BadArgument, CannotRun
from launchers.sglang.launcher import SGLangLauncher, find_python, sglang_found
from launchers.sglang.launcher import _has_sglang as sglang_here


def fake_python(folder: Path, text: str) -> str:
    script = folder / "python"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    return str(script)


def test_the_command_has_every_flag_in_order_and_no_other(tmp_path: Path) -> None:
    flags = {
        "tp-size": 8,
        "trust-remote-code": True,
        "disable-overlap-schedule": False,
        "speculative-algorithm": None,
        "mem-fraction-static": 0.85,
        "cuda-graph-bs-decode": [1, 8],
        "json-model-override-args": {"b": 1, "a": [2]},
    }
    launcher = SGLangLauncher(tmp_path, "/opt/venv/bin/python")
    argv, env = launcher.command(LaunchSpec("a/b", flags, {"NCCL_PROTO": "LL"}), 30000)
    words = "--tp-size 8 --trust-remote-code --mem-fraction-static 0.85 --cuda-graph-bs-decode 1 8"
    assert argv == [
        *["/opt/venv/bin/python", "-m", "sglang.launch_server", "--model-path", "a/b"],
        *words.split(),
        "--json-model-override-args",
        '{"a": [2], "b": 1}',
        *["--host", "127.0.0.1", "--port", "30000", "--enable-metrics"],
    ]
    assert env == {"NCCL_PROTO": "LL"}


def test_the_newer_name_of_the_entry_point_is_run_from_the_interpreter_s_environment(tmp_path: Path) -> None:
    launcher = SGLangLauncher(tmp_path, "/opt/venv/bin/python", command="sglang serve")
    argv, _ = launcher.command(LaunchSpec("a/b", {"tp-size": 2}), 30000)
    assert argv[:6] == ["/opt/venv/bin/sglang", "serve", "--model-path", "a/b", "--tp-size", "2"]


def test_an_interpreter_is_a_path_from_the_folder_of_the_run_or_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Path(fake_python(tmp_path, "exit 1")).rename(tmp_path / "python-of-path")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_python("python-of-path", tmp_path / "else") == str(program)
    assert find_python("venv/bin/python", tmp_path) == str(tmp_path / "venv/bin/python")
    assert find_python("/opt/bin/python", tmp_path) == "/opt/bin/python"


def test_without_a_name_it_is_this_interpreter_if_it_has_sglang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.5.23" if name == "sglang" else "")
    assert SGLangLauncher(tmp_path, folder=tmp_path).python == sys.executable


def test_else_it_is_that_of_the_environment_in_the_folder_of_the_run(tmp_path: Path) -> None:
    if sglang_here():
        pytest.skip("this interpreter has an sglang of its own")
    launcher = SGLangLauncher(tmp_path, folder=tmp_path)
    assert launcher.python == str(tmp_path / ".venv-sglang/bin/python")
    with pytest.raises(CannotRun, match=r"no interpreter at .*\.venv-sglang/bin/python.*launchers\.sglang\.cpu"):
        launcher.launch(LaunchSpec("m"), lambda progress: None, lambda: False)


def test_a_secret_flag_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="api-key"):
        SGLangLauncher(tmp_path).command(LaunchSpec("m", {"api-key": "x"}), 1)


def test_a_missing_interpreter_is_an_error_that_says_what_to_check(tmp_path: Path) -> None:
    launcher = SGLangLauncher(tmp_path, "/no/such/python")
    with pytest.raises(CannotRun, match=r"/no/such/python.*launcher\.python") as caught:
        launcher.launch(LaunchSpec("m"), lambda progress: None, lambda: False)
    assert caught.value.phase is Phase.SPAWNED


@pytest.mark.parametrize(
    ("shown", "gpus", "expected"),
    [(None, 2, "0,1"), ("3,1,2", 2, "3,1"), ("3,1,2", 0, ""), ("GPU-aaaa,GPU-bbbb", 1, "GPU-aaaa")],
)
def test_a_server_sees_its_gpus_in_the_host_s_order(
    shown: str | None, gpus: int, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launchers.sglang.launcher.gpu_names", lambda: ("H200",) * 4)
    node = {} if shown is None else {"CUDA_VISIBLE_DEVICES": shown}
    seen = SGLangLauncher(tmp_path).gpu_environment(LaunchSpec("m", gpus=gpus), node)
    assert seen == {"CUDA_VISIBLE_DEVICES": expected}


def test_gpus_that_the_node_does_not_show_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launchers.sglang.launcher.gpu_names", lambda: ("H200",) * 4)
    with pytest.raises(CannotRun, match="8 GPUs are asked for"):
        SGLangLauncher(tmp_path).gpu_environment(LaunchSpec("m", gpus=8), {})


def test_the_version_is_asked_of_the_interpreter_that_runs_it(tmp_path: Path) -> None:
    python = fake_python(tmp_path, 'case "$2" in *sglang*) echo 0.5.23;; *) exit 1;; esac')
    assert sglang_found(python)
    assert SGLangLauncher(tmp_path, python).versions() == {"sglang": "0.5.23"}


def test_an_interpreter_without_sglang_or_none_at_all_is_no_find(tmp_path: Path) -> None:
    python = fake_python(tmp_path, "exit 1")
    assert not sglang_found(python)
    assert not sglang_found("/no/such/python")
    assert SGLangLauncher(tmp_path, "/no/such/python").versions() == {"sglang": "unknown"}
    assert SGLangLauncher(tmp_path, python).versions() == {"sglang": "unknown"}


def test_a_start_has_time_for_slow_disks_unless_told_otherwise(tmp_path: Path) -> None:
    # 547 GB at 0.3 GB/s take half an hour.
    assert SGLangLauncher(tmp_path).startup_timeout_s >= 1830
    assert SGLangLauncher(tmp_path, startup_timeout_s=60.0).startup_timeout_s == 60.0
