"""The Ray actor that owns a node: it starts a server, measures the whole ladder on it, and takes it down.

Tune calls `step` for each stage: the first launches, each further one measures a level, the last tears down
and returns `done`. A trial ends only there, since Tune ends a reused trial anywhere else without any clean-up
(seen in Ray 2.60). Nothing is raised from `step`: how a trial ended is data.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.metadata
import platform
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ray
import requests
from ray import tune

from launchers.base import Phase, ServerHandle
from launchers.errors import LaunchError, StartCancelled
from launchers.process import stop_leftovers
from orchestrator.analysis.rows import CacheState, MeasuredLevel, Outcome, StartInfo
from orchestrator.benchmark.counters import flush_cache
from orchestrator.benchmark.load import Progress, run_level
from orchestrator.benchmark.metrics import level_metrics
from orchestrator.benchmark.records import LevelRecord
from orchestrator.board import LevelReport, NodeStatus, Stop
from orchestrator.plan import Report, StudyContext, TrialPlan, make_launcher
from orchestrator.results.tables import requests_table

_BEAT_S = 0.25


class NodeTrial(tune.Trainable):
    """Owns all GPUs of one node; reused from trial to trial."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        """The GPUs alone place a trial: whoever holds all of a node's GPUs owns the node."""
        return tune.PlacementGroupFactory([{"CPU": 0, "GPU": config["context"].reserved_gpus}])

    def setup(self, config: dict[str, Any]) -> None:
        """Take over the node. Starts nothing: Tune wants heavy work in `step`."""
        self._context: StudyContext = config["context"]
        self._board = config["board"]
        self._node = Node(self._context)
        self._pulse = Pulse(self._board, self._node.name)
        self.reset_config(config)

    def __repr__(self) -> str:
        # Ray asks once, after __init__, and shows it in the dashboard and in logs from then on.
        return f"NodeTrial({self._node.name}, study {self._context.study})"

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """The next trial on this node."""
        self._stages = self._run(new_config["plan"])
        return True

    def step(self) -> dict[str, Any]:
        """One stage."""
        report = next(self._stages)
        return {"report": report, "done": report.event == "end"}

    def _run(self, plan: TrialPlan) -> Iterator[Report]:
        """A trial from its start to its end. Whatever happens in it, the last report says how it ended."""
        start = StartInfo(attempt=plan.attempt, start_id=None, **self._node.facts)
        outcome: Outcome | None = None
        with self._pulse.of(plan.ordinal) as pulse:
            try:
                done = ray.get(self._board.kept.remote(plan.ordinal))
                ladder = [c for c in self._context.workload.concurrency if c not in done]
                began = time.monotonic()
                server = self._node.launch(plan, pulse)
                start = self._node.started(start, server, time.monotonic() - began)
                yield Report("ready", start=start)
                for concurrency in ladder:
                    if pulse.stop:
                        outcome = Outcome("interrupted")
                        break
                    measured = self._node.measure(server, concurrency, pulse)
                    if measured is None:
                        outcome = Outcome("interrupted")
                        break
                    level, record = measured
                    table = requests_table(record, trial=plan.ordinal, attempt=plan.attempt, start_id=start.start_id)
                    report = LevelReport(start, level, table)
                    ray.get(self._board.post.remote(plan.ordinal, report))
                    yield Report("level", concurrency=concurrency)
                    outcome = self._node.failure(server, level)
                    if outcome is not None:
                        break
            except StartCancelled:
                outcome = Outcome("interrupted")
            except LaunchError as error:
                outcome = Outcome("failed", error.kind, error.message, str(error.phase))
            except Exception as error:
                outcome = Outcome("failed", "orchestrator_error", f"{type(error).__name__}: {error}", pulse.phase)
            pulse.enter("tearing down")
            start = dataclasses.replace(start, **self._node.stop())
        yield Report("end", outcome=outcome or Outcome("complete"), start=start)

    def cleanup(self) -> None:
        """Tune lets the actor go: nothing may be left."""
        self._node.stop()
        self._pulse.end()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: what is measured is on the driver's disk."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing: see `save_checkpoint`."""


class Node:
    """This node's server, at most one, and what is known of the node."""

    def __init__(self, context: StudyContext) -> None:
        self._context = context
        # Ray writes here which node this is; two of them may share a host in a test.
        node_id = ray.get_runtime_context().get_node_id()
        self.name = f"{socket.gethostname()}/{node_id[:6]}"
        logs = context.logs if context.logs.is_dir() else Path(tempfile.mkdtemp(prefix="sweep-logs-"))
        self._launcher = make_launcher(context.launcher, logs)
        self._server: ServerHandle | None = None
        self.facts: dict[str, Any] = {
            "host": socket.gethostname(),
            "node_id": node_id,
            "gpu_names": self._launcher.gpu_names(),
            "versions": {**self._launcher.versions(), **_own_versions()},
        }
        stop_leftovers(context.study_id, context.run_id)

    def launch(self, plan: TrialPlan, pulse: Pulse) -> ServerHandle:
        """Start the trial's server; raises a LaunchError."""
        if self._server is not None:
            raise RuntimeError("the node still has a server")
        self.facts["started_at"] = datetime.now(UTC)
        self._server = self._launcher.launch(
            self._context.spec(plan),
            on_phase=lambda phase: pulse.enter(str(phase)),
            should_stop=lambda: pulse.stop > 0,
        )
        return self._server

    def started(self, start: StartInfo, server: ServerHandle, wall_s: float) -> StartInfo:
        """The facts of a start that became ready."""
        total = server.phase_s.get("tokenizer_e2e") if server.simulated else sum(server.phase_s.values())
        return dataclasses.replace(
            start,
            start_id=server.start_id,
            started_at=self.facts["started_at"],
            startup_s=total,
            startup_wall_s=wall_s,
            phase_s=dict(server.phase_s),
            effective_settings=_effective(server.url),
        )

    def measure(self, server: ServerHandle, concurrency: int, pulse: Pulse) -> tuple[MeasuredLevel, LevelRecord] | None:
        """One level and what it was computed from; None when it was cancelled."""
        workload = self._context.workload
        began = time.monotonic()
        pulse.enter("flushing", concurrency)
        cache: CacheState = flush_cache(server.url)
        pulse.enter("measuring", concurrency)
        record = asyncio.run(
            run_level(
                server.url,
                workload,
                concurrency,
                model=self._context.model,
                on_progress=pulse.progress,
                should_stop=lambda: pulse.stop is Stop.NOW or not server.alive(),
            )
        )
        if not record.completed and server.alive():
            return None
        level = MeasuredLevel(
            metrics=level_metrics(record),
            measured_at=datetime.now(UTC),
            level_wall_s=time.monotonic() - began,
            cache_state=cache,
            counters_before=record.counters_before,
            counters_after=record.counters_after,
        )
        return level, record

    def failure(self, server: ServerHandle, level: MeasuredLevel) -> Outcome | None:
        """Why the trial cannot go on after a level; None when it can."""
        if not server.alive():
            return Outcome("failed", "crashed_under_load", server.failure().message, f"concurrency {level.concurrency}")
        if not level.comparable:
            metrics = level.metrics
            text = f"{metrics.requests_failed} of {metrics.requests_total} requests failed: {metrics.first_error}"
            return Outcome("failed", "requests_failed", text, f"concurrency {level.concurrency}")
        return None

    def stop(self) -> dict[str, Any]:
        """Take the server down; teardown facts for StartInfo, empty where there was none."""
        server, self._server = self._server, None
        if server is None:
            return {}
        report = server.stop()
        return {"teardown_s": report.took_s, "stop_proven": report.proven}


class Pulse:
    """A thread that tells the board what the node does, and knows from it whether to stop."""

    def __init__(self, board: Any, node: str) -> None:
        self._board = board
        self._node = node
        self._status: NodeStatus | None = None
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ended = False
        self.stop = Stop.NO
        threading.Thread(target=self._beat, name="pulse", daemon=True).start()

    @property
    def phase(self) -> str:
        """The phase that was entered last."""
        return self._status.phase if self._status else ""

    @contextlib.contextmanager
    def of(self, ordinal: int) -> Iterator[Pulse]:
        """While a trial runs."""
        self._status = NodeStatus(self._node, ordinal, str(Phase.SPAWNED))
        try:
            yield self
        finally:
            with self._lock:
                self._status = None
                with contextlib.suppress(ray.exceptions.RayError):
                    ray.get(self._board.leave.remote(self._node))

    def enter(self, phase: str, concurrency: int | None = None) -> None:
        """A phase begins; the board knows at once."""
        if self._status:
            self._status = NodeStatus(self._node, self._status.ordinal, phase, concurrency)
            self._wake.set()

    def progress(self, progress: Progress) -> None:
        """How far the level is."""
        if self._status:
            self._status = dataclasses.replace(
                self._status,
                done=progress.done,
                total=progress.total,
                output_tokens_per_s=progress.output_tokens_per_s,
            )

    def end(self) -> None:
        """No further beat."""
        self._ended = True
        self._wake.set()

    def _beat(self) -> None:
        while not self._ended:
            with self._lock:
                status = self._status
                if status is not None:
                    with contextlib.suppress(ray.exceptions.RayError):
                        self.stop = ray.get(self._board.beat.remote(status))
            self._wake.wait(_BEAT_S)
            self._wake.clear()


def _own_versions() -> dict[str, str]:
    """What measured: this project, and what it stands on."""
    packages = ("sglang-orchestrator", "ray", "optuna", "aiohttp")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in packages}}


def _effective(url: str) -> dict[str, Any]:
    """What the server says it runs with: scalars of /server_info and what each DP rank admits."""
    with contextlib.suppress(requests.RequestException, ValueError, AttributeError):
        info = requests.get(f"{url}/server_info", timeout=10).json()
        settings = {k: v for k, v in info.items() if isinstance(v, str | int | float | bool)}
        for secret in ("api_key", "admin_api_key", "launch_command"):
            settings.pop(secret, None)
        states = info.get("internal_states") or []
        admitted = [
            s["effective_max_running_requests_per_dp"] for s in states if "effective_max_running_requests_per_dp" in s
        ]
        if admitted:
            settings["effective_max_running_requests"] = sum(admitted)
        return settings
    return {}
