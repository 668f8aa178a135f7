"""Kill each part of a sweep of a real SGLang on the CPU in each phase, and check what is lost or left.

    python tests/resume/real_kill_matrix.py [--cells NAME,NAME...]

Each cell starts the sweep below in a process of its own and kills its victim in the phase. The server of that
moment, with all its children, has to be gone soon, whoever was killed; the sweep either goes on by itself or is
run again; in the end nothing may be lost or done twice, and no process, port, shared memory or private file be
left. Prints a table; exits 1 if a cell fails. All cells take about an hour on two cores.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil
from kills import Cell, Sweep, alive, named, print_matrix, until

# Behind the packages, since it holds folders of the same names.
sys.path.append(str(Path(__file__).parents[1]))
import real_sglang

#: Fewer layers, fewer seconds: what `markov` answers does not depend on them (its layers add nothing).
FLAGS = real_sglang.FLAGS | {"json-model-override-args": {"num_hidden_layers": 2}}
SPACE = f"""
study: kill
model: {real_sglang.MARKOV}
launcher: {{kind: sglang, python: {real_sglang.PYTHON}, stall_s: 60, hang_s: 30, stop_grace_s: 30}}
node: {{gpus: 0}}
server:
  flags: {json.dumps(FLAGS)}
  env: {json.dumps(real_sglang.ENV | {"OMP_NUM_THREADS": "1"})}
space:
  flags:
    schedule-policy: {{choices: [fcfs, lpm]}}
workload:
  dataset: {{kind: random_ids, input_tokens: 16, output_tokens: 64, vocab_size: 2000}}
  concurrency: [1, 2]
  level: {{requests_per_user: 4, min_s: 2, max_s: 20,
          half_width: null, warmup_tolerance: null, max_client_lag_ms: 10000}}
score: {{metric: output_tokens_per_s, concurrency: 2}}
budget: {{trials: 1}}
sampler: {{kind: random, seed: 3}}
"""
TRIALS, LADDER = 1, (1, 2)
#: Of a machine that has other work too.
DEADLINE_S = 900.0

#: What the sweep prints in each phase. A small model is loaded so fast that one of these lines may be skipped.
PHASES = {
    "loading": "distributed init|loading weights|processing weights|kv pool",
    "warm-up": "warm-up|ready",
    "measuring C=1": "measuring C=1",
    "measuring C=2": "measuring C=2",
    "stopping": "tearing down",
}
#: How each is killed, and within how many seconds the server of that moment and its children are gone.
VICTIMS = {
    "driver KILL": (signal.SIGKILL, 15.0),
    "driver INT": (signal.SIGINT, 60.0),
    "driver TERM": (signal.SIGTERM, 60.0),
    "worker KILL": (signal.SIGKILL, 10.0),
    "guard KILL": (signal.SIGKILL, 10.0),
    "server KILL": (signal.SIGKILL, 10.0),
    "scheduler KILL": (signal.SIGKILL, 60.0),
    # The stall limit or the level's end finds it, and then it has its grace.
    "server STOP": (signal.SIGSTOP, 180.0),
}
CELLS = {f"{victim} {phase}": (victim, phase) for victim in VICTIMS for phase in PHASES}


@dataclasses.dataclass(frozen=True)
class Parts:
    """Who there is to kill, and all that belongs to the server."""

    driver: psutil.Process
    worker: psutil.Process
    guard: psutil.Process
    server: psutil.Process
    #: The server's main process where it has no scheduler yet, or no more.
    scheduler: psutil.Process
    members: tuple[psutil.Process, ...]


def title(process: psutil.Process) -> str:
    """Its words, run together; empty where it has ended meanwhile."""
    with suppress(psutil.Error):
        return "".join(process.cmdline())
    return ""


def parts_of(sweep: Sweep, driver_pid: int) -> Parts | None:
    """The parts of a sweep that has a server; None while it has none."""
    members = sweep.servers(sweep.look())
    if not members:
        return None
    guard, server = members[:2]
    schedulers = [process for process in members if title(process).startswith("sglang::scheduler")]
    return Parts(
        psutil.Process(driver_pid), guard.parents()[1], guard, server, (schedulers or [server])[0], tuple(members)
    )


def strike(sweep: Sweep, victim: str, phase: str) -> tuple[int, list[str]]:
    """Run the sweep and kill the victim in the phase; levels kept so far, and what was wrong."""
    number, gone_s = VICTIMS[victim]
    part = victim.split()[0]
    problems: list[str] = []
    with sweep.running() as driver:

        def reached() -> bool:
            if driver.poll() is not None:
                raise RuntimeError(f"the sweep ended before the phase {phase!r}: {sweep.said()[-600:]}")
            return re.search(rf"trial 0: (?:{PHASES[phase]})", sweep.said()) is not None

        until(reached, f"the phase {phase!r}", DEADLINE_S)
        parts = parts_of(sweep, driver.pid)
        if parts is None:
            return 0, ["the server had gone before it could be killed"]
        try:
            getattr(parts, part).send_signal(number)
        except psutil.NoSuchProcess:
            return 0, [f"the {part} had gone before it could be killed"]
        kept = len(sweep.levels())
        try:
            until(lambda: not any(map(alive, parts.members)), "the end of the server", gone_s)
        except TimeoutError as error:
            problems.append(f"{error}; alive: {[p.pid for p in parts.members if alive(p)]}")
        sweep.wait_end(driver, DEADLINE_S)
    sweep.wait_gone()
    if part != "driver":
        problems += named({"shared memory": sweep.shared_left()})
    return kept, problems


def run_cell(name: str) -> Cell:
    """One kill, what became of the sweep, and what is wrong afterwards."""
    victim, phase = CELLS[name]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kill-") as folder:
        sweep = Sweep(Path(folder), SPACE)
        kept, problems = strike(sweep, victim, phase)
        before = sweep.levels()
        if sweep.driver is not None and sweep.driver.returncode != 0:
            problems += sweep.finish(DEADLINE_S)
        problems += sweep.kept(before) + sweep.whole(TRIALS, LADDER) + sweep.left()
    return Cell(name, kept, tuple(problems), time.monotonic() - began)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(print_matrix(__doc__, list(CELLS), run_cell))
