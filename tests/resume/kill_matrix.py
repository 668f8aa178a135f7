"""Kill a sweep of simulated servers with KILL in every phase, run it again, and check what is lost or left.

    python tests/resume/kill_matrix.py [--cells NAME,NAME...]

Each cell starts the sweep below in a process of its own, kills that process in the phase, waits until all its
descendants are gone, runs the same command again, and compares. Prints a table; exits 1 if a cell fails.
"""

from __future__ import annotations

import os
import sys
import tempfile
import textwrap
import time
from pathlib import Path

from kills import Cell, Sweep, print_matrix, until

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
      dataset: {kind: random_ids, input_tokens: 16, output_tokens: 96}
      concurrency: [1, 4]
      level: {requests_per_user: 3, min_s: 0.5, max_s: 3,
              half_width: null, warmup_tolerance: null, max_client_lag_ms: 10000}
    score: {metric: output_tokens_per_s, concurrency: 4}
    budget: {trials: 4}
    sampler: {kind: random, seed: 3}
    """
)
TRIALS, LADDER = 4, (1, 4)
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
    "measuring first level": "trial 1: measuring C=1",
    "measuring second level": "trial 1: measuring C=4",
    "writing level not yet there": ("levels/000001/c0004.arrow", "before"),
    "writing level there": ("levels/000001/c0001.arrow", "after"),
    "writing trial not yet there": ("trials/000001.arrow", "before"),
    "writing told not yet": ("trials/000001.arrow", "after"),
    "writing fronts": ("/pareto.arrow", "before"),
}


def killed(sweep: Sweep, name: str) -> None:
    """Run the sweep and kill it in the phase; return when every process of it is gone."""
    where = CELLS[name]
    wrapper = ("-m", "orchestrator.sweep") if isinstance(where, str) else ("-c", KILL_AT_RENAME, *where)
    with sweep.running(wrapper) as driver:

        def reached() -> bool:
            sweep.look()
            return where in sweep.said() if isinstance(where, str) else driver.poll() is not None

        until(reached, f"the phase {name!r}", DEADLINE_S)
    sweep.wait_gone()


def run_cell(name: str) -> Cell:
    """One kill, one run to the end, and what is wrong afterwards."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kill-") as folder:
        sweep = Sweep(Path(folder), SPACE)
        killed(sweep, name)
        before = sweep.levels()
        problems = sweep.finish(DEADLINE_S)
        problems += sweep.kept(before) + sweep.whole(TRIALS, LADDER) + sweep.left()
    return Cell(name, len(before), tuple(problems), time.monotonic() - began)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(print_matrix(__doc__, list(CELLS), run_cell))
