"""What a server inherits: the node's environment, neither Ray's nor our own."""

from __future__ import annotations

import subprocess
import sys

from launchers.environment import for_interpreter, node_environment, parse_environ, started_with


def test_nothing_of_ray_or_of_the_orchestrator_is_inherited() -> None:
    kept = node_environment(
        {"RAY_ADDRESS": "x", "TUNE_X": "z", "ORCHESTRATOR_RUN": "y", "PATH": "p", "NCCL_DEBUG": "WARN"}, {}
    )
    assert kept == {"PATH": "p", "NCCL_DEBUG": "WARN"}


#: As seen in a worker of Ray 2.60 on a node that was started with CUDA_VISIBLE_DEVICES=5,3.
WORKER = {
    "RAY_RAYLET_PID": "23422",
    "RAY_JOB_ID": "ffffffff",
    "CUDA_VISIBLE_DEVICES": "3,5",
    "OMP_NUM_THREADS": "1",
    "PYTHONBREAKPOINT": "ray.util.rpdb.set_trace",
    "SPT_NOENV": "1",
    "HOME": "/root",
}


def test_what_a_ray_worker_sets_in_itself_is_not_inherited() -> None:
    # The order of the GPUs is the host's.
    started = {"CUDA_VISIBLE_DEVICES": "5,3", "HOME": "/root", "SPT_NOENV": "1"}
    assert node_environment(WORKER, started) == {"CUDA_VISIBLE_DEVICES": "5,3", "HOME": "/root"}


def test_what_the_node_was_started_with_is_inherited() -> None:
    started = {"OMP_NUM_THREADS": "16", "PYTHONBREAKPOINT": "0", "ELSE": "is not asked"}
    expected = {"OMP_NUM_THREADS": "16", "PYTHONBREAKPOINT": "0", "HOME": "/root"}
    assert node_environment(WORKER, started) == expected


def test_a_worker_whose_beginning_is_unknown_passes_nothing_of_rays_on() -> None:
    assert node_environment(WORKER, {}) == {"HOME": "/root"}


def test_without_ray_the_owner_s_variables_are_its_user_s() -> None:
    env = {"OMP_NUM_THREADS": "4", "CUDA_VISIBLE_DEVICES": "1,0"}
    assert node_environment(env, {"OMP_NUM_THREADS": "2"}) == env


def test_another_interpreter_does_not_get_our_environment() -> None:
    env = {
        "VIRTUAL_ENV": "/ours",
        "PYTHONPATH": "/ours/lib",
        "PYTHONHOME": "/ours",
        "PATH": "/ours/bin:/usr/bin:/theirs/bin",
        "HOME": "/h",
    }
    # As after `activate`: what is built at run time finds the tools of its own environment first.
    assert for_interpreter(env, "/theirs/bin/python", "/ours/bin/python") == {
        "PATH": "/theirs/bin:/usr/bin",
        "HOME": "/h",
    }


def test_our_own_interpreter_keeps_its_environment() -> None:
    env = {"VIRTUAL_ENV": "/ours", "PYTHONPATH": "/lib", "PATH": "/usr/bin"}
    assert for_interpreter(env, "/ours/bin/python", "/ours/bin/python3.11") == {**env, "PATH": "/ours/bin:/usr/bin"}


def test_what_a_process_was_started_with_is_read_whatever_it_sets_later() -> None:
    code = "import os; os.environ['X'] = 'later'; print(flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={"X": "first", "EMPTY": ""}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert started_with(process.pid) == {"X": "first", "EMPTY": ""}
    finally:
        process.kill()
        process.communicate()
    assert started_with(process.pid) == {}


def test_a_title_written_over_an_environment_is_no_variable_of_it() -> None:
    raw = b"sglang::scheduler\0\0 \0%=1\0HOME=/root\0NCCL_DEBUG=\0A=b=c\0"
    assert parse_environ(raw) == {"HOME": "/root", "NCCL_DEBUG": "", "A": "b=c"}
    assert parse_environ(b"") == {}
