"""However a Ray actor ends, the server that it owned ends too, with its shared memory and its private folder."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from launchers import proc
from launchers.ledger import SHARED_MEMORY
from launchers.private import ledger_of, make_folder, remove_folder
from orchestrator.cluster import cluster

#: Its child leaves its session and its environment, and nobody but the guard finds it.
SERVER = textwrap.dedent(
    """
    import subprocess, sys, time
    from multiprocessing import shared_memory
    memory = shared_memory.SharedMemory(create=True, size=4096)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True, env={})
    print(memory.name, child.pid, flush=True)
    time.sleep(600)
    """
)


@ray.remote(num_cpus=0)
class Owner:
    """Owns a server, as the node's actor does."""

    def start(self, folder: str, private: str, start_id: str) -> tuple[int, int]:
        from launchers.process import OwnedProcess

        log = Path(folder, f"{start_id}.log")
        command = [sys.executable, "-c", SERVER]
        self.process = OwnedProcess(command, dict(os.environ), log, start_id, 20_990, 60.0, private=Path(private))
        return os.getpid(), self.process.pid


@pytest.fixture(scope="module", autouse=True)
def local_cluster() -> Iterator[None]:
    with cluster(None, "actors", 1):
        yield


def until(condition: Callable[[], Any], deadline_s: float) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.05)


@pytest.mark.parametrize("how", ["ray.kill", "KILL of the worker", "dropping the handle"])
def test_p24_a_server_does_not_outlive_its_actor(tmp_path: Path, how: str) -> None:
    start_id = f"p24-{os.getpid()}-{how.split()[0]}"
    private = make_folder("p24", "run-1", start_id)
    owner = Owner.remote()
    pids: list[int] = []
    memory: Path | None = None
    try:
        worker, server = ray.get(owner.start.remote(str(tmp_path), str(private), start_id))
        ledger = ledger_of(private)
        until(lambda: ledger.exists() and "memory" in ledger.read_text(), 30.0)
        log = tmp_path / f"{start_id}.log"
        until(lambda: len(log.read_text().split()) == 2, 30.0)
        name, child = log.read_text().split()
        memory, pids = SHARED_MEMORY / name, [server, int(child)]
        assert all(map(proc.is_alive, pids))
        assert memory.exists()
        if how == "ray.kill":
            ray.kill(owner)
        elif how == "dropping the handle":
            del owner
        else:
            os.kill(worker, signal.SIGKILL)
        until(lambda: not any(map(proc.is_alive, pids)), 10.0)
        until(lambda: not private.exists(), 10.0)
        assert not memory.exists()
    finally:
        with contextlib.suppress(UnboundLocalError):
            ray.kill(owner)
        proc.signal_all(pids, signal.SIGKILL)
        remove_folder(private)
        if memory is not None:
            memory.unlink(missing_ok=True)
