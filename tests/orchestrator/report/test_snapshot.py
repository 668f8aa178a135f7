"""Where a sweep stands: made of rows and of what the nodes tell, and carried through JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from snapshots import SNAPSHOT

from launchers.base import Phase, StartProgress
from orchestrator.analysis.cost import node_s
from orchestrator.analysis.rows import Row
from orchestrator.config import SweepConfig
from orchestrator.node_status import NodeStatus, StartStatus
from orchestrator.offered_load import Load
from orchestrator.report.snapshot import NodeView, Score, Snapshot, node_view, results_view
from orchestrator.yaml_source import parse_sweep

EARLIER = {"spawned": 30.0, "loading weights": 150.0, "graph capture": 148.0, "warm-up": 5.0}

SPACE = """
study: seen
model: tiny
launcher: {kind: simulated, profile: tiny}
space: {flags: {max-running-requests: {choices: [2, 4]}}}
workload: {concurrency: [1, 8]}
score: {metric: output_tokens_per_s, concurrency: 8}
pareto: ["minimize ttft_ms.p99@8", "maximize output_tokens_per_s@8"]
constraints: ["ttft_ms.p99@8 <= 400"]
budget: {trials: 8}
"""


@pytest.fixture
def config() -> SweepConfig:
    return parse_sweep(SPACE, "seen.yaml")[0]


def test_a_snapshot_survives_json() -> None:
    assert Snapshot.from_data(json.loads(json.dumps(SNAPSHOT.as_data()))) == SNAPSHOT


def test_the_keys_of_the_json_are_stable() -> None:
    # Programs read them: add to them, never rename.
    data = SNAPSHOT.as_data()
    expected = {"study", "simulated", "done", "planned", "elapsed_s", "left_s", "node_hours", "node_hours_left"}
    assert expected | {"results", "nodes", "stopping"} <= set(data)
    assert {"score", "objectives", "front", "findings"} <= set(data["results"])
    score = {"metric", "baseline", "best", "best_trial", "gain", "confirmed"}
    assert score <= set(data["results"]["score"])
    assert {"trial", "role", "settings", "values"} <= set(data["results"]["front"][0])
    assert {"kind", "text", "new"} <= set(data["results"]["findings"][0])
    assert {"node", "trial", "role", "settings", "phase", "level", "requests_done"} <= set(data["nodes"][0])


def test_a_start_is_shown_with_what_earlier_starts_took() -> None:
    loading = StartStatus(StartProgress(Phase.LOADING_WEIGHTS, (72, 160)), 130.0, 72.0)
    view = node_view(NodeStatus("vm", 3, "loading weights", start=loading), "candidate", "a=1", [EARLIER])
    # 72 files in 72 s: 88 s more, and what earlier starts took after the load.
    assert view == NodeView(
        "vm", 3, "candidate", "a=1", "loading weights", (72, 160), elapsed_s=130.0, about_s=130.0 + 88 + 148 + 5
    )
    ready = StartStatus(StartProgress(Phase.READY), 371.0, 0.0)
    assert node_view(NodeStatus("vm", 3, "ready", start=ready), "candidate", "", [EARLIER]).about_s is None


def test_a_level_is_shown_with_its_interval() -> None:
    status = NodeStatus("vm", 3, "measuring", Load(8), 4, 24, 99.5, half_width=0.04)
    view = node_view(status, "candidate", "")
    assert (view.level, view.requests_done, view.requests_planned) == ("C=8", 4, 24)
    assert (view.output_tokens_per_s, view.half_width) == (99.5, 0.04)


def test_the_score_is_the_best_feasible_and_the_front_has_its_first_objective_first(
    config: SweepConfig, build_row: Callable[..., Row]
) -> None:
    rows = [
        build_row(0, 8, 100.0, role="baseline", ttft_ms=50.0),
        build_row(1, 8, 120.0, ttft_ms=80.0, flags={"max-running-requests": 4}),
        build_row(2, 8, 150.0, ttft_ms=300.0),  # its p99 of 600 ms is too long
        build_row(3, 8, 90.0, ttft_ms=60.0),  # dominated
    ]
    now = results_view(config, rows)
    assert now.score == Score("output_tokens_per_s@8", 100.0, 120.0, 1, pytest.approx(0.2), False, 1, "better")
    assert [(point.trial, point.role) for point in now.front] == [(0, "baseline"), (1, "candidate")]
    assert now.front[1].settings == "max-running-requests=4 NCCL_PROTO=LL"
    assert now.front[1].values == {"ttft_ms.p99@8": 160.0, "output_tokens_per_s@8": 120.0}
    assert results_view(config, []).score == Score("output_tokens_per_s@8")


def test_a_confirmed_best_is_told_by_its_confirmation(config: SweepConfig, build_row: Callable[..., Row]) -> None:
    rows = [build_row(0, 8, 100.0, role="baseline"), build_row(1, 8, 130.0)]
    assert not results_view(config, rows).score.confirmed
    for number in (1, 2, 3):
        for of, rate in ((0, 100.0 + number), (1, 120.0 + number)):
            rows.append(build_row(len(rows), 8, rate, role="confirmation", repeats=of, repeat=number))
    score = results_view(config, rows).score
    assert score.confirmed
    assert score.best_trial == 1
    assert score.best == pytest.approx(122.0, rel=1e-3)
    assert score.gain == pytest.approx(0.196, abs=0.002)


def test_a_finding_is_new_when_it_says_something_else_and_not_when_a_number_moves(
    config: SweepConfig, build_row: Callable[..., Row]
) -> None:
    rows = [build_row(0, 8, 100.0, role="baseline"), build_row(1, 8, 120.0, admits=4)]
    first = results_view(config, rows)
    assert not any(finding.new for finding in first.findings)
    assert "admission_limited" in {finding.kind for finding in first.findings}
    rows.append(build_row(2, 8, 110.0, admits=4))
    second = results_view(config, rows, first)
    assert second.findings != first.findings  # it counts one trial more
    assert not any(finding.new for finding in second.findings)
    rows.append(build_row(3, 8, 140.0))
    third = results_view(config, rows, second)
    assert [finding.kind for finding in third.findings if finding.new] == ["beats_baseline"]


def test_node_seconds_count_each_start_once_and_each_level(build_row: Callable[..., Row]) -> None:
    one = [build_row(1, c, start_id="a") for c in (1, 8)]
    again = [build_row(1, 32, start_id="b"), build_row(2, None, start_id="c", state="failed")]
    # 4.8 s to start and 1.5 s to stop; 7.25 s a level.
    assert node_s([*one, *again]) == pytest.approx(3 * (4.8 + 1.5) + 3 * 7.25)
    assert node_s([]) == 0.0
