"""A server process that is owned: started behind a guard, its log on disk, stopped with proof."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from launchers import guard
from launchers.base import StopReport

#: Variables that the owner writes into each server's environment, to know its own again.
START_MARKER, STUDY_MARKER, RUN_MARKER = "ORCHESTRATOR_START", "ORCHESTRATOR_STUDY", "ORCHESTRATOR_RUN"
#: What the owner's own environment must not pass on: Ray's settings are not the server's.
_PRIVATE = ("RAY_", "ORCHESTRATOR_")


def clean_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The inherited environment without what belongs to Ray and to the orchestrator."""
    return {name: value for name, value in inherited.items() if not name.startswith(_PRIVATE)}


class OwnedProcess:
    """A running command in a session of its own, behind its guard."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        start_id: str,
        port: int,
        grace_s: float,
    ) -> None:
        """Start it. `grace_s` is what it gets between TERM and KILL. Raises OSError where it cannot be run."""
        self.log = log
        self.port = port
        self._grace_s = grace_s
        self._marker = f"{START_MARKER}={start_id}"
        self._report: StopReport | None = None
        self._messages: dict[str, object] = {}
        self._changed = threading.Condition()
        self._guard = subprocess.Popen(
            [sys.executable, "-I", guard.__file__, str(log), self._marker, "--", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=dict(env),
        )
        threading.Thread(target=self._listen, name="guard", daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: {"pid", "failed", "closed"} & self._messages.keys(), timeout=30)
        if "pid" not in self._messages:
            self._guard.kill()
            raise OSError(str(self._messages.get("failed", "the guard process did not start")))

    def _listen(self) -> None:
        assert self._guard.stdout is not None
        for line in self._guard.stdout:
            with self._changed:
                self._messages.update(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._messages["closed"] = True
            self._changed.notify_all()

    @property
    def pid(self) -> int:
        """The server's main process."""
        return int(str(self._messages["pid"]))

    @property
    def exit_code(self) -> int | None:
        """The server's exit code (negative: the signal), None while it runs."""
        code = self._messages.get("exit")
        return None if code is None else int(str(code))

    @property
    def ended(self) -> bool:
        """Whether the server's main process has ended, or its guard was killed and took it along."""
        return self.exit_code is not None or "closed" in self._messages

    def wait_end(self, timeout_s: float) -> bool:
        """Wait until the main process has ended; False when it has not after `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: self.ended, timeout=timeout_s)

    def tail(self, size: int = 4000) -> str:
        """The last of what it printed."""
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - size))
            return file.read().decode(errors="replace")
        return ""

    def stop(self, grace_s: float | None = None) -> StopReport:
        """Stop every member and prove it. A second call returns the first report."""
        if self._report is None:
            self._report = self._stop(self._grace_s if grace_s is None else grace_s)
        return self._report

    def _stop(self, grace_s: float) -> StopReport:
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError):
            self._guard.stdin.write(f"stop {grace_s}\n".encode())
            self._guard.stdin.flush()
        with self._changed:
            self._changed.wait_for(
                lambda: {"stopped", "closed"} & self._messages.keys(),
                timeout=grace_s + guard.KILL_WAIT_S + 10,
            )
        with contextlib.suppress(OSError):
            self._guard.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guard.wait(5)
        told: Any = self._messages.get("stopped")
        if not isinstance(told, dict):  # the guard was killed: finish its work
            left = guard.members(self.pid, self._marker.encode())
            guard.signal_all(left, 9)
            _, alive = psutil.wait_procs(_processes(left), timeout=guard.KILL_WAIT_S)
            told = {
                "exit_code": None,
                "took_s": 0.0,
                "signals": ["SIGKILL"],
                "survivors": [p.pid for p in alive],
            }
        return StopReport(
            exit_code=told["exit_code"],
            took_s=told["took_s"],
            signals=tuple(told["signals"]),
            survivors=tuple(told["survivors"]),
            port_free=port_is_free(self.port),
        )


class Reaper:
    """Sees to it that this process's children do not outlive it, however it ends.

    Servers are left out: each has a guard of its own, which needs its time. A marker in the environment would
    not do here: Ray's agents write their titles over it (seen in Ray 2.60).
    """

    def __init__(self) -> None:
        """Watches nothing yet."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", guard.__file__, "--reap"], stdin=subprocess.PIPE, start_new_session=True
        )
        self._named: set[int] = {self._process.pid}

    def watch(self) -> None:
        """Take in the descendants that there are now."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, psutil.Error):
            for pid in _descendants(psutil.Process()) - self._named:
                began = guard.start_time(pid)
                if began is not None:
                    self._named.add(pid)
                    self._process.stdin.write(f"{pid} {began}\n".encode())
            self._process.stdin.flush()

    def close(self) -> None:
        """What was watched ends now; returns when it has."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _descendants(process: psutil.Process) -> set[int]:
    found = set()
    for child in process.children():
        with contextlib.suppress(psutil.Error):
            if guard.__file__ not in child.cmdline():
                found |= {child.pid, *_descendants(child)}
    return found


def port_is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server can bind the port now (connections that linger do not count)."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


class Ports:
    """Free ports below the ephemeral range, a new one each time.

    SGLang after a KILL can look healthy on the old port and then hang, and with attention DP it takes
    port+233 to port+239 as well: hence a step of 300.
    """

    def __init__(self, first: int = 21_000, last: int = 31_800, step: int = 300) -> None:
        self._ports = range(first, last, step)
        # Two owners on one host begin at different places.
        self._next = os.getpid() % len(self._ports)

    def take(self) -> int:
        """The next free port. Raises OSError when none is."""
        for _ in self._ports:
            port = self._ports[self._next] + os.getpid() // len(self._ports) % 200
            self._next = (self._next + 1) % len(self._ports)
            if port_is_free(port):
                return port
        raise OSError("no free port between 21000 and 32000: stop what holds them")


def stop_leftovers(study_marker: str, run_marker: str, timeout_s: float = 10.0) -> list[int]:
    """Kill what earlier runs of this study left on this host; the pids killed.

    Only processes that carry the study's marker and another run's. Raises RuntimeError when one survives.
    """
    study, run = f"{STUDY_MARKER}={study_marker}".encode(), f"{RUN_MARKER}={run_marker}".encode()
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            if study in variables and run not in variables:
                found.add(process.pid)
    processes = _processes(found)
    guard.signal_all(found, 9)
    _, alive = psutil.wait_procs(processes, timeout=timeout_s)
    alive = [p for p in alive if guard.state_of(p.pid) not in (None, "Z", "X")]
    if alive:
        raise RuntimeError(
            f"processes of an earlier run do not die: {[p.pid for p in alive]}; stop them by hand"
        )
    return sorted(found)


def _processes(pids: set[int]) -> list[psutil.Process]:
    processes = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            processes.append(psutil.Process(pid))
    return processes
