"""Studies to export, made of rows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conductor_desk import Desk

from orchestrator.analysis.rows import Row
from orchestrator.kept_study import KeptStudy
from orchestrator.results.fronts import frontier, pareto_front
from orchestrator.results.store import Results, ResultStore
from orchestrator.study_folder import dump
from orchestrator.yaml_source import parse_sweep

SPACE = """\
study: small
model: {model}
launcher: {launcher}
node: {{gpus: 1}}
space: {{flags: {{max-running-requests: {{choices: [2, 4]}}}}}}
workload: {{concurrency: [8]}}
score: {{metric: output_tokens_per_s, concurrency: 8}}
constraints: ["ttft_ms.p99@8 <= 1000"]
"""
TWIN = "{kind: simulated, profile: tiny, startup_speedup: 1000}"


@pytest.fixture
def kept(tmp_path: Path) -> Callable[..., KeptStudy]:
    """Makes a study of the rows, with C=8 as its score and a bound on TTFT."""

    def make(*rows: Row, model: str = "tiny", launcher: str = TWIN) -> KeptStudy:
        config, _ = parse_sweep(SPACE.format(model=json.dumps(model), launcher=launcher), "small.yaml")
        front = pareto_front(list(rows), config.objectives, config.limits)
        results = Results(rows, front, tuple(frontier(list(rows))))
        store = ResultStore(tmp_path, read_only=True)
        known = {"store": store, "config": config, "study_id": "id-1", "results": results, "attempts": {}, "notes": ()}
        # Whatever else is known of a study, an export does not ask for it.
        return KeptStudy(**{field.name: known.get(field.name) for field in dataclasses.fields(KeptStudy)})

    return make


@pytest.fixture
def setting(build_row: Callable[..., Row]) -> Callable[..., Row]:
    """A row whose trial was asked for these flags and variables, and launched by this command."""

    def make(
        *arguments: Any,
        flags: dict[str, Any] | None = None,
        env: dict[str, Any] | None = None,
        command: str | None = "/opt/env/bin/python -m sglang.launch_server --model-path tiny",
        gpus: int = 1,
        sglang: str = "0.5.23",
        **options: Any,
    ) -> Row:
        row = build_row(*arguments, gpus=gpus, **options)
        trial = dataclasses.replace(
            row.trial, requested_flags=flags or {}, requested_env=env or {}, launch_command=command
        )
        start = dataclasses.replace(row.start, versions={"sglang": sglang})
        return dataclasses.replace(row, trial=trial, start=start)

    return make


@pytest.fixture
def study(desk: Callable[..., Desk], tmp_path: Path) -> Path:
    """A folder with a study as its sweep leaves it: a baseline, two settings of which trial 1 is better, a failure."""
    done = desk()
    (tmp_path / "study.yaml").write_text(dump(done.config))
    (tmp_path / "study.id").write_text("id-1\n")
    for key, rate in (("a", 100.0), ("b", 150.0), ("c", 120.0)):
        done.run(key, rate)
    done.fail("d", "out_of_memory", "GPU memory does not suffice")
    return tmp_path
