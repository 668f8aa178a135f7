"""Studies as the report sees them, made of rows without a sweep."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from orchestrator.analysis.rows import Row
from orchestrator.config import SweepConfig
from orchestrator.kept_study import KeptStudy
from orchestrator.results.fronts import frontier, pareto_front
from orchestrator.results.store import Results, ResultStore
from orchestrator.yaml_source import parse_sweep

SPACE = """
study: reported
model: some/model
launcher: {kind: simulated, profile: tiny}
server: {env: {NCCL_PROTO: LL}}
space:
  flags:
    max-running-requests: {choices: [null, 48, 128, 2048]}
    speculative-algorithm: {choices: [null, EAGLE3]}
    speculative-num-steps: {int: [1, 10], when: {speculative-algorithm: EAGLE3}}
workload: {concurrency: [1, 8]}
score: {metric: output_tokens_per_s, concurrency: 8}
"""


def report_config(text: str = SPACE, **over: Any) -> SweepConfig:
    """The study's file."""
    config, _ = parse_sweep(text, "reported.yaml")
    return SweepConfig.model_validate({**config.model_dump(by_alias=True), **over})


def kept(
    folder: Path,
    rows: Iterable[Row],
    config: SweepConfig | None = None,
    notes: tuple[str, ...] = (),
) -> KeptStudy:
    """What `open_study` would give."""
    config = config or report_config()
    rows = list(rows)
    results = Results(tuple(rows), pareto_front(rows, config.objectives, config.limits), tuple(frontier(rows)))
    return KeptStudy(ResultStore(folder, read_only=True), config, "id-1", results, {}, (), False, notes)
