"""Rows for the tests of causes, and the causes that they tell."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from orchestrator.analysis.explain import explain
from orchestrator.analysis.finding import Finding
from orchestrator.analysis.rows import Row
from orchestrator.benchmark.records import Distribution

Build = Callable[..., Row]
EAGLE3 = {"speculative-algorithm": "EAGLE3", "speculative-num-steps": 3, "speculative-num-draft-tokens": 4}


def timed(row: Row, tpot_ms: float | None) -> Row:
    assert row.level is not None
    spread = None if tpot_ms is None else Distribution(tpot_ms, tpot_ms, tpot_ms, tpot_ms)
    metrics = dataclasses.replace(row.level.metrics, tpot_ms=spread)
    return dataclasses.replace(row, level=dataclasses.replace(row.level, metrics=metrics))


def kinds(rows: list[Row]) -> list[str]:
    return [finding.kind for finding in explain(rows)]


def of(rows: list[Row], kind: str) -> Finding:
    [found] = [f for f in explain(rows) if f.kind == kind]
    return found


def nccl(build_row: Build, admits: int, **flags: Any) -> Row:
    row = timed(build_row(1, 8, 125.0, admits=admits, flags=flags), 8.0)
    return dataclasses.replace(
        row,
        trial=dataclasses.replace(
            row.trial, requested_env={"NCCL_PROTO": "Simple"}, canonical_env={"NCCL_PROTO": "Simple"}
        ),
    )
