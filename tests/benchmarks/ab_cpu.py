"""Does a real SGLang on this CPU agree with what a sweep found? An interleaved A/B with SGLang's own client.

    python tests/benchmarks/ab_cpu.py --results results/cpu
    python tests/benchmarks/ab_cpu.py --setting plain --setting 0.1:3 --setting 0.2:3 [--rounds 4]

A setting is `plain`, or EAGLE as NOISE:STEPS or NOISE:STEPS:TOPK:DRAFT_TOKENS with the flags of
search_spaces/cpu.yaml. `--results` takes the baseline of a finished study, and its best trial at each level.

Every round starts each setting once, in turns that go back and forth (A B, B A, ...), so that a machine that slows
down slows both. `sglang.benchmark.serving` measures each level: not this project's load generator. Differences to the
first setting are paired by round, on logarithms, with a 95 % t interval: one that holds 0 is a tie.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from launchers.base import LaunchSpec
from launchers.local_server import LocalServer
from launchers.sglang.launcher import SGLangLauncher
from orchestrator.benchmark.intervals import Interval, paired_ratio
from orchestrator.results.files import read_table
from orchestrator.results.schemas import MEASUREMENTS
from orchestrator.yaml_source import load_sweep

_ROOT = Path(__file__).parents[2]
_SPACE = _ROOT / "search_spaces/cpu.yaml"


@dataclass(frozen=True)
class Sample:
    """One level of one start."""

    output_tokens_per_s: float
    accept_length: float | None


@dataclass(frozen=True)
class Setting:
    """One server configuration of the comparison."""

    name: str
    model: str
    flags: Mapping[str, Any]
    env: Mapping[str, str]
    #: What the sweep measured, by concurrency.
    swept: Mapping[int, Sample] = field(default_factory=dict)


def winner(found: Interval) -> str:
    """Of a ratio B/A: `A`, `B`, or `tie` where its interval holds 1."""
    if found.holds(1):
        return "tie"
    return "B" if found.mean > 1 else "A"


def agreement(swept_ratio: float, found: Interval) -> str:
    """Whether the A/B bears out which of the two the sweep found faster, B where its ratio B/A is above 1."""
    if winner(found) == "tie":
        return "tie"
    return "agrees" if winner(found) == ("B" if swept_ratio > 1 else "A") else "DISAGREES"


def named(text: str) -> Setting:
    """A setting of the command line. Raises ValueError for one that is none."""
    config, _ = load_sweep(_SPACE)
    flags, env = dict(config.server.flags), {k: str(v) for k, v in config.server.env.items()}
    if text != "plain":
        noise, steps, *tree = text.split(":")
        topk, draft_tokens = map(int, tree) if tree else (1, int(steps) + 1)
        flags |= {
            "speculative-algorithm": "EAGLE",
            "speculative-draft-model-path": str(Path(config.model).with_name(f"markov-eagle-{float(noise)}")),
            "speculative-num-steps": int(steps),
            "speculative-eagle-topk": topk,
            "speculative-num-draft-tokens": draft_tokens,
        }
    return Setting(text, config.model, flags, env)


def of_study(folder: Path) -> list[Setting]:
    """The baseline of a study, and the best complete trial of each level that beats it."""
    config, _ = load_sweep(folder / "study.yaml")
    table = read_table(folder / "measurements.arrow", MEASUREMENTS)
    if table is None:
        raise SystemExit(f"{folder} has no measurements.arrow: name the folder of a finished study")
    complete = [
        row for row in table.to_pylist() if row["state"] == "complete" and row["output_tokens_per_s"] is not None
    ]
    # Starts made again, and levels, are no settings of their own.
    rows = [row for row in complete if row["repeats"] is None and not row["level_repeat"]]
    by_trial: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        by_trial.setdefault(row["trial"], []).append(row)
    if 0 not in by_trial:
        raise SystemExit(f"the baseline of {folder} has no complete measurement: there is nothing to compare with")
    best = {max((r for r in rows if r["concurrency"] == c), key=_rate)["trial"] for c in config.workload.concurrency}
    settings = []
    for trial in [0, *sorted(best - {0})]:
        first, *_ = by_trial[trial]
        swept = {row["concurrency"]: Sample(_rate(row), row["accept_length"]) for row in by_trial[trial]}
        name = "baseline" if trial == 0 else f"trial {trial}"
        flags, env = json.loads(first["requested_flags"]), json.loads(first["requested_env"])
        settings.append(Setting(name, config.model, flags, env, swept))
    return settings


def _rate(row: Mapping[str, Any]) -> float:
    rate: float = row["output_tokens_per_s"]
    return rate


def measure(python: str, server: LocalServer, setting: Setting, concurrency: int, requests: int, seed: int) -> Sample:
    """One level by SGLang's own client. Raises RuntimeError where a request fails."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "level.jsonl"
        words = {
            "backend": "sglang",
            "base-url": server.url,
            "model": _ROOT / setting.model,
            "served-model-name": server.model,
            "dataset-name": "random-ids",
            "random-input-len": 32,
            "random-output-len": 64,
            "random-range-ratio": 1.0,
            "num-prompts": requests,
            "max-concurrency": concurrency,
            "warmup-requests": concurrency,
            "seed": seed,
            "output-file": out,
        }
        argv = [python, "-m", "sglang.benchmark.serving", "--flush-cache", "--disable-tqdm"]
        argv += ["--tokenize-prompt", *(str(word) for name, value in words.items() for word in (f"--{name}", value))]
        env = {**os.environ, **setting.env}
        if server.api_key:
            env["OPENAI_API_KEY"] = server.api_key
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"sglang.benchmark.serving failed:\n{done.stderr[-2000:]}")
        told = json.loads(out.read_text().splitlines()[-1])
    if told["completed"] != requests:
        raise RuntimeError(f"{requests - told['completed']} of {requests} requests failed")
    return Sample(told["output_throughput"], told["accept_length"] or None)


def run(settings: Sequence[Setting], options: argparse.Namespace) -> dict[str, dict[int, list[Sample]]]:
    """Samples by setting and level, one a round."""
    samples: dict[str, dict[int, list[Sample]]] = {s.name: {c: [] for c in options.concurrency} for s in settings}
    with tempfile.TemporaryDirectory() as logs:
        launcher = SGLangLauncher(Path(logs), folder=_ROOT)
        for number in range(options.rounds):
            for setting in settings if number % 2 == 0 else reversed(settings):
                spec = LaunchSpec(setting.model, setting.flags, setting.env, folder=_ROOT)
                with launcher.launch(spec, lambda progress: None, lambda: False) as server:
                    for level in options.concurrency:
                        requests = options.requests_per_user * level
                        sample = measure(launcher.python, server, setting, level, requests, seed=number)
                        samples[setting.name][level].append(sample)
                told = "  ".join(
                    f"C={c} {samples[setting.name][c][-1].output_tokens_per_s:.0f}" for c in samples[setting.name]
                )
                print(f"round {number + 1}: {setting.name:>12}  {told}", flush=True)
    return samples


def report(settings: Sequence[Setting], samples: Mapping[str, Mapping[int, Sequence[Sample]]]) -> None:
    """Prints mean, spread and acceptance of every setting, and each one's difference to the first."""
    first = settings[0]
    for level, firsts in samples[first.name].items():
        print(f"\nC={level}  output tokens/s: mean (lowest to highest), accept length, against {first.name}")
        a = [sample.output_tokens_per_s for sample in firsts]
        for setting in settings:
            b = [sample.output_tokens_per_s for sample in samples[setting.name][level]]
            accepted = [s.accept_length for s in samples[setting.name][level] if s.accept_length is not None]
            text = f"  {setting.name:>12}  {statistics.fmean(b):6.0f} ({min(b):.0f} to {max(b):.0f})"
            text += f"  {statistics.fmean(accepted):.2f}" if accepted else "     -"
            if setting is not first:
                found = paired_ratio(a, b)
                who = {"A": f"{first.name} wins", "B": f"{setting.name} wins", "tie": "tie"}[winner(found)]
                text += f"  x{found.mean:.2f} ({found.low:.2f} to {found.high:.2f}): {who}"
                if setting.swept and first.swept:
                    swept_a, swept_b = first.swept[level], setting.swept[level]
                    ratio = swept_b.output_tokens_per_s / swept_a.output_tokens_per_s
                    text += f"; the sweep found x{ratio:.2f}"
                    text += f" at {swept_b.accept_length:.2f}" if swept_b.accept_length else ""
                    text += f": {agreement(ratio, found)}"
            if setting.swept and setting is max(settings, key=lambda s: _swept_rate(s, level)):
                text += "  <- the sweep's winner"
            print(text)


def _swept_rate(setting: Setting, level: int) -> float:
    return setting.swept[level].output_tokens_per_s if setting.swept else 0.0


def describe(options: argparse.Namespace) -> str:
    """When, where and how, for whoever reads the figures."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    return (
        f"{datetime.datetime.now().astimezone():%Y-%m-%d %H:%M %Z}, {os.cpu_count()} x {model}, "
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB, load {os.getloadavg()[0]:.1f}; {options.rounds} rounds, "
        f"{options.requests_per_user} requests a user, random ids 32 in 64 out"
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, help="folder of a finished study")
    parser.add_argument("--setting", action="append", default=[], help="plain, or NOISE:STEPS[:TOPK:DRAFT_TOKENS]")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--requests-per-user", type=int, default=6)
    options = parser.parse_args()
    settings = (of_study(options.results) if options.results else []) + [named(text) for text in options.setting]
    if len(settings) < 2:
        parser.error("there is nothing to compare: no trial beats the baseline; name settings, `--setting plain` first")
    print(describe(options), flush=True)
    for setting in settings:
        print(f"{setting.name:>12}: {json.dumps(dict(setting.flags))}", flush=True)
    report(settings, run(settings, options))


if __name__ == "__main__":
    main()
