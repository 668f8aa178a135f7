"""Killing a sweep, or a part of it, and what to look for afterwards: the kill matrices' common part.

A cell runs a sweep in a process of its own, kills somebody in some phase, runs the same command again where the
sweep did not finish by itself, and says what is wrong: what got lost, what was done twice, what is left.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import optuna
import psutil
from optuna.trial import TrialState

from launchers import guard
from launchers.ports import port_is_free
from orchestrator.analysis.rows import Row
from orchestrator.offered_load import Load
from orchestrator.results.store import ResultStore

_SHARED_MEMORY = Path("/dev/shm")
#: Every process of a sweep that was killed has ended after this.
GONE_S = 60.0
STUDY = "kill"


@dataclasses.dataclass(frozen=True)
class Cell:
    """What one kill and the run after it left."""

    name: str
    #: Levels that were on disk when the sweep was dead, and so had to stay as they were.
    kept: int
    problems: tuple[str, ...]
    took_s: float


def until(condition: Callable[[], object], what: str, deadline_s: float, poll_s: float = 0.1) -> None:
    """Wait for a condition; raises TimeoutError naming it."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {deadline_s:.0f} s")
        time.sleep(poll_s)


def alive(process: psutil.Process) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Sweep:
    """One study in a folder of its own: run, watched, and run again."""

    def __init__(self, folder: Path, space: str) -> None:
        self._space = folder / "space.yaml"
        self._space.write_text(space)
        self._out = folder / "out.txt"
        self._out.touch()
        self._folder = folder
        self.root = folder / STUDY
        #: Every process that a run of it has ever been seen to have.
        self.family: dict[int, psutil.Process] = {}
        #: Ports that its servers listened on, and inodes of the files in /dev/shm that they had mapped.
        self.ports: set[int] = set()
        self.shared: set[int] = set()
        self.driver: subprocess.Popen[bytes] | None = None

    @contextmanager
    def running(self, wrapper: Sequence[str] = ("-m", "orchestrator.sweep")) -> Iterator[subprocess.Popen[bytes]]:
        """A run of it, killed at the end where it has not ended."""
        with self._out.open("ab") as out:
            self.driver = subprocess.Popen(
                [sys.executable, *wrapper, str(self._space), "--results", str(self._folder)],
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        try:
            yield self.driver
        finally:
            self.look()
            self.driver.kill()
            self.driver.wait()

    def said(self) -> str:
        """All that its runs have printed."""
        return self._out.read_text(errors="replace")

    def look(self) -> list[psutil.Process]:
        """The descendants of the running driver, which are remembered, with what its servers hold."""
        found: list[psutil.Process] = []
        if self.driver is not None:
            with suppress(psutil.NoSuchProcess):
                found = psutil.Process(self.driver.pid).children(recursive=True)
        for process in found:
            self.family.setdefault(process.pid, process)
        for process in self.servers(found):
            self._remember_holdings(process)
        return found

    @staticmethod
    def servers(family: Iterable[psutil.Process]) -> list[psutil.Process]:
        """Of these processes the guard of a server, the server's main process, and its descendants.

        Empty while there is no server: a guard waits in one process and works in its child.
        """
        found = []
        for process in family:
            with suppress(psutil.Error):
                words, parent = process.cmdline(), process.parent()
                guarding = guard.__file__ in words and parent is not None and guard.__file__ in parent.cmdline()
                if guarding and (below := process.children(recursive=True)):
                    found += [process, *sorted(below, key=psutil.Process.create_time)]
        return found

    def _remember_holdings(self, process: psutil.Process) -> None:
        with suppress(psutil.Error, OSError):
            self.ports |= {c.laddr.port for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
            maps = Path(f"/proc/{process.pid}/maps").read_text(errors="replace")
            # By the inode: a semaphore has another name in there than in the folder.
            self.shared |= {int(inode) for inode in re.findall(r" (\d+) +/dev/shm/", maps)}

    def wait_gone(self) -> None:
        """Until none of its processes is left. Raises TimeoutError naming who is."""
        try:
            until(lambda: not any(map(alive, self.family.values())), "the end of every process", GONE_S)
        except TimeoutError as error:
            left = [f"{p.pid} {' '.join(p.cmdline())[:80]}" for p in self.family.values() if alive(p)]
            raise TimeoutError(f"{error}; alive: {left}") from None

    def wait_end(self, driver: subprocess.Popen[bytes], deadline_s: float) -> None:
        """Until the run ends by itself. Raises TimeoutError with its last words."""

        def ended() -> bool:
            self.look()
            return driver.poll() is not None

        try:
            until(ended, "the end of the run", deadline_s, poll_s=1.0)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; its last words: {self.said()[-600:]}") from None

    def finish(self, deadline_s: float) -> list[str]:
        """Run it again, to its end; what was wrong with that."""
        with self.running() as driver:
            try:
                self.wait_end(driver, deadline_s)
            except TimeoutError as error:
                return [str(error)]
        code = driver.returncode
        return [] if code == 0 else [f"the run after it ended with {code}: {self.said()[-600:]}"]

    def levels(self) -> dict[tuple[int, Load], Row]:
        """Every level on disk, by trial and load."""
        if not self.root.exists():
            return {}
        rows = ResultStore(self.root, read_only=True).rows()
        return {(row.trial.trial, row.level.load): row for row in rows if row.level}

    def kept(self, before: Mapping[tuple[int, Load], Row]) -> list[str]:
        """What became of the levels that were measured before."""
        problems = []
        after = self.levels()
        for key, row in before.items():
            again = after.get(key)
            if again is None:
                problems.append(f"the level {key} got lost")
            elif again.start.start_id != row.start.start_id or again.level != row.level:
                problems.append(f"the level {key} was measured again")
        return problems

    def whole(self, trials: int, ladder: Sequence[int], may_fail: Collection[int] = ()) -> list[str]:
        """What a run without a kill would not show. `may_fail` are the trials whose own server was killed."""
        problems = []
        stored = ResultStore(self.root, read_only=True).trials()
        if sorted(stored) != list(range(trials)):
            problems.append(f"trials {sorted(stored)} instead of {trials}")
        for ordinal, rows in stored.items():
            levels = sorted(row.level.load.concurrency for row in rows if row.level)
            state = rows[0].outcome.state
            if len(set(levels)) != len(levels):
                problems.append(f"trial {ordinal} has a level twice: {levels}")
            if ordinal in may_fail and state == "failed":
                continue
            if state != "complete" or levels != list(ladder):
                problems.append(f"trial {ordinal} is {state} with levels {levels}: {rows[0].outcome.failure_message}")
        identities = [rows[0].trial.identity for rows in stored.values()]
        if len(set(identities)) != len(identities):
            problems.append(f"an identity was launched twice: {identities}")
        storage = f"sqlite:///{self.root}/study.db"
        (name,) = optuna.get_all_study_names(storage)
        states = [t.state for t in optuna.load_study(study_name=name, storage=storage).trials]
        if TrialState.RUNNING in states or TrialState.WAITING in states:
            problems.append(f"Optuna holds open trials: {states}")
        if states.count(TrialState.COMPLETE) < trials - len(may_fail):
            problems.append(f"Optuna holds {states.count(TrialState.COMPLETE)} complete trials")
        return problems

    def left(self) -> list[str]:
        """What of it is still on the machine, once it has ended."""
        study = (self.root / "study.id").read_text().strip()
        temporary = Path(tempfile.gettempdir())
        return named(
            {
                "server processes": with_marker(f"ORCHESTRATOR_STUDY={study}"),
                "ports": self.ports_left(),
                "shared memory": self.shared_left(),
                "private folders": [path.name for path in temporary.glob(f"sglang-start+{study}+*")],
                "scratch folders": [path.name for path in temporary.glob(f"sweep-tune-{study}-*")],
                "partial files": [path.name for path in self.root.rglob("*.partial")],
            }
        )

    def ports_left(self) -> list[int]:
        """Ports of its servers that nobody else has taken, and that yet cannot be bound.

        SGLang's own queues listen on ports of the ephemeral range, which the next program may be given.
        """
        held = [port for port in sorted(self.ports) if not port_is_free(port)]
        others = {c.laddr.port for c in psutil.net_connections("tcp") if c.laddr and c.pid not in (None, *self.family)}
        return [port for port in held if port not in others]

    def shared_left(self) -> list[str]:
        """Files of its servers that are still in /dev/shm."""
        with os.scandir(_SHARED_MEMORY) as entries:
            return [entry.name for entry in entries if entry.inode() in self.shared]


def named(found: Mapping[str, Sequence[object]]) -> list[str]:
    """A sentence for each kind of which there is something."""
    return [f"{what} left: {list(things)}" for what, things in found.items() if things]


def with_marker(marker: str) -> list[int]:
    """Living processes with the variable in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if alive(process) and marker.encode() in Path(f"/proc/{process.pid}/environ").read_bytes():
                found.append(process.pid)
        except OSError:
            continue
    return found


def print_matrix(description: str | None, names: Sequence[str], run_cell: Callable[[str], Cell]) -> int:
    """Run the cells that the command line asks for, print their table; the exit code."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cells", default="", help=f"comma-separated, default: all of {', '.join(names)}")
    asked = [name for name in options.parse_args().cells.split(",") if name] or list(names)
    if unknown := [name for name in asked if name not in names]:
        options.error(f"no cell {', '.join(unknown)}; there are {', '.join(names)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    failed = False
    print(f"{'killed':36} {'levels kept':>11} {'seconds':>8}  result", flush=True)
    for name in asked:
        began = time.monotonic()
        try:
            cell = run_cell(name)
        except (TimeoutError, RuntimeError) as error:
            cell = Cell(name, 0, (str(error),), time.monotonic() - began)
        failed = failed or bool(cell.problems)
        result = "; ".join(cell.problems) or "nothing lost, nothing twice, nothing left"
        print(f"{cell.name:36} {cell.kept:11} {cell.took_s:8.1f}  {result}", flush=True)
    return 1 if failed else 0
