"""What outlives a process goes with the server as well: shared memory, its private folder; and no secret stays."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from multiprocessing import shared_memory
from pathlib import Path

import pytest
from owned_server import gone, start_owned, until

from launchers import gpus, proc
from launchers.ledger import SHARED_MEMORY
from launchers.private import ledger_of, make_folder
from launchers.process import RUN_MARKER, STUDY_MARKER, OwnedProcess, stop_leftovers

#: No other run of these tests has it.
PORT = 10_001 + os.getpid() % 2500 * 4
STUDY = f"files{os.getpid()}"
#: A server with shared memory that only it knows, and a child that has left its session and its environment.
#: It tells them in its log, or else in the file that is its argument.
SHARING = textwrap.dedent(
    """
    import os, subprocess, sys, time
    from multiprocessing import resource_tracker, shared_memory
    memory = shared_memory.SharedMemory(create=True, size=4096)
    # Python's own process for that would now and then be quicker to remove it than it is killed.
    resource_tracker.unregister(memory._name, "shared_memory")
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True, env={})
    named = f"sgl_shm_test_{child.pid}_0a1b2c3d"
    open(f"/dev/shm/{named}", "w").close()
    out = open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout
    print("left", memory.name, named, os.getpid(), child.pid, file=out, flush=True)
    time.sleep(600)
    """
)

pytestmark = pytest.mark.skipif(not os.access(SHARED_MEMORY, os.W_OK), reason="/dev/shm cannot be written here")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., OwnedProcess]]:
    with start_owned(tmp_path, PORT) as run:
        yield run


@pytest.fixture
def private() -> Iterator[Path]:
    folder = make_folder(STUDY, "run-1", "start")
    yield folder
    if folder.exists():
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


def left_by(log: Path) -> tuple[list[Path], list[int]]:
    """Files and pids that SHARING tells."""

    def whole_line() -> str | None:
        lines = log.read_text().splitlines(keepends=True) if log.exists() else []
        return next((line for line in lines if line.startswith("left") and line.endswith("\n")), None)

    words = until(whole_line).split()
    return [SHARED_MEMORY / name for name in words[1:3]], [int(word) for word in words[3:]]


def noted(folder: Path, pids: list[int], files: list[Path]) -> None:
    """Wait until the guard has written them down."""
    wanted = [f"process {pid} " for pid in pids] + [f" {file.name}\n" for file in files]
    ledger = ledger_of(folder)
    until(lambda: ledger.exists() and all(text in ledger.read_text() for text in wanted))


def test_shared_memory_of_a_killed_server_is_removed_and_named(start: Callable[..., OwnedProcess]) -> None:
    process = start(SHARING)
    files, _ = left_by(process.log)
    assert all(file.exists() for file in files)
    report = process.stop(grace_s=0.0)
    assert report.shm_removed == tuple(sorted(file.name for file in files))
    assert (report.shm_left, report.proven) == ((), True)
    assert not any(file.exists() for file in files)


def test_shared_memory_of_a_server_that_crashed_without_a_word_is_removed(
    start: Callable[..., OwnedProcess], private: Path, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    process = start(SHARING, str(told), options={"private": private})
    files, pids = left_by(told)
    noted(private, pids, files)
    # Nothing holds the memory any more when the stop begins.
    os.kill(pids[0], signal.SIGKILL)
    assert process.wait_end(20)
    assert process.tail() == ""
    assert process.stop().proven
    assert all(map(gone, pids))
    assert not any(file.exists() for file in files)


def test_a_semaphore_of_a_killed_server_is_removed(start: Callable[..., OwnedProcess]) -> None:
    # Its name in the process's maps is not the one that it has in the folder.
    code = """if True:
        import multiprocessing, os, signal, time
        from multiprocessing import resource_tracker
        lock = multiprocessing.get_context("spawn").Lock()
        # It would remove the semaphore itself, were it quicker than the stop.
        os.kill(resource_tracker._resource_tracker._pid, signal.SIGKILL)
        print("up", lock._semlock.name, flush=True)
        time.sleep(600)
    """
    process = start(code)
    words = until(lambda: process.tail().split() if process.tail().endswith("\n") else None)
    file = SHARED_MEMORY / f"sem.{words[1].lstrip('/')}"
    assert file.exists()
    assert process.stop(grace_s=0.0).shm_removed == (file.name,)
    assert not file.exists()


def test_shared_memory_of_another_program_is_not_touched(start: Callable[..., OwnedProcess]) -> None:
    process = start(SHARING)
    left_by(process.log)
    # Made during the start, by the same user, with the same kind of name, and open nowhere.
    other = shared_memory.SharedMemory(create=True, size=4096)
    other.close()
    try:
        assert process.stop(grace_s=0.0).proven
        assert (SHARED_MEMORY / other.name).exists()
    finally:
        other.unlink()


def test_shared_memory_that_another_program_uses_is_left_to_it_and_told(start: Callable[..., OwnedProcess]) -> None:
    process = start(SHARING)
    files, _ = left_by(process.log)
    with files[0].open("rb"):
        report = process.stop(grace_s=0.0)
        assert report.shm_left == (files[0].name,)
        assert not report.proven
        assert files[0].name in report.left
    files[0].unlink()


def test_the_private_folder_goes_with_the_server(start: Callable[..., OwnedProcess], private: Path) -> None:
    (private / "key").write_text("secret")
    process = start(SHARING, options={"private": private})
    left_by(process.log)
    assert private.exists()
    process.stop(grace_s=0.0)
    assert not private.exists()


def test_a_command_that_cannot_run_leaves_no_private_folder(tmp_path: Path, private: Path) -> None:
    with pytest.raises(OSError, match="no/such/program"):
        OwnedProcess(["/no/such/program"], dict(os.environ), tmp_path / "x.log", "x", PORT, 1.0, private=private)
    assert not private.exists()


def test_a_folder_that_is_not_there_is_said(tmp_path: Path, private: Path) -> None:
    folder = tmp_path / "absent"
    with pytest.raises(OSError, match="absent"):
        OwnedProcess(["true"], dict(os.environ), tmp_path / "x.log", "x", PORT, 1.0, folder=folder, private=private)
    assert not private.exists()


def test_a_server_runs_in_the_folder_that_is_asked_for(start: Callable[..., OwnedProcess], tmp_path: Path) -> None:
    process = start("import os; print('in', os.getcwd())", options={"folder": tmp_path})
    assert process.wait_end(20)
    assert process.tail().split() == ["in", str(tmp_path)]


@pytest.mark.parametrize("victims", [("owner",), ("guard",), ("owner", "guard"), ("guard", "owner")])
def test_p24_whoever_is_killed_nothing_is_left_when_the_next_run_starts(
    tmp_path: Path, private: Path, victims: tuple[str, ...]
) -> None:
    (private / "key").write_text("secret")
    code = f"""if True:
        import os, pathlib, sys, time
        from launchers.process import OwnedProcess
        env = {{**os.environ, {STUDY_MARKER!r}: {STUDY!r}, {RUN_MARKER!r}: "run-1"}}
        log = pathlib.Path({str(tmp_path / "server.log")!r})
        private = pathlib.Path({str(private)!r})
        command = [sys.executable, "-c", {SHARING!r}]
        process = OwnedProcess(command, env, log, private.name, {PORT}, 60.0, private=private)
        print(process.guard_pid, flush=True)
        process.wait_end(600)
        process.stop()
        time.sleep(600)
    """
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pids: list[int] = []
    files: list[Path] = []
    try:
        assert owner.stdout is not None
        guard_pid = int(owner.stdout.readline())
        files, pids = left_by(tmp_path / "server.log")
        noted(private, pids, files)
        for victim in victims:
            os.kill(owner.pid if victim == "owner" else guard_pid, signal.SIGKILL)
        if len(victims) == 1:
            # Who was not killed finishes the work, without a next run.
            until(lambda: all(map(gone, pids)) and not private.exists(), 10.0)
        else:
            until(lambda: gone(pids[0]), 10.0)
        stop_leftovers(STUDY, "run-2")
        assert all(map(gone, pids))
        assert not any(file.exists() for file in files)
        assert not private.exists()
    finally:
        owner.kill()
        owner.wait()
        proc.signal_all(pids, signal.SIGKILL)
        for file in files:
            file.unlink(missing_ok=True)


def test_p24_the_next_run_does_not_start_while_shared_memory_is_in_use(
    start: Callable[..., OwnedProcess], private: Path
) -> None:
    memory = shared_memory.SharedMemory(create=True, size=4096)
    try:
        inode = (SHARED_MEMORY / memory.name).stat().st_ino
        ledger_of(private).write_text(f"memory {inode} {memory.name}\n")
        with pytest.raises(RuntimeError, match=memory.name):
            stop_leftovers(STUDY, "run-2")
        # A run of its own study is none of its business.
        assert stop_leftovers(STUDY, "run-1") == []
        memory.close()
        stop_leftovers(STUDY, "run-2")
        assert not (SHARED_MEMORY / memory.name).exists()
    finally:
        memory.close()
        (SHARED_MEMORY / memory.name).unlink(missing_ok=True)


def test_a_port_that_is_held_after_the_stop_is_told(start: Callable[..., OwnedProcess]) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        process = start("print('up')", options={"more_ports": (port,)})
        report = process.stop()
    assert report.ports_held == (port,)
    assert not report.proven
    assert report.left == f"ports {port} are still held"


def test_gpu_memory_that_is_not_given_back_is_told(
    start: Callable[..., OwnedProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "_POLL_S", 0.01)
    monkeypatch.setattr(gpus, "RELEASE_TIMEOUT_S", 0.05)
    pid_file, asked = tmp_path / "pid", tmp_path / "asked"
    tool = tmp_path / "nvidia-smi"
    # From the second look on, 5000 MiB more are used: by the server, says the driver, and it has died.
    tool.write_text(
        f"""#!/bin/sh
        if [ "$1" = --query-compute-apps=gpu_uuid,pid,used_memory ]; then
            [ -e {asked} ] && echo "GPU-1, $(cat {pid_file}), 5000"
            touch {asked}
        else
            used=3; [ -e {asked} ] && used=5003; echo "0, GPU-1, card, $used, 97887"
        fi"""
    )
    tool.chmod(0o755)
    monkeypatch.setattr(gpus.shutil, "which", lambda name: str(tool))
    tells = f"print(open({str(pid_file)!r}, 'w').write(str(os.getpid())), flush=True)"
    process = start(f"import os, time; {tells}; time.sleep(600)")
    until(asked.exists)
    until(process.tail)
    report = process.stop(grace_s=0.0)
    assert report.gpu_memory_left_mib == 5000
    assert not report.proven
    assert report.as_dict()["proven"] is False
    assert start("print()", options={"uses_gpus": False}).stop().gpu_memory_left_mib is None


SECRET = "sk-4242424242424242"
#: Prints the secret whole, in two writes, and at the very end without a line's end.
TELLING = textwrap.dedent(
    """
    import os, sys, time
    key = os.environ["THE_KEY"]
    os.write(1, f"api_key={key!r} and\\rprogress {key}".encode())
    os.write(1, key[:9].encode())
    time.sleep(0.05)
    os.write(1, key[9:].encode() + b"\\n")
    os.write(2, b"last words: " + key.encode())
    """
)


def test_a_secret_that_a_server_prints_never_reaches_its_log(start: Callable[..., OwnedProcess]) -> None:
    process = start(TELLING, options={"secrets": {SECRET}}, THE_KEY=SECRET)
    command = Path(f"/proc/{process.guard_pid}/cmdline").read_bytes()
    assert process.wait_end(20)
    text = process.log.read_text()
    assert SECRET.encode() not in command
    assert text.count("<redacted>") == 4
    assert SECRET[:9] not in text
    assert "progress" in text


def test_the_log_is_whole_when_the_end_is_known(start: Callable[..., OwnedProcess]) -> None:
    # A child that holds the log open must not keep the last words from it.
    code = """if True:
        import os, subprocess, sys, time
        subprocess.Popen(["sleep", "600"])
        os.write(1, b"x" * 300_000)
        time.sleep(float(sys.argv[1]))
        os.write(1, b"the reason")
        os._exit(3)
    """
    # The guard is busy with the first words for some milliseconds.
    for pause_s in (0.0, 0.001, 0.002, 0.004, 0.008, 0.016):
        process = start(code, str(pause_s))
        assert process.wait_end(20)
        assert process.tail(10) == "the reason"
        assert process.exit_code == 3
        assert process.stop(grace_s=0.0).proven
