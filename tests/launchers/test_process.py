"""A server process is owned: whoever dies, nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from launchers import guard
from launchers.process import RUN_MARKER, STUDY_MARKER, OwnedProcess, clean_environment, port_is_free, stop_leftovers

#: A server that ignores TERM, with a child in its group and one that changed session; prints all three pids.
STUBBORN = textwrap.dedent(
    """
    import os, signal, subprocess, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    away = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    print("pids", os.getpid(), child.pid, away.pid, flush=True)
    time.sleep(600)
    """
)
POLITE = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0)); print('up', flush=True); time.sleep(600)"
PORT = 21_777


def until(condition: Callable[[], object], deadline_s: float = 20.0) -> object:
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError("the condition did not come true in time")


def gone(pid: int) -> bool:
    return guard.state_of(pid) in (None, "Z")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., OwnedProcess]]:
    started: list[OwnedProcess] = []

    def run(code: str, **env: str) -> OwnedProcess:
        process = OwnedProcess(
            [sys.executable, "-c", code],
            clean_environment(os.environ) | env,
            tmp_path / f"{len(started)}.log",
            f"start-{os.getpid()}-{len(started)}",
            PORT,
            grace_s=5.0,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.stop(grace_s=0.0)


def pids_of(process: OwnedProcess) -> list[int]:
    line = until(lambda: next((x for x in process.tail().splitlines() if x.startswith("pids")), None))
    return [int(word) for word in str(line).split()[1:]]


def test_a_polite_server_ends_with_term_and_its_own_exit_code(start: Callable[..., OwnedProcess]) -> None:
    process = start(POLITE)
    until(lambda: "up" in process.tail())
    report = process.stop()
    assert (report.exit_code, report.signals, report.survivors) == (0, ("SIGTERM",), ())
    assert report.proven
    assert process.ended
    assert process.stop() is report


def test_what_ignores_term_or_changed_its_session_is_killed(start: Callable[..., OwnedProcess]) -> None:
    process = start(STUBBORN)
    pids = pids_of(process)
    report = process.stop(grace_s=0.3)
    assert report.signals == ("SIGTERM", "SIGKILL")
    assert report.exit_code == -signal.SIGKILL
    assert all(map(gone, pids))


def test_a_stopped_server_is_stopped_too(start: Callable[..., OwnedProcess]) -> None:
    process = start(POLITE)
    until(lambda: "up" in process.tail())
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: guard.state_of(process.pid) == "T")
    assert process.stop(grace_s=5.0).proven


def test_the_exit_code_of_a_server_that_ends_by_itself_is_known(start: Callable[..., OwnedProcess]) -> None:
    process = start("import os; print('bye', flush=True); os._exit(7)")
    assert process.wait_end(20)
    assert process.exit_code == 7
    assert "bye" in process.tail()
    assert process.stop().proven


def test_children_of_a_crashed_server_are_not_left(start: Callable[..., OwnedProcess]) -> None:
    process = start(STUBBORN.replace("time.sleep(600)\n", "os.kill(os.getpid(), 9)\n"))
    pids = pids_of(process)
    assert process.wait_end(20)
    assert process.exit_code == -signal.SIGKILL
    assert process.stop().proven
    assert all(map(gone, pids))


@pytest.mark.parametrize("victim", ["owner", "guard"])
def test_killing_the_owner_or_the_guard_takes_the_server_along(victim: str, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    code = textwrap.dedent(
        f"""
        import os, pathlib, sys, time
        from launchers.process import OwnedProcess
        p = OwnedProcess([sys.executable, "-c", {STUBBORN!r}], dict(os.environ), pathlib.Path({str(log)!r}), "x", {PORT}, 5.0)
        print(p._guard.pid, flush=True)
        time.sleep(600)
        """
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        guard_pid = int(owner.stdout.readline())
        line = until(lambda: log.exists() and next((x for x in log.read_text().splitlines() if "pids" in x), None))
        server, child, away = (int(word) for word in str(line).split()[1:])
        os.kill(owner.pid if victim == "owner" else guard_pid, signal.SIGKILL)
        # The guard finds all of them; without it the kernel's parent-death signal takes the server itself.
        wanted = [server, child, away] if victim == "owner" else [server]
        until(lambda: all(map(gone, wanted)))
        for pid in {child, away} - set(wanted):
            os.kill(pid, signal.SIGKILL)
    finally:
        owner.kill()
        owner.wait()


def test_leftovers_of_another_run_are_stopped_and_nobody_else(start: Callable[..., OwnedProcess]) -> None:
    old = start(POLITE, **{STUDY_MARKER: "study-a", RUN_MARKER: "run-1"})
    current = start(POLITE, **{STUDY_MARKER: "study-a", RUN_MARKER: "run-2"})
    foreign = start(POLITE, **{STUDY_MARKER: "study-b", RUN_MARKER: "run-1"})
    for process in (old, current, foreign):
        until(lambda process=process: "up" in process.tail())
    assert old.pid in stop_leftovers("study-a", "run-2")
    until(lambda: gone(old.pid))
    assert psutil.pid_exists(current.pid)
    assert not current.ended
    assert not foreign.ended


def test_a_command_that_cannot_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no/such/program"):
        OwnedProcess(["/no/such/program"], dict(os.environ), tmp_path / "x.log", "x", PORT, 1.0)


def test_nothing_of_ray_or_of_the_orchestrator_is_inherited() -> None:
    kept = clean_environment({"RAY_ADDRESS": "x", "ORCHESTRATOR_RUN": "y", "PATH": "p", "NCCL_DEBUG": "WARN"})
    assert kept == {"PATH": "p", "NCCL_DEBUG": "WARN"}


def test_a_port_that_is_listened_on_is_not_free() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert not port_is_free(taken.getsockname()[1])
