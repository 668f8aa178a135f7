"""The command line of real servers, and finding an sglang to run it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from launchers.base import LaunchSpec, Phase
from launchers.errors import BadArgument, CannotRun
from launchers.sglang.launcher import SGLangLauncher, sglang_found


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


def test_the_interpreter_is_this_one_unless_another_is_named(tmp_path: Path) -> None:
    assert SGLangLauncher(tmp_path).command(LaunchSpec("m"), 1)[0][0] == sys.executable


def test_a_secret_flag_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="api-key"):
        SGLangLauncher(tmp_path).command(LaunchSpec("m", {"api-key": "x"}), 1)


def test_a_missing_interpreter_is_an_error_that_says_what_to_check(tmp_path: Path) -> None:
    launcher = SGLangLauncher(tmp_path, "/no/such/python")
    with pytest.raises(CannotRun, match=r"/no/such/python.*launcher\.python") as caught:
        launcher.launch(LaunchSpec("m"), lambda phase: None, lambda: False)
    assert caught.value.phase is Phase.SPAWNED


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
