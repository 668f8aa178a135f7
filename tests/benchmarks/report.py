"""How long the report of a large study takes: reading it, writing the page, and opening that in Chromium.

    python tests/benchmarks/report.py [--trials 1000] [--keep FOLDER]

The study is made up: settings drawn from search_spaces/nccl.yaml, four levels each, figures by a formula, rows as wide
as real ones (400 settings read back, greedy answers). It asks for under 10 s to write and under 3 s to open.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import optuna

from orchestrator.analysis.rows import MeasuredLevel, Outcome, Row, StartInfo, TrialInfo
from orchestrator.benchmark.records import Distribution, LevelMetrics
from orchestrator.config import SweepConfig
from orchestrator.kept_study import open_study
from orchestrator.report.page.write import write_report
from orchestrator.results import files
from orchestrator.results.store import ResultStore
from orchestrator.results.tables import measurements_table
from orchestrator.search.distributions import distribution, to_optuna
from orchestrator.search.space import SearchSpace
from orchestrator.search.storage import open_storage
from orchestrator.study_folder import dump
from orchestrator.yaml_source import load_sweep

sys.path.insert(0, str(Path(__file__).parents[1]))
ROOT = Path(__file__).parents[2]
MOMENT = datetime(2026, 3, 1, tzinfo=UTC)
STUDY_ID = "made-up"
WRITE_S, OPEN_S = 10.0, 3.0


def sweep_config() -> SweepConfig:
    """The flagship's space on the simulated server."""
    config, _ = load_sweep(ROOT / "search_spaces" / "nccl.yaml")
    data = config.model_dump(by_alias=True)
    launcher = {"kind": "simulated", "profile": "kimi-k2.5-8x-rtx-pro-6000"}
    return SweepConfig.model_validate({**data, "launcher": launcher, "simulated": {}})


def rows_of(
    trial: int, flags: dict[str, Any], env: dict[str, str], config: SweepConfig, chance: random.Random
) -> list[Row]:
    """A trial's rows: a rate that grows with the load, and less of it with speculation."""
    speculative = flags.get("speculative-algorithm") is not None
    info = TrialInfo(
        study=config.study,
        study_id=STUDY_ID,
        trial=trial,
        optuna_number=trial,
        role="candidate" if trial else "baseline",
        repeat=0,
        simulated=True,
        profile="kimi-k2.5-8x-rtx-pro-6000",
        identity=f"{trial:016x}",
        requested_flags={**config.server.flags, **flags},
        requested_env={**config.server.env, **env},
        canonical_flags={**config.server.flags, **flags},
        canonical_env={**config.server.env, **env},
        launch_command="python -m sglang.launch_server --model-path moonshotai/Kimi-K2.5",
        gpus=8,
    )
    tokens = tuple(tuple(chance.randrange(160_000) for _ in range(40)) for _ in range(12))
    at = MOMENT + timedelta(minutes=10 * trial)
    steps = flags.get("speculative-num-steps")
    start = StartInfo(
        attempt=1,
        start_id=f"start-{trial}",
        host="node",
        node_id="n",
        gpu_names=("NVIDIA RTX PRO 6000 Blackwell",) * 8,
        versions={"sglang": "simulated 0.5.23"},
        started_at=at,
        startup_s=420.0,
        startup_wall_s=420.0,
        phase_s={"distributed init": 12.0, "loading weights": chance.gauss(360, 20), "graph capture": 45.0},
        effective_settings={f"setting-{n}": n for n in range(400)} | {"speculative-num-steps": steps},
        effective_max_running_requests=flags.get("max-running-requests", 2048),
        outputs=tokens,
        outputs_s=8.0,
        output_agreement=1.0,
        output_self_agreement=1.0,
        output_differs=False,
        stop_proven=True,
    )
    factor = (
        chance.gauss(1.0, 0.01) * (0.5 if speculative else 1.0) * (1.1 if env.get("NCCL_PROTO") == "Simple" else 1.0)
    )
    rows = []
    for load in config.workload.ladder:
        assert load.concurrency is not None
        rate = factor * 62 * load.concurrency**0.72
        spread = Distribution(1000 / rate, 1000 / rate, 1200 / rate, 1500 / rate)
        metrics = LevelMetrics(
            load=load,
            requests_total=3 * load.concurrency,
            requests_failed=0,
            window_s=30.0,
            duration_s=40.0,
            output_tokens_per_s=rate,
            output_tokens_per_s_whole=rate,
            requests_per_s=rate / 128,
            ttft_ms=Distribution(50.0, 50.0, 80.0, 100.0),
            tpot_ms=spread,
            itl_ms=spread,
            e2e_ms=spread,
            accept_length=1 + chance.random() if speculative else None,
            prompt_tokens=512,
            cached_tokens=0,
            output_tokens=128,
            output_tokens_per_s_half_width=0.01 * rate,
        )
        counters = {f"counter_{n}": float(n) for n in range(60)}
        level = MeasuredLevel(metrics, at, 40.0, "flushed", counters_before=counters, counters_after=counters)
        rows.append(Row(info, start, Outcome("complete"), level))
    return rows


def make_study(folder: Path, trials: int) -> None:
    """Arrow files and an Optuna storage, as a sweep leaves them."""
    config = sweep_config()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.yaml").write_text(dump(config), encoding="utf-8")
    (folder / "study.id").write_text(STUDY_ID, encoding="utf-8")
    store = ResultStore(folder)
    space = SearchSpace.build(config.space)
    knobs = {knob.name: knob for knob in space.knobs}
    chance = random.Random(0)
    memory = optuna.create_study(direction="maximize")
    for trial in range(trials):
        params = space.draw(lambda knob: chance.choice(list(knob.choices or ()))) if trial else {}
        flags, env = space.split(params)
        rows = rows_of(trial, flags, env, config, chance)
        files.write_table(store.trial_file(trial), measurements_table(rows))
        last = rows[-1].level
        assert last is not None
        memory.add_trial(
            optuna.trial.create_trial(
                value=last.metrics.output_tokens_per_s,
                params={name: to_optuna(knobs[name], value) for name, value in params.items()},
                distributions={name: distribution(knobs[name]) for name in params},
                user_attrs={"attempt": 1, "ordinal": trial, "outcome": "complete", "role": rows[0].trial.role}
                | {"identity": f"{trial:016x}", "draw": 0},
            )
        )
    name = f"{config.study}-{STUDY_ID}"
    kept = optuna.create_study(
        storage=open_storage(f"sqlite:///{store.study_db}"), study_name=name, direction="maximize"
    )
    kept.add_trials(memory.get_trials(deepcopy=False))


def open_s(page: Path) -> tuple[float, float]:
    """Seconds until the load event, and until every chart is drawn."""
    import browser as kit

    with kit.chromium() as started, kit.watched_page(started) as seen:
        # A first page of its own warms the browser up.
        seen.page.goto("about:blank")
        began = time.monotonic()
        seen.page.goto(page.as_uri())
        loaded = time.monotonic() - began
        seen.page.wait_for_selector("html[data-drawn=all]", state="attached")
        drawn = time.monotonic() - began
        assert not seen.complaints, seen.complaints
    return loaded, drawn


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--trials", type=int, default=1000)
    options.add_argument("--keep", type=Path, help="a folder for the study; kept, and used again where it holds one")
    asked = options.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.keep or Path(temporary) / "study"
        if not (folder / "study.yaml").exists():
            began = time.monotonic()
            make_study(folder, asked.trials)
            print(f"made up {asked.trials} trials x 4 levels in {time.monotonic() - began:.1f} s")
        began, busy = time.monotonic(), time.process_time()
        kept = open_study(folder)
        read = time.monotonic() - began
        page = write_report(kept, folder)[0]
        written, busy = time.monotonic() - began, time.process_time() - busy
        loaded, drawn = open_s(page)
        print(f"read in {read:.1f} s, report written in {written:.1f} s in all ({busy:.1f} s of CPU)")
        print(f"the page has {page.stat().st_size / 1e6:.1f} MB")
        print(f"opened: load event after {loaded:.2f} s, every chart drawn after {drawn:.2f} s")
        fine = written < WRITE_S and loaded < OPEN_S
        print(f"asked for: under {WRITE_S:.0f} s and under {OPEN_S:.0f} s: {'met' if fine else 'NOT met'}")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
