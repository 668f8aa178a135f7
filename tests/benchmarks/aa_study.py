"""How often equal servers are called different, and a server that is 3 % faster is found, over HTTP.

    python tests/benchmarks/aa_study.py [--pairs 10] [--gap 0.03] [--concurrency 8]

In each round three simulated servers start one after the other: A, A again, and B, whose steps are shorter by the gap.
Each is measured with the load generator as a sweep measures. Every pair is judged by itself as two trials of a search
are, and all together as a confirmation is. The draws are those of the profile's unrest: tests/ holds the same study
with 200 pairs through the pure model.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path

import yaml
from kept import environment, keep

from launchers.base import LaunchSpec
from launchers.simulated.launcher import SimulatedLauncher
from launchers.simulated.profile import Profile, load_profile
from orchestrator.analysis.layout import Repeated
from orchestrator.analysis.noise import Value, noise_floor, paired_ratio_of, ratio_of
from orchestrator.benchmark import loop
from orchestrator.benchmark.load import run_level
from orchestrator.benchmark.metrics import level_metrics
from orchestrator.datasets import RandomIds
from orchestrator.offered_load import Load
from orchestrator.workload import Level, Workload

PROFILE = "kimi-k2.5-8x-rtx-pro-6000"


def faster(profile: Profile, gap: float) -> dict[str, object]:
    """The profile with every step shorter, so that throughput is higher by `gap`."""
    data = profile.model_dump(mode="json", exclude_none=True)
    for name in ("step_s", "all_experts_s", "token_s", "prefill_token_s", "kv_read_s_per_token"):
        data["compute"][name] /= 1 + gap
    for link in data["communication"]["protocols"].values():
        link["latency_s"] /= 1 + gap
        link["bandwidth_gb_s"] *= 1 + gap
    return data


def measure(folder: Path, profile: str, concurrency: int, seed: int) -> Value:
    """Start a server, measure one level on it, stop it."""
    launcher = SimulatedLauncher(folder, profile, 1000.0)
    facts = load_profile(profile)
    workload = Workload(
        dataset=RandomIds(input_tokens=64, output_tokens=32, vocab_size=facts.engine.vocab_size, seed=seed),
        concurrency=(concurrency,),
        level=Level(requests_per_user=2, min_s=4, max_s=5),
    )
    spec = LaunchSpec(facts.model, flags={"tp-size": facts.hardware.gpus}, env={}, gpus=facts.hardware.gpus)
    with launcher.launch(spec, lambda phase: None, lambda: False) as server:
        record = loop.run(
            run_level(server.url, workload, Load(concurrency), model=server.model, api_key=server.api_key)
        )
    metrics = level_metrics(record)
    if metrics.output_tokens_per_s is None or metrics.requests_failed:
        raise RuntimeError(f"a level was not measured: {metrics.first_error}")
    return Value(metrics.output_tokens_per_s, metrics.output_tokens_per_s_half_width)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--gap", type=float, default=0.03, help="by how much B is faster, relative")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--out", type=Path, help="an Arrow file for the figures")
    args = parser.parse_args()
    about = environment()
    rounds: list[tuple[Value, Value, Value]] = []
    print(f"SIMULATED: {PROFILE}, tok/s at C={args.concurrency}, +- within the start")
    with tempfile.TemporaryDirectory(prefix="aa-study-") as name:
        folder = Path(name)
        other = folder / "faster.yaml"
        other.write_text(yaml.safe_dump(faster(load_profile(PROFILE), args.gap)), encoding="utf-8")
        for number in range(args.pairs):
            a, again, b = (measure(folder, p, args.concurrency, number) for p in (PROFILE, PROFILE, str(other)))
            rounds.append((a, again, b))
            cells = (f"{v.value:8.1f} +-{100 * (v.half_width or 0) / v.value:4.1f} %" for v in (a, again, b))
            print(f"round {number + 1:2}:  A {next(cells)}   A {next(cells)}   B {next(cells)}", flush=True)
    floor = noise_floor(Repeated(0, v.value, within_sd=v.within_sd) for a, again, _ in rounds for v in (a, again))
    if floor is None:
        raise SystemExit("one pair alone says nothing: use --pairs 2 or more")
    print(f"noise floor: {100 * floor.sd:.2f} %, {floor.freedom} degrees of freedom")
    for label, pairs in (
        ("A against A", [(again, a) for a, again, _ in rounds]),
        ("B against A", [(b, a) for a, _, b in rounds]),
    ):
        told = sum(not ratio_of(value, base, floor).holds(1.0) for value, base in pairs)
        starts = [
            Repeated(setting, one.value, number, one.within_sd)
            for number, (value, base) in enumerate(pairs)
            for setting, one in ((1, value), (0, base))
        ]
        whole = paired_ratio_of(starts, 1)
        assert whole is not None
        verdict = "a tie" if whole.holds(1.0) else "different"
        print(
            f"{label}: {told} of {len(pairs)} pairs of single starts told apart; all together "
            f"x{whole.mean:.4f} ({whole.low:.4f} to {whole.high:.4f}): {verdict}"
        )
    if args.out:
        names = ("a", "a_again", "b")
        keep([{n: asdict(v) for n, v in zip(names, values, strict=True)} for values in rounds], about, args.out)


if __name__ == "__main__":
    main()
