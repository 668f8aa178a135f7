"""How the wall time of a sweep divides: starts, checks of the output, warm-ups, measuring, tear-downs, and the rest.

    python tests/benchmarks/overhead.py [--trials 20] [--start-s 10]

A simulated study, on one node. The rest is orchestration: what passes between the end of a server and the next one's
spawn (Tune, Optuna, Arrow, pre-flight), and what a level takes beside its requests (flush, counters, writing). What
comes once, before the first spawn and after the last tear-down (Ray's start, the summary), is told apart.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.feather as feather
from kept import environment, keep

ROOT = Path(__file__).parents[2]
#: Simulated seconds of a start of the profile `tiny` without a drafter.
_TINY_START_S = 8.0
_PARTS = ("start", "output check", "warm-up", "measuring", "tear-down", "around levels", "between trials")
_SPACE = """
study: overhead
model: example/tiny
launcher: {{kind: simulated, profile: tiny, startup_speedup: {speedup}}}
node: {{gpus: 2}}
space:
  flags:
    max-running-requests: {{int: [16, 64]}}
    schedule-policy: {{choices: [fcfs, lpm]}}
workload:
  concurrency: [1, 8]
  level: {{requests_per_user: 2, min_s: 3, max_s: 5}}
score: {{metric: output_tokens_per_s, concurrency: 8}}
budget: {{trials: {trials}}}
"""


def sweep(folder: Path, trials: int, start_s: float) -> float:
    """Run the study; its wall seconds."""
    space = folder / "overhead.yaml"
    space.write_text(_SPACE.format(trials=trials, speedup=_TINY_START_S / start_s), encoding="utf-8")
    command = [sys.executable, "-m", "orchestrator.sweep", str(space), "--results", str(folder)]
    began = time.monotonic()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def divide(root: Path, wall_s: float) -> dict[str, float]:
    """Seconds by part, of all trials together."""
    levels = feather.read_table(root / "measurements.arrow").to_pandas()
    parts = dict.fromkeys(_PARTS, 0.0)
    ends = []
    for _, rows in sorted(levels.groupby("trial")):
        first = rows.iloc[0]
        parts["start"] += first.startup_wall_s
        parts["output check"] += first.outputs_s
        parts["tear-down"] += first.teardown_s
        parts["around levels"] += rows.level_wall_s.sum()
        spawn_s = first.started_at.timestamp()
        ends.append((spawn_s, first.startup_wall_s + first.outputs_s + rows.level_wall_s.sum() + first.teardown_s))
    for file in sorted((root / "requests").glob("*.arrow")):
        requests = feather.read_table(file)
        for keys in requests.group_by(["concurrency", "level_repeat"]).aggregate([]).to_pylist():
            chosen = pc.and_(
                pc.equal(requests["concurrency"], keys["concurrency"]),
                pc.equal(requests["level_repeat"], keys["level_repeat"]),
            )
            level = requests.filter(chosen)
            begun_s, ended_s = pc.min(level["started_s"]).as_py(), pc.max(level["finished_s"]).as_py()
            opened_s = level["span_start_s"][0].as_py()
            parts["warm-up"] += max(0.0, opened_s - begun_s)
            parts["measuring"] += ended_s - max(begun_s, opened_s)
            parts["around levels"] -= ended_s - begun_s
    ends.sort()
    parts["between trials"] += sum(after[0] - spawn - took for (spawn, took), after in itertools.pairwise(ends))
    total = ends[-1][0] + ends[-1][1] - ends[0][0]
    return {**parts, "total": total, "once": wall_s - total, "trials": float(len(ends))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=20, help="the study's budget")
    parser.add_argument("--start-s", type=float, default=10.0, help="wall seconds of a simulated start")
    parser.add_argument("--out", type=Path, help="an Arrow file for the figures")
    args = parser.parse_args()
    about = environment()
    with tempfile.TemporaryDirectory() as folder:
        parts = divide(Path(folder) / "overhead", sweep(Path(folder), args.trials, args.start_s))
    total, trials = parts["total"], int(parts["trials"])
    print(f"SIMULATED, {trials} trials, {total:.1f} s from the first spawn to the last tear-down")
    parts["orchestration"] = parts["around levels"] + parts["between trials"]
    for name in (*_PARTS, "orchestration"):
        print(f"{name:14}{parts[name]:9.2f} s{100 * parts[name] / total:7.2f} %{parts[name] / trials:9.3f} s a trial")
    print(f"{'once':14}{parts['once']:9.2f} s  before the first spawn and after the last tear-down")
    if args.out:
        keep([parts], about, args.out)


if __name__ == "__main__":
    main()
