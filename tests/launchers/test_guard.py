"""The guard and the reaper: what they take for theirs, what they leave alone, what they cost."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from owned_server import until

from launchers import guard, proc
from launchers.process import OwnedProcess, Reaper

#: No other run of these tests has it.
PORT = 10_003 + os.getpid() % 2500 * 4
SLEEP = "import time; print('up', flush=True); time.sleep(600)"
#: Ends by itself when its owner's pipe closes.
FOLLOWS = "import sys; print('up', flush=True); sys.stdin.read()"


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a Python program in a session of its own and waits for its first line."""
    with contextlib.ExitStack() as started:

        def run(code: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            started.enter_context(process)
            started.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()
            return process

        yield run


@pytest.fixture
def owned(tmp_path: Path) -> Iterator[OwnedProcess]:
    process = OwnedProcess(
        [sys.executable, "-c", SLEEP],
        dict(os.environ),
        tmp_path / "server.log",
        f"{os.getpid()}-{tmp_path.name}",
        PORT,
        grace_s=5.0,
    )
    yield process
    process.stop(grace_s=0.0)


def test_an_idle_guard_does_nothing(owned: OwnedProcess) -> None:
    until(lambda: "up" in owned.tail())
    status = Path(f"/proc/{owned.guard_pid}/status")

    def quiet() -> bool:
        """Not one switch to it within a second: whatever is polled would run."""
        before = [line for line in status.read_text().splitlines() if "ctxt_switches" in line]
        time.sleep(1.0)
        return before == [line for line in status.read_text().splitlines() if "ctxt_switches" in line]

    # On a busy machine it may still be about the first line.
    until(quiet)


def test_among_hundreds_of_processes_only_the_servers_own_are_stopped(owned: OwnedProcess) -> None:
    many = subprocess.Popen(
        ["/bin/sh", "-c", "for i in $(seq 300); do sleep 600 & done; echo up; wait"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert many.stdout is not None
        many.stdout.readline()
        report = owned.stop(grace_s=5.0)
        assert report.proven
        alive = [p for p in proc.see_all().values() if p.group == many.pid and p.alive]
        assert len(alive) == 301
    finally:
        os.killpg(many.pid, signal.SIGKILL)
        many.communicate()


def test_a_later_process_with_the_servers_pid_is_not_its_own(
    spawn: Callable[..., subprocess.Popen[bytes]],
) -> None:
    process = spawn(SLEEP)
    seen = proc.see(process.pid)
    assert seen is not None
    assert proc.members(process.pid, seen.began, b"NO=marker", None) == {process.pid}
    assert proc.members(process.pid, seen.began - 1, b"NO=marker", None) == set()


def test_a_zombie_is_dead(spawn: Callable[..., subprocess.Popen[bytes]]) -> None:
    process = spawn(FOLLOWS)
    assert proc.is_alive(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: not proc.is_alive(process.pid))
    seen = proc.see(process.pid)
    assert seen is not None
    assert seen.state == "Z"
    # Signals can still be sent to it, which is why that proves nothing.
    os.kill(process.pid, 0)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="the system call's number")
def test_a_process_whose_main_thread_alone_has_ended_is_alive(
    spawn: Callable[..., subprocess.Popen[bytes]],
) -> None:
    leave = {"x86_64": 60, "aarch64": 93}[platform.machine()]
    code = f"""if True:
        import ctypes, threading, time
        threading.Thread(target=time.sleep, args=(600,)).start()
        print("up", flush=True)
        ctypes.CDLL(None).syscall({leave}, 0)
    """
    process = spawn(code)
    until(lambda: (seen := proc.see(process.pid)) and seen.state == "Z")
    assert proc.is_alive(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: not proc.is_alive(process.pid))


def test_a_name_with_spaces_and_brackets_is_read(tmp_path: Path) -> None:
    program = tmp_path / "a ) S 1 ("
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([program, "600"])
    try:
        seen = proc.see(process.pid)
        assert seen is not None
        assert (seen.parent, seen.threads) == (os.getpid(), 1)
    finally:
        process.kill()
        process.wait()


def test_the_reaper_ends_what_outlives_a_killed_owner() -> None:
    code = textwrap.dedent(
        """
        import subprocess, sys, time
        from launchers.process import Reaper
        reaper = Reaper()
        sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
        child = subprocess.Popen(sleep, start_new_session=True, env={})
        below = "import subprocess; c = subprocess.Popen(['sleep', '600']); print(c.pid, flush=True); c.wait()"
        other = subprocess.Popen([sys.executable, "-c", below], stdout=subprocess.PIPE, text=True)
        grandchild = other.stdout.readline().strip()
        reaper.watch()
        reaper.watch()
        print(child.pid, other.pid, grandchild, reaper._process.pid, flush=True)
        time.sleep(600)
        """
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pids: list[int] = []
    try:
        assert owner.stdout is not None
        pids = [int(word) for word in owner.stdout.readline().split()]
        assert len(pids) == 4
        assert all(map(proc.is_alive, pids))
        owner.kill()
        # The reaper, the last of them, ends too.
        until(lambda: not any(map(proc.is_alive, pids)))
    finally:
        owner.kill()
        owner.communicate()
        proc.signal_all(pids, signal.SIGKILL)


def test_the_reaper_leaves_time_to_end_and_does_not_touch_what_it_was_not_told(
    spawn: Callable[..., subprocess.Popen[bytes]],
) -> None:
    reaper = Reaper()
    named = spawn(FOLLOWS)
    reaper.watch()
    unnamed = spawn(SLEEP)
    assert named.stdin is not None
    named.stdin.close()
    reaper.close()
    assert named.wait(20) == 0
    assert unnamed.poll() is None


def test_the_reaper_leaves_servers_to_their_guards(owned: OwnedProcess) -> None:
    reaper = Reaper()
    reaper.watch()
    reaper.close()
    assert not owned.ended


def test_the_reaper_does_not_kill_a_later_process_with_the_same_pid(
    spawn: Callable[..., subprocess.Popen[bytes]],
) -> None:
    process = spawn(SLEEP)
    seen = proc.see(process.pid)
    assert seen is not None
    told = f"{process.pid} {seen.began - 1}\n".encode()
    subprocess.run([sys.executable, "-I", guard.__file__, "--reap"], input=told, timeout=60, check=True)
    assert process.poll() is None
