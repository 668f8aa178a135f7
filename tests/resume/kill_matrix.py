"""Kill a sweep with KILL in every phase, run it again, and check that nothing was lost and nothing is left.

    python tests/resume/kill_matrix.py [PHASE...]

Each cell starts the sweep below in a process of its own, kills that process in the phase, waits until all its
descendants are gone, runs the same command again, and compares. Prints a table; exits 1 if a cell fails.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import optuna
import psutil
from optuna.trial import TrialState

from orchestrator.analysis.rows import Row
from orchestrator.results.store import ResultStore

SPACE = textwrap.dedent(
    """
    study: kill
    model: tiny
    launcher: {kind: simulated, profile: tiny, startup_speedup: 2}
    node: {gpus: 1}
    space:
      flags:
        max-running-requests: {choices: [2, 4, 8]}
        schedule-policy: {choices: [fcfs, lpm]}
    workload:
      dataset: {kind: synthetic, input_tokens: 16, output_tokens: 96}
      concurrency: [1, 4]
      level: {requests_per_user: 3, min_s: 0.5, max_s: 3, warmup_requests_per_user: 1}
    score: {metric: output_tokens_per_s, concurrency: 4}
    budget: {trials: 4}
    sampler: {kind: random, seed: 3}
    """
)
TRIALS = 4
DEADLINE_S = 120.0

#: Runs the sweep, and kills it when a file takes the name that the first argument is part of.
KILL_AT_RENAME = textwrap.dedent(
    """
    import os, runpy, signal, sys
    wanted, after = sys.argv[1], sys.argv[2] == "after"
    real = os.replace
    def replace(source, target, **options):
        hit = wanted in str(target)
        if hit and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        real(source, target, **options)
        if hit:
            os.kill(os.getpid(), signal.SIGKILL)
    os.replace = replace
    sys.argv = ["orchestrator.sweep", *sys.argv[3:]]
    runpy.run_module("orchestrator.sweep", run_name="__main__")
    """
)

#: Phase of the kill: a line of the sweep's output, or a rename (part of the file's path, before or after).
CELLS: dict[str, str | tuple[str, str]] = {
    "loading": "trial 1: loading weights",
    "warm-up": "trial 1: warm-up",
    "measuring, first level": "trial 1: measuring C=1",
    "measuring, second level": "trial 1: measuring C=4",
    "writing, level not yet there": ("journal/000001/c0004.arrow", "before"),
    "writing, level there": ("journal/000001/c0001.arrow", "after"),
    "writing, trial not yet there": ("trials/000001.arrow", "before"),
    "writing, told not yet": ("trials/000001.arrow", "after"),
    "writing, fronts": ("/pareto.arrow", "before"),
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """What one kill and the run after it left."""

    phase: str
    kept: int
    problems: tuple[str, ...]
    took_s: float


def until(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait for a condition; raises TimeoutError naming it."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {deadline_s:.0f} s")
        time.sleep(0.02)


def sweep(folder: Path, wrapper: Sequence[str] = ("-m", "orchestrator.sweep")) -> subprocess.Popen[bytes]:
    """Start the sweep; its output goes to a file beside the space."""
    space = folder / "space.yaml"
    space.write_text(SPACE)
    with (folder / "out.txt").open("ab") as out:
        return subprocess.Popen(
            [sys.executable, *wrapper, str(space), "--results", str(folder)],
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )


def killed(folder: Path, phase: str) -> None:
    """Run the sweep and kill it in the phase; return when every process of it is gone."""
    where = CELLS[phase]
    wrapper = ("-m", "orchestrator.sweep") if isinstance(where, str) else ("-c", KILL_AT_RENAME, *where)
    driver = sweep(folder, wrapper)
    family: dict[int, psutil.Process] = {}

    def look() -> None:
        try:
            for process in psutil.Process(driver.pid).children(recursive=True):
                family.setdefault(process.pid, process)
        except psutil.NoSuchProcess:
            pass

    def reached() -> bool:
        look()
        if isinstance(where, str):
            return where in (folder / "out.txt").read_text(errors="replace")
        return driver.poll() is not None

    try:
        until(reached, f"the phase {phase!r}")
    finally:
        look()
        driver.kill()
        driver.wait()
    try:
        until(lambda: not any(map(alive, family.values())), "the end of every process", 60)
    except TimeoutError as error:
        left = [" ".join(p.cmdline())[:80] for p in family.values() if alive(p)]
        raise TimeoutError(f"{error}; alive: {left}") from None


def alive(process: psutil.Process) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def measured(root: Path) -> dict[tuple[int, int], Row]:
    """Every level on disk, by trial and concurrency."""
    rows = ResultStore(root, read_only=True).rows()
    return {(row.trial.trial, row.level.concurrency): row for row in rows if row.level}


def run_cell(phase: str) -> Cell:
    """One kill, one run to the end, and what is wrong afterwards."""
    began = time.monotonic()
    problems: list[str] = []
    with tempfile.TemporaryDirectory(prefix="kill-") as name:
        folder = Path(name)
        root = folder / "kill"
        killed(folder, phase)
        before = measured(root)
        driver = sweep(folder)
        try:
            code = driver.wait(DEADLINE_S)
        finally:
            driver.kill()
            driver.wait()
        if code != 0:
            problems.append(f"the run after it ended with {code}: {(folder / 'out.txt').read_text()[-600:]}")
        problems += check(root, before)
    return Cell(phase, len(before), tuple(problems), time.monotonic() - began)


def check(root: Path, before: dict[tuple[int, int], Row]) -> list[str]:
    """What an uninterrupted run would not show."""
    problems = []
    after = measured(root)
    for key, row in before.items():
        again = after.get(key)
        if again is None:
            problems.append(f"the level {key} got lost")
        elif again.start.start_id != row.start.start_id or again.level != row.level:
            problems.append(f"the level {key} was measured again")
    trials = ResultStore(root, read_only=True).trials()
    if sorted(trials) != list(range(TRIALS)):
        problems.append(f"{sorted(trials)} instead of {TRIALS} trials")
    for ordinal, rows in trials.items():
        levels = sorted(row.level.concurrency for row in rows if row.level)
        if levels != [1, 4] or rows[0].outcome.state != "complete":
            problems.append(f"trial {ordinal} is {rows[0].outcome.state} with levels {levels}")
    identities = [rows[0].trial.identity for rows in trials.values()]
    if len(set(identities)) != len(identities):
        problems.append(f"an identity was launched twice: {identities}")
    storage = f"sqlite:///{root}/study.db"
    (name,) = optuna.get_all_study_names(storage)
    states = [t.state for t in optuna.load_study(study_name=name, storage=storage).trials]
    if TrialState.RUNNING in states or TrialState.WAITING in states:
        problems.append(f"Optuna holds open trials: {states}")
    if states.count(TrialState.COMPLETE) < TRIALS:
        problems.append(f"Optuna holds {states.count(TrialState.COMPLETE)} complete trials")
    study_id = (root / "study.id").read_text().strip()
    if left := with_marker(f"ORCHESTRATOR_STUDY={study_id}"):
        problems.append(f"server processes are left: {left}")
    if scratch := list(Path(tempfile.gettempdir()).glob(f"sweep-tune-{study_id}-*")):
        problems.append(f"scratch folders are left: {scratch}")
    if list(root.rglob("*.partial")):
        problems.append("partial files are left")
    return problems


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


def main() -> int:
    """Run the cells that are asked for and print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("phases", nargs="*", metavar="PHASE", help=f"of: {', '.join(CELLS)}; default: all")
    phases = options.parse_args().phases or list(CELLS)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    failed = False
    print(f"{'killed while':32} {'levels kept':>11} {'seconds':>8}  result", flush=True)
    for phase in phases:
        cell = run_cell(phase)
        failed = failed or bool(cell.problems)
        result = "; ".join(cell.problems) or "nothing lost, nothing twice, nothing left"
        print(f"{cell.phase:32} {cell.kept:11} {cell.took_s:8.1f}  {result}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
