"""What a person sees of a sweep in Ray: job metadata, the node's owner by name, metrics with tags."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import ray
import requests
from ray.util.state import list_actors

from orchestrator import cluster as ray_cluster
from orchestrator import config as schema
from orchestrator.board import StudyProgress, start_board
from orchestrator.datasets import RandomIds
from orchestrator.node import NodeTrial
from orchestrator.offered_load import Load
from orchestrator.plan import Reservation, StudyContext, TrialPlan
from orchestrator.workload import Level, Workload

DEADLINE_S = 60.0


def exported() -> str:
    """The metrics of every node, as Ray's agents export them for Prometheus."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    texts = []
    for node in nodes:
        url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
        texts.append(requests.get(url, timeout=5).text)
    return "\n".join(texts)


def wait_for_metric(name: str, *tags: str) -> str:
    """The metric's line that carries every tag."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        for line in exported().splitlines():
            if line.startswith(f"ray_{name}{{") and all(tag in line for tag in tags):
                return line
        time.sleep(0.5)
    raise AssertionError(f"{name} with {tags} is not exported")


def test_job_owner_and_metrics_tell_what_runs(tmp_path: Path) -> None:
    context = StudyContext(
        study="seen",
        study_id="seen-1",
        run_id="run-1",
        launcher=schema.SimulatedLauncher(profile="tiny", startup_speedup=100),
        workload=Workload(
            dataset=RandomIds(input_tokens=16, output_tokens=16),
            concurrency=(2,),
            level=Level(requests_per_user=1, min_s=0.1, max_s=5, half_width=None, warmup_tolerance=None),
        ),
        model="tiny",
        logs=tmp_path,
        gpus=8,
        reservation=Reservation("GPU", 8),
        folder=Path.cwd(),
    )
    with ray_cluster.cluster(None, "seen", 8, {"model": "tiny"}) as joined:
        assert joined.dashboard_url.startswith("http://")
        assert len(ray_cluster.nodes_for(Reservation("GPU", 8))) == 1
        assert ray_cluster.whole_node(0).resource == "CPU"
        from ray.dashboard.modules.job.sdk import JobSubmissionClient

        (job,) = JobSubmissionClient(joined.dashboard_url).list_jobs()
        assert job.metadata == {"job_name": "sweep seen", "study": "seen", "model": "tiny"}

        board = start_board("seen", simulated=True)
        plan = TrialPlan(ordinal=7, attempt=1, flags={}, env={}, ladder=(Load(2),))
        owner = ray.remote(NodeTrial).options(num_gpus=8).remote({"context": context, "board": board, "plan": plan})
        events = [ray.get(owner.train.remote())["report"] for _ in range(3)]
        assert [e.event for e in events] == ["ready", "level", "end"]
        assert events[-1].outcome.state == "complete"
        assert events[-1].start.stop_proven
        ray.get(board.progress.remote(StudyProgress(3, 16, 512.5, 480.0, 1.25, 2, 7)))

        actors = {
            actor.class_name: actor for actor in list_actors(address=ray.get_runtime_context().gcs_address, detail=True)
        }
        assert actors["NodeTrial"].repr_name.startswith("NodeTrial(")
        assert actors["NodeTrial"].repr_name.endswith(", study seen, SIMULATED)")
        assert (actors["Board"].repr_name, actors["Board"].name) == ("Board(study seen)", "board of seen")

        assert wait_for_metric("sweep_trials_done", 'study="seen"').endswith(" 3.0")
        assert wait_for_metric("sweep_best_score", 'study="seen"', 'simulated="true"').endswith(" 512.5")
        assert wait_for_metric("sweep_baseline_score", 'study="seen"').endswith(" 480.0")
        assert wait_for_metric("sweep_trials_planned", 'study="seen"').endswith(" 16.0")
        assert wait_for_metric("sweep_node_hours", 'study="seen"').endswith(" 1.25")
        assert wait_for_metric("sweep_front_trials", 'study="seen"').endswith(" 2.0")
        assert wait_for_metric("sweep_findings", 'study="seen"').endswith(" 7.0")
        # The node has nothing to do any more.
        assert wait_for_metric("sweep_load", 'kind="users"', 'node="').endswith(" 0.0")
        wait_for_metric("sweep_trial_phase", 'trial="7"', 'phase="measuring"')
        assert float(wait_for_metric("sweep_output_tokens_per_s", 'trial="7"', 'concurrency="2"').split()[-1]) > 0


def test_a_small_shm_is_a_readable_warning_and_no_reason_to_stop() -> None:
    warnings = ray_cluster.shm_warnings(67_108_864)
    assert len(warnings) == 2
    assert "64 MiB" in warnings[0]
    assert "/tmp" in warnings[0]
    assert "NCCL" in warnings[1]
    assert ray_cluster.shm_warnings(16 * 2**30) == ()


def test_the_object_store_is_small_on_purpose() -> None:
    # Ray's default takes a third of the memory; 75 MiB is the least it accepts.
    assert 75 * 2**20 < ray_cluster.OBJECT_STORE_BYTES <= 256 * 2**20


def test_a_cluster_that_is_not_there_is_a_clear_error() -> None:
    joining = ray_cluster.cluster("127.0.0.1:1", "seen", None)
    with pytest.raises(ray_cluster.ClusterError, match=r"joined at 127\.0\.0\.1:1"):
        joining.__enter__()
