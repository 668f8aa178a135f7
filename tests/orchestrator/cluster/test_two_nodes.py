"""A study on a Ray cluster of two nodes, and what becomes of it when one of them is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

from orchestrator.analysis.rows import Row
from orchestrator.results.store import ResultStore

SPACE = """
study: two-nodes
model: tiny
launcher: {kind: simulated, profile: tiny, startup_speedup: 5}
node: {gpus: 8}
space:
  flags:
    max-running-requests: {choices: [2, 4, 8]}
    schedule-policy: {choices: [fcfs, lpm]}
workload:
  dataset: {kind: random_ids, input_tokens: 16, output_tokens: 64}
  concurrency: [1, 4]
  level: {requests_per_user: 3, min_s: 1.5, max_s: 5,
          half_width: null, warmup_tolerance: null, max_client_lag_ms: 10000}
score: {metric: output_tokens_per_s, concurrency: 4}
budget: {trials: 6}
repeats: {share: 0}
sampler: {kind: random, seed: 1}
"""
DEADLINE_S = 150.0


def until(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {deadline_s:.0f} s"
        time.sleep(0.05)


@pytest.fixture
def two_nodes() -> Iterator[Cluster]:
    # The head has no GPUs: it is never the one that is lost.
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
    try:
        cluster.add_node(num_cpus=1, num_gpus=8)
        cluster.add_node(num_cpus=1, num_gpus=8)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        cluster.shutdown()
        if ray.is_initialized():
            ray.shutdown()


@pytest.fixture
def driver(two_nodes: Cluster, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    space = tmp_path / "space.yaml"
    space.write_text(SPACE)
    with (tmp_path / "out.txt").open("wb") as out:
        command = [sys.executable, "-m", "orchestrator.sweep", str(space), "--results", str(tmp_path)]
        process = subprocess.Popen([*command, "--address", two_nodes.address], stdout=out, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()


def finished(tmp_path: Path) -> dict[int, list[Row]]:
    return ResultStore(tmp_path / "two-nodes", read_only=True).trials()


def output(tmp_path: Path) -> str:
    return (tmp_path / "out.txt").read_text(errors="replace")


def hosts(trials: dict[int, list[Row]]) -> set[str | None]:
    return {row.start.node_id for rows in trials.values() for row in rows}


def levels(rows: list[Row]) -> list[int]:
    return sorted(row.level.load.concurrency for row in rows if row.level)


def test_two_nodes_share_a_study_and_a_lost_one_loses_nothing(
    two_nodes: Cluster, driver: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    store = ResultStore(tmp_path / "two-nodes", read_only=True)
    until(lambda: len(hosts(finished(tmp_path))) == 2 or driver.poll() is not None, "both nodes at work")
    assert driver.poll() is None, output(tmp_path)
    doomed = two_nodes.list_all_nodes()[-1]

    def halfway() -> list[Row]:
        """A trial on that node that has its first level on disk and is at the second."""
        rows = [row for row in store.rows() if row.outcome.state == "interrupted"]
        return [row for row in rows if row.start.node_id == doomed.node_id and levels([row]) == [1]]

    def frozen_halfway() -> list[Row]:
        """Such a trial with its server stopped: a worker outlives its raylet by seconds, and would finish it."""
        rows = halfway()
        servers = [pid for row in rows for pid in marked("START", str(row.start.start_id))]
        for pid in servers:
            os.kill(pid, signal.SIGSTOP)
        if servers and halfway() == rows:
            return rows
        for pid in servers:
            os.kill(pid, signal.SIGCONT)
        return []

    found: list[Row] = []
    until(lambda: found.extend(frozen_halfway()) or found or driver.poll() is not None, "a trial halfway on the node")
    assert found, output(tmp_path)
    (lost,) = found
    before = finished(tmp_path)
    two_nodes.remove_node(doomed, allow_graceful=False)
    until(lambda: driver.poll() is not None, "the end of the sweep")
    assert driver.returncode == 0, output(tmp_path)

    again = finished(tmp_path)[lost.trial.trial]
    assert again[0].level == lost.level
    first, second = (row.start for row in again)
    assert first.node_id == doomed.node_id
    assert second.node_id != doomed.node_id
    assert first.start_id != second.start_id
    after = finished(tmp_path)
    assert sorted(after) == list(range(6))
    assert all(levels(rows) == [1, 4] and rows[0].outcome.state == "complete" for rows in after.values())
    for ordinal, rows in before.items():
        assert [row.level for row in rows] == [row.level for row in after[ordinal]]
    identities = [rows[0].trial.identity for rows in after.values()]
    assert len(set(identities)) == len(identities)
    assert not marked("STUDY", (tmp_path / "two-nodes" / "study.id").read_text().strip())


def marked(what: str, value: str) -> list[int]:
    """Processes that carry this marker of ours."""
    marker, found = f"ORCHESTRATOR_{what}={value}".encode(), []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if marker in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                found.append(int(name))
        except OSError:
            continue
    return found
