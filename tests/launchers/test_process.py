"""A server process is owned: whoever dies, nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from owned_server import gone, start_owned, until

from launchers import proc
from launchers.process import RUN_MARKER, STUDY_MARKER, OwnedProcess, PortHolder, stop_leftovers

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
#: Its grandchild has no parent left, a session and a group of its own, and no environment to know it by.
ESCAPING = textwrap.dedent(
    """
    import os, subprocess, sys, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], {})
        os._exit(0)
    os.wait()
    time.sleep(600)
    """
)
POLITE = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0)); print('up', flush=True); time.sleep(600)"
LISTENING = textwrap.dedent(
    """
    import socket, sys, time
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(("127.0.0.1", int(sys.argv[1])))
    s.listen()
    print("up", flush=True)
    time.sleep(600)
    """
)
#: No other run of these tests has it.
PORT = 10_000 + os.getpid() % 2500 * 4
STUDY = f"study-{os.getpid()}"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., OwnedProcess]]:
    with start_owned(tmp_path, PORT) as run:
        yield run


def pids_of(process: OwnedProcess) -> list[int]:
    def told() -> str | None:
        # The whole line: a log may end within it.
        lines = process.tail().splitlines(keepends=True)
        return next((x for x in lines if x.startswith("pids ") and x.endswith("\n")), None)

    line = until(told)
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
    # Not even a zombie: the guard collects what its server leaves to it.
    assert not any(map(proc.see, pids))


def test_p20_a_program_that_only_has_the_title_of_a_scheduler_is_not_touched(
    start: Callable[..., OwnedProcess],
) -> None:
    title = "sglang::scheduler_TP0"
    foreign = subprocess.Popen([title, "-c", "import time; time.sleep(600)"], executable=sys.executable)
    try:
        process = start(STUBBORN)
        pids_of(process)
        assert process.stop(grace_s=0.0).proven
        stop_leftovers(STUDY, "run-2")
        assert foreign.poll() is None
    finally:
        foreign.kill()
        foreign.wait()


def test_an_orphan_without_session_group_or_environment_of_its_server_is_found(
    start: Callable[..., OwnedProcess],
) -> None:
    process = start(ESCAPING)

    def orphans() -> list[proc.Seen]:
        seen = proc.see_all().values()
        return [p for p in seen if p.parent == process.guard_pid and p.pid != process.pid and p.alive]

    until(orphans)
    orphan = orphans()[0]
    assert process.pid not in (orphan.session, orphan.group)
    assert process.stop(grace_s=0.0).proven
    assert gone(orphan.pid)


def test_a_stopped_server_is_stopped_too(start: Callable[..., OwnedProcess]) -> None:
    process = start(POLITE)
    until(lambda: "up" in process.tail())
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: (seen := proc.see(process.pid)) and seen.state == "T")
    report = process.stop(grace_s=20.0)
    assert report.proven
    assert report.exit_code == 0


def test_the_exit_code_of_a_server_that_ends_by_itself_is_known(start: Callable[..., OwnedProcess]) -> None:
    process = start("import os; print('bye', flush=True); os._exit(7)")
    assert process.wait_end(20)
    assert process.exit_code == 7
    assert "bye" in process.tail()
    report = process.stop()
    assert report.proven
    assert (report.exit_code, report.signals) == (7, ())


def test_children_of_a_crashed_server_are_not_left(start: Callable[..., OwnedProcess]) -> None:
    process = start(STUBBORN.replace("time.sleep(600)\n", "os.kill(os.getpid(), 9)\n"))
    pids = pids_of(process)
    assert process.wait_end(20)
    assert process.exit_code == -signal.SIGKILL
    report = process.stop()
    assert report.proven
    assert report.signals == ("SIGKILL",)
    assert all(map(gone, pids))


def test_when_the_guard_was_killed_the_owner_finishes_its_work(start: Callable[..., OwnedProcess]) -> None:
    process = start(STUBBORN)
    pids = pids_of(process)
    os.kill(process.guard_pid, signal.SIGKILL)
    assert process.wait_end(20)
    report = process.stop()
    assert report.proven
    assert all(map(gone, pids))


def run_owner(folder: Path, code: str, more: str = "") -> subprocess.Popen[str]:
    """Another process that owns a server and sleeps; its first line of output is the guard's pid."""
    owner = textwrap.dedent(
        f"""
        import os, pathlib, sys, time
        from launchers.process import OwnedProcess
        log = pathlib.Path({str(folder / "server.log")!r})
        command, name = [sys.executable, "-c", {code!r}], "{os.getpid()}-{folder.name}"
        p = OwnedProcess(command, dict(os.environ), log, name, {PORT}, 60.0)
        """
    )
    end = "\nprint(p.guard_pid, flush=True)\ntime.sleep(600)\n"
    return subprocess.Popen(
        [sys.executable, "-c", owner + textwrap.dedent(more) + end], stdout=subprocess.PIPE, text=True
    )


def server_pids(folder: Path) -> list[int]:
    log = folder / "server.log"
    line = until(lambda: log.exists() and next((x for x in log.read_text().splitlines() if "pids" in x), None))
    return [int(word) for word in str(line).split()[1:]]


@pytest.mark.parametrize("victim", ["owner", "guard"])
def test_killing_the_owner_or_the_guard_takes_the_server_along(victim: str, tmp_path: Path) -> None:
    owner = run_owner(tmp_path, STUBBORN)
    pids: list[int] = []
    try:
        assert owner.stdout is not None
        guard_pid = int(owner.stdout.readline())
        pids = server_pids(tmp_path)
        os.kill(owner.pid if victim == "owner" else guard_pid, signal.SIGKILL)
        # The guard finds all of them; without it the kernel's parent-death signal takes the server itself.
        wanted = pids if victim == "owner" else pids[:1]
        until(lambda: all(map(gone, wanted)), 10.0)
    finally:
        owner.kill()
        owner.wait()
        proc.signal_all(pids, signal.SIGKILL)


def test_an_owner_that_is_killed_while_it_waits_for_a_stop_is_not_waited_for(tmp_path: Path) -> None:
    told = "signal.signal(signal.SIGTERM, lambda *_: print('told', flush=True))"
    server = STUBBORN.replace("signal.signal(signal.SIGTERM, signal.SIG_IGN)", told)
    server = server.replace("\ntime.sleep(600)\n", "\nwhile True: time.sleep(600)\n")
    stop = """
        while "pids" not in p.tail():
            time.sleep(0.01)
        p.stop()
    """
    owner = run_owner(tmp_path, server, stop)
    pids: list[int] = []
    try:
        pids = server_pids(tmp_path)
        until(lambda: "told" in (tmp_path / "server.log").read_text())
        owner.kill()
        # The grace that was asked for is 60 s.
        until(lambda: all(map(gone, pids)), 10.0)
    finally:
        owner.kill()
        owner.wait()
        proc.signal_all(pids, signal.SIGKILL)


def test_a_child_that_the_owner_forked_does_not_keep_the_server(tmp_path: Path) -> None:
    fork = """
        child = os.fork()
        if child == 0:
            time.sleep(600)
        print(child, flush=True)
    """
    owner = run_owner(tmp_path, STUBBORN, fork)
    pids: list[int] = []
    child = 0
    try:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        pids = server_pids(tmp_path)
        owner.kill()
        until(lambda: all(map(gone, pids)), 10.0)
        # It still holds the pipe to the guard.
        assert not gone(child)
    finally:
        owner.kill()
        owner.wait()
        proc.signal_all([*pids, *([child] if child else [])], signal.SIGKILL)


def test_leftovers_of_another_run_are_stopped_and_nobody_else(start: Callable[..., OwnedProcess]) -> None:
    old = start(POLITE, **{STUDY_MARKER: STUDY, RUN_MARKER: "run-1"})
    current = start(POLITE, **{STUDY_MARKER: STUDY, RUN_MARKER: "run-2"})
    foreign = start(POLITE, **{STUDY_MARKER: f"{STUDY}-other", RUN_MARKER: "run-1"})
    for process in (old, current, foreign):
        until(lambda process=process: "up" in process.tail())
    assert old.pid in stop_leftovers(STUDY, "run-2")
    assert gone(old.pid)
    assert psutil.pid_exists(current.pid)
    assert not current.ended
    assert not foreign.ended


def test_leftovers_that_lost_their_environment_are_found_by_their_session(
    start: Callable[..., OwnedProcess],
) -> None:
    code = """if True:
        import os, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={})
        print("pids", child.pid, flush=True)
        time.sleep(600)
    """
    old = start(code, **{STUDY_MARKER: STUDY, RUN_MARKER: "run-1"})
    (child,) = pids_of(old)
    assert child in stop_leftovers(STUDY, "run-2")
    assert gone(child)


def test_a_command_that_cannot_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no/such/program"):
        OwnedProcess(["/no/such/program"], dict(os.environ), tmp_path / "x.log", "x", PORT, 1.0)


def test_a_log_that_cannot_be_opened_is_said(tmp_path: Path) -> None:
    log = tmp_path / "no" / "folder" / "x.log"
    with pytest.raises(OSError, match="no/folder"):
        OwnedProcess([sys.executable, "-c", POLITE], dict(os.environ), log, "x", PORT, 1.0)


def test_a_full_disk_under_the_log_does_not_hold_up_the_server(
    start: Callable[..., OwnedProcess], tmp_path: Path
) -> None:
    log = tmp_path / "full.log"
    # Every write to it fails with "No space left on device".
    log.symlink_to("/dev/full")
    # More than fits into the pipe, so that somebody must go on reading it.
    process = start("for _ in range(400): print('x' * 10_000, flush=True)", log=log)
    assert process.wait_end(20)
    assert process.exit_code == 0
    assert process.log_error is not None
    assert "No space left" in process.log_error
    assert process.stop().proven


def test_whose_process_listens_on_the_port_is_known(start: Callable[..., OwnedProcess]) -> None:
    port = PORT + 1
    idle = start(POLITE, port=port)
    ours = start(LISTENING, str(port), port=port)
    until(lambda: "up" in ours.tail())
    assert ours.port_holder() is PortHolder.SERVER
    # For the other server this one is foreign.
    assert idle.port_holder() is PortHolder.OTHER
    also = start(LISTENING, str(port), port=port)
    until(lambda: "up" in also.tail())
    # Both listen, so a request may reach either.
    assert ours.port_holder() is PortHolder.OTHER
    also.stop(grace_s=0.0)
    ours.stop(grace_s=0.0)
    assert idle.port_holder() is PortHolder.NOBODY


def test_a_child_that_listens_is_the_server_too(start: Callable[..., OwnedProcess]) -> None:
    port = PORT + 2
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {LISTENING!r}, '{port}'])"
    process = start(code, port=port)
    until(lambda: "up" in process.tail())
    assert process.port_holder() is PortHolder.SERVER
