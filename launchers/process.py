"""A server process that is owned: started behind a guard, its log on disk, stopped with proof."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import psutil

from launchers import guard, proc
from launchers.base import StopReport
from launchers.gpus import GpuBaseline
from launchers.ledger import SharedFile, read_ledger, remove_files
from launchers.ports import held_sockets, listeners, port_is_free
from launchers.private import folders_of_other_runs, ledger_of, remove_folder

#: Variables that the owner writes into each server's environment, to know its own again.
START_MARKER, STUDY_MARKER, RUN_MARKER = "ORCHESTRATOR_START", "ORCHESTRATOR_STUDY", "ORCHESTRATOR_RUN"
_KILL = 9


class PortHolder(StrEnum):
    """Who listens on a server's port."""

    NOBODY = "nobody"
    #: A process of the server, and nobody else.
    SERVER = "server"
    OTHER = "another program"


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
        *,
        folder: Path | None = None,
        secrets: Collection[str] = (),
        private: Path | None = None,
        more_ports: Sequence[int] = (),
        uses_gpus: bool = True,
    ) -> None:
        """Start it in `folder`. `grace_s` is what it gets between TERM and KILL.

        `secrets` never reach the log; `private` (a folder of `launchers.private`) goes with the server; `more_ports`
        are to be free again after the stop, like `port`, and so is the GPUs' memory where it `uses_gpus`.
        Raises OSError where the command cannot be run or the log not be written; the private folder is then gone.
        """
        self.log = log
        self.port = port
        self._ports = (port, *more_ports)
        self._grace_s = grace_s
        self._marker = f"{START_MARKER}={start_id}"
        self._private = private
        self._report: StopReport | None = None
        self._stopping = threading.Lock()
        self._messages: dict[str, Any] = {}
        self._changed = threading.Condition()
        self._gpus = GpuBaseline() if uses_gpus else None
        order = guard.Order(
            str(log.absolute()), self._marker, sorted(secrets), str(private.absolute()) if private else None
        )
        try:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", guard.__file__, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                env=dict(env),
                cwd=folder,
            )
        except OSError:
            self._forget()
            raise
        threading.Thread(target=self._listen, name="guard", daemon=True).start()
        self._tell(json.dumps(order._asdict()))
        with self._changed:
            self._changed.wait_for(lambda: {"pid", "failed", "closed"} & self._messages.keys(), timeout=30)
        if "pid" not in self._messages:
            self._guard.kill()
            self._release()
            self._forget()
            raise OSError(str(self._messages.get("failed", "the guard process did not start")))

    def _tell(self, line: str) -> None:
        """Write to the guard; one that was killed does not matter here."""
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError):
            self._guard.stdin.write(f"{line}\n".encode())
            self._guard.stdin.flush()

    def _forget(self) -> None:
        if self._private is not None:
            remove_folder(self._private)

    def _listen(self) -> None:
        assert self._guard.stdout is not None
        for line in self._guard.stdout:
            with self._changed:
                self._messages.update(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._messages["closed"] = True
            self._changed.notify_all()

    def _release(self) -> None:
        """Close the pipe to the guard and collect it."""
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError):
            self._guard.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guard.wait(5)

    @property
    def pid(self) -> int:
        """The server's main process."""
        return int(self._messages["pid"])

    @property
    def guard_pid(self) -> int:
        """The process that guards the server."""
        return int(self._messages["guard"])

    @property
    def exit_code(self) -> int | None:
        """The server's exit code (negative: the signal), None while it runs."""
        code = self._messages.get("exit")
        return None if code is None else int(code)

    @property
    def ended(self) -> bool:
        """Whether the server's main process has ended, or its guard was killed and took it along."""
        return self.exit_code is not None or "closed" in self._messages

    @property
    def stop_asked(self) -> bool:
        """Whether its owner has begun to stop it."""
        return self._report is not None or self._stopping.locked()

    @property
    def log_error(self) -> str | None:
        """Why its log is not whole, None as long as it is."""
        return self._messages.get("log_error")

    def wait_end(self, timeout_s: float) -> bool:
        """Wait until the main process has ended; False when it has not after `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: self.ended, timeout=timeout_s)

    def tail(self, size: int = 4000) -> str:
        """The last of what it printed, in bytes at most."""
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - size))
            return file.read(size).decode(errors="replace")
        return ""

    def members(self) -> set[int]:
        """Living processes of the server."""
        alive = "closed" not in self._messages
        return proc.members(self.pid, self._messages["began"], self._marker.encode(), self.guard_pid if alive else None)

    def port_holder(self) -> PortHolder:
        """Who would answer a request to the port: with SO_REUSEPORT it may be several, one of them foreign."""
        listening = listeners(self.port)
        if not listening:
            return PortHolder.NOBODY
        return PortHolder.SERVER if listening <= held_sockets(self.members()) else PortHolder.OTHER

    def stop(self, grace_s: float | None = None) -> StopReport:
        """Stop every member and prove it. A second call returns the first report."""
        with self._stopping:
            if self._report is None:
                self._report = self._stop(self._grace_s if grace_s is None else grace_s)
            return self._report

    def _stop(self, grace_s: float) -> StopReport:
        self._tell(f"stop {grace_s}")
        with self._changed:
            self._changed.wait_for(
                lambda: {"stopped", "closed"} & self._messages.keys(),
                timeout=grace_s + guard.KILL_WAIT_S + 10,
            )
        self._release()
        told = self._messages.get("stopped") or self._kill()
        return StopReport(
            exit_code=told["exit_code"],
            took_s=told["took_s"],
            signals=tuple(told["signals"]),
            survivors=tuple(told["survivors"]),
            ports_held=tuple(port for port in self._ports if not port_is_free(port)),
            shm_removed=tuple(told["shm_removed"]),
            shm_left=tuple(told["shm_left"]),
            gpu_memory_left_mib=None if self._gpus is None else self._gpus.wait_left_mib(),
        )

    def _kill(self) -> dict[str, Any]:
        """Finish the work of a guard that was killed."""
        began = time.monotonic()
        signals = []
        noted, files = self._noted()
        while left := self.members() | proc.still_living(noted):
            signals = ["SIGKILL"]
            proc.signal_all(left, _KILL)
            if time.monotonic() > began + guard.KILL_WAIT_S:
                break
            time.sleep(0.02)
        took_s = time.monotonic() - began
        removed, shm_left = remove_files(files)
        if self._private is not None:
            remove_folder(self._private, keep_ledger=bool(left or shm_left))
        return {
            "exit_code": self.exit_code,
            "took_s": took_s,
            "signals": signals,
            "survivors": sorted(left),
            "shm_removed": sorted(removed),
            "shm_left": sorted(shm_left),
        }

    def _noted(self) -> tuple[dict[int, int], set[SharedFile]]:
        """What the guard has written down."""
        return ({}, set()) if self._private is None else read_ledger(ledger_of(self._private))


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
        self._named: set[tuple[int, int]] = set()

    def watch(self) -> None:
        """Take in the descendants that there are now."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, psutil.Error):
            for pid in _descendants(psutil.Process()):
                seen = proc.see(pid)
                if seen is not None and seen.alive and (pid, seen.began) not in self._named:
                    self._named.add((pid, seen.began))
                    self._process.stdin.write(f"{pid} {seen.began}\n".encode())
            self._process.stdin.flush()

    def close(self) -> None:
        """What was watched ends now; returns when it has."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()


def _descendants(process: psutil.Process) -> set[int]:
    found = set()
    for child in process.children():
        with contextlib.suppress(psutil.Error):
            if guard.__file__ not in child.cmdline():
                found |= {child.pid, *_descendants(child)}
    return found


def stop_leftovers(study_marker: str, run_marker: str, timeout_s: float = 10.0) -> list[int]:
    """Kill what earlier runs of this study left on this host, and remove its files; the pids killed.

    Only processes that carry the study's marker and another run's, what is in a session that one of them leads,
    and what a guard of such a run has noted. Raises RuntimeError when one survives or its shared memory cannot
    be removed.
    """
    study, run = f"{STUDY_MARKER}={study_marker}".encode(), f"{RUN_MARKER}={run_marker}".encode()
    folders = folders_of_other_runs(study_marker, run_marker)
    killed: set[int] = set()
    end = time.monotonic() + timeout_s
    while True:
        seen = proc.see_all()
        marked = {
            pid for pid in seen if proc.has_marker(pid, study) and not proc.has_marker(pid, run) and seen[pid].alive
        }
        left = marked | {p.pid for p in seen.values() if p.session in marked and p.alive}
        for folder in folders:
            left |= proc.still_living(read_ledger(ledger_of(folder))[0])
        if not left:
            break
        if time.monotonic() > end:
            raise RuntimeError(f"processes of an earlier run do not die: {sorted(left)}; stop them by hand")
        proc.signal_all(left, _KILL)
        killed |= left
        time.sleep(0.02)
    for folder in folders:
        _, shm_left = remove_files(read_ledger(ledger_of(folder))[1])
        if shm_left:
            raise RuntimeError(
                f"shared memory of an earlier run is still in use: {sorted(shm_left)} in /dev/shm; stop the "
                "processes that hold it, or remove the files"
            )
        remove_folder(folder)
    return sorted(killed)
