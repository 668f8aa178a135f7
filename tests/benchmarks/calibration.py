"""Holds a simulated profile to its targets, measured over HTTP as a sweep measures.

    python tests/benchmarks/calibration.py [--profile NAME] [--only TEXT] [--startup-speedup X]

For each target of the profile: starts the simulated server as its own process, measures it with the load
generator, and prints target, measured, error and acceptance length. Exit code 1 if an error is beyond 5 %.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launchers.base import LaunchSpec
from launchers.simulated.launcher import SimulatedLauncher
from launchers.simulated.profile import Profile, Target, load_profile
from orchestrator.benchmark import loop
from orchestrator.benchmark.load import run_level
from orchestrator.benchmark.metrics import level_metrics
from orchestrator.benchmark.records import LevelMetrics
from orchestrator.workload import Level, SyntheticDataset, Workload

ALLOWED_ERROR = 0.05


@dataclass(frozen=True)
class Outcome:
    """A target beside what was measured for it."""

    target: Target
    metrics: LevelMetrics

    @property
    def error(self) -> float | None:
        """Relative error of the throughput; None where nothing was measured."""
        measured = self.metrics.output_tokens_per_s
        return None if measured is None else measured / self.target.output_tokens_per_s - 1

    @property
    def length_error(self) -> float | None:
        """Relative error of the acceptance length; None where the target has none or none was measured."""
        asked, measured = self.target.accept_length, self.metrics.accept_length
        return None if asked is None or measured is None else measured / asked - 1

    @property
    def held(self) -> bool:
        """Whether both figures are there and within the allowed error, and no request failed."""
        errors = [self.error] if self.target.accept_length is None else [self.error, self.length_error]
        near = all(error is not None and abs(error) <= ALLOWED_ERROR for error in errors)
        return near and self.metrics.requests_failed == 0

    def line(self) -> str:
        """One row of the table."""
        asked, got = self.target.output_tokens_per_s, self.metrics.output_tokens_per_s
        lengths = f"{_text(self.target.accept_length, '.2f'):>6} {_text(self.metrics.accept_length, '.2f'):>8}"
        figures = f"{asked:>9.1f} {_text(got, '.1f'):>9} {_text(self.error, '+.1%'):>7} {lengths}"
        verdict = "" if self.held else "  BEYOND 5 %"
        return (
            f"{self.target.name:<66} {self.target.concurrency:>4} {figures} {self.metrics.requests_failed:>6}{verdict}"
        )


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


HEADER = (
    f"{'target':<66} {'C':>4} {'tok/s':>9} {'measured':>9} {'error':>7} {'accept':>6} {'measured':>8} {'failed':>6}"
)


def workload_of(target: Target, profile: Profile) -> Workload:
    """The target's own workload; `min_s` is 0, so that exactly its requests are sent."""
    return Workload(
        dataset=SyntheticDataset(
            input_tokens=target.prompt_tokens,
            output_tokens=target.output_tokens,
            vocab_size=profile.engine.vocab_size,
        ),
        concurrency=(target.concurrency,),
        level=Level(
            requests_per_user=target.requests_per_user,
            warmup_requests_per_user=target.warmup_requests_per_user,
            min_s=0,
            max_s=600,
        ),
    )


def measure(target: Target, profile: Profile, launcher: SimulatedLauncher) -> Outcome:
    """Start a server for the target, measure it, stop it."""
    flags = {"tp-size": profile.hardware.gpus, **target.flags}
    spec = LaunchSpec(profile.model, flags=flags, env=target.env, gpus=profile.hardware.gpus)
    with launcher.launch(spec, lambda phase: None, lambda: False) as server:
        workload = workload_of(target, profile)
        record = loop.run(
            run_level(server.url, workload, target.concurrency, model=server.model, api_key=server.api_key)
        )
    return Outcome(target, level_metrics(record))


def main(argv: Sequence[str]) -> int:
    """0 if every figure is held, 1 if one is not, 2 if there is none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="kimi-k2.5-8x-rtx-pro-6000")
    parser.add_argument("--only", default="", help="targets whose name contains this text")
    parser.add_argument("--startup-speedup", type=float, default=100.0)
    arguments = parser.parse_args(argv)
    profile = load_profile(arguments.profile)
    targets = [target for target in profile.targets if arguments.only in target.name]
    if not targets:
        print(f"{profile.name} has no target with {arguments.only!r} in its name", file=sys.stderr)
        return 2
    print(f"SIMULATED: {profile.name}, output tokens per second over the window of full concurrency")
    print(HEADER, flush=True)
    held = True
    with tempfile.TemporaryDirectory(prefix="calibration-") as folder:
        launcher = SimulatedLauncher(Path(folder), arguments.profile, arguments.startup_speedup)
        for target in targets:
            outcome = measure(target, profile, launcher)
            print(outcome.line(), flush=True)
            held = held and outcome.held
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
