"""The Ray actor that owns a node: it starts a server, measures the whole ladder on it, and takes it down.

Tune calls `step` for each stage: the first launches, each further one measures a level, the last tears down
and returns `done`. A trial ends only there, since Tune ends a reused trial anywhere else without any clean-up
(seen in Ray 2.60). Nothing is raised from `step`: how a trial ended is data.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import platform
import resource
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
from ray import tune

from launchers.base import Phase, ServerHandle
from launchers.errors import LaunchError, ServerCrashed, StartCancelled, UnknownFailure, Unreachable
from launchers.process import stop_leftovers
from launchers.sglang.failures import retractions
from launchers.sglang.readback import ReadBack, changes
from orchestrator import readback
from orchestrator.analysis.rows import MeasuredLevel, Outcome, StartInfo
from orchestrator.analysis.validity import allowed_share, cache_state, client_limit
from orchestrator.attention import Attention
from orchestrator.benchmark import loop
from orchestrator.benchmark.counters import flush_cache
from orchestrator.benchmark.datasets.prompts import Prompts
from orchestrator.benchmark.load import run_level
from orchestrator.benchmark.metrics import level_metrics
from orchestrator.benchmark.records import LevelRecord
from orchestrator.board import LevelReport
from orchestrator.config import SimulatedLauncher
from orchestrator.offered_load import Load
from orchestrator.plan import Report, StudyContext, TrialPlan, make_launcher
from orchestrator.pulse import Pulse
from orchestrator.results.tables import counters_table, requests_table
from orchestrator.workload import Workload

#: Ordinal of the baseline, whose output the others are compared with.
_BASELINE = 0
#: How long a server that broke off its answers is given to end.
_DEATH_S = 3.0
#: Failure phase of a server that had been ready.
_UNDER_LOAD = "benchmark"
#: Open files of this process beside the sockets of a level: Ray's own, logs, libraries.
_OTHER_FILES = 1024


class NodeTrial(tune.Trainable):
    """Owns all GPUs of one node; reused from trial to trial."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        """A whole node."""
        return tune.PlacementGroupFactory([config["context"].reservation.bundle])

    def setup(self, config: dict[str, Any]) -> None:
        """Take over the node. Starts nothing: Tune wants heavy work in `step`."""
        self._context: StudyContext = config["context"]
        self._board = config["board"]
        self._node = Node(self._context, ray.get(self._board.prompts.remote()))
        self._pulse = Pulse(self._board, self._node.name)
        self.reset_config(config)

    def __repr__(self) -> str:
        # Ray asks once, after __init__, and shows it in the dashboard and in logs from then on.
        kind = ", SIMULATED" if isinstance(self._context.launcher, SimulatedLauncher) else ""
        return f"NodeTrial({self._node.name}, study {self._context.study}{kind})"

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
                ladder = [load for load in plan.ladder if load not in done]
                server: ServerHandle | None = None
                # Where every level is on disk, only the trial's end got lost: no server is started for that.
                for load in ladder:
                    if server is None:
                        began = time.monotonic()
                        server = self._node.launch(plan, pulse)
                        start = self._node.started(start, server, plan, time.monotonic() - began)
                        start = self._node.checked(start, server, plan, pulse)
                        yield Report("ready", start=start)
                    if pulse.stop:
                        outcome = Outcome("interrupted")
                        break
                    measured = self._node.measure(server, load, pulse)
                    if measured is None:
                        outcome = Outcome("interrupted")
                        break
                    level, record, look = measured
                    start = _looked_at(start, look, plan)
                    report = _posted(plan, start, level, record)
                    ray.get(self._board.post.remote(plan.ordinal, report))
                    yield Report("level", load=load)
                    outcome = self._node.failure(server, level, record)
                    if outcome is not None:
                        break
            except StartCancelled:
                outcome = Outcome("interrupted")
            except LaunchError as error:
                phase = _UNDER_LOAD if error.phase is Phase.READY else str(error.phase)
                outcome = Outcome("failed", error.kind, error.message, phase)
            except Exception as error:
                outcome = Outcome("failed", "orchestrator_error", f"{type(error).__name__}: {error}", pulse.phase)
            pulse.enter("tearing down")
            start = dataclasses.replace(start, **self._node.stop(), rule_disagreements=self._node.disagreements())
            for name, log in self._node.take_logs():
                ray.get(self._board.post_log.remote(name, log))
        yield Report("end", outcome=outcome or Outcome("complete"), start=start)

    def cleanup(self) -> None:
        """Tune lets the actor go: nothing may be left."""
        self._node.end()
        self._pulse.end()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: what is measured is on the driver's disk."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing: see `save_checkpoint`."""


class Node:
    """This node's server, at most one, and what is known of the node."""

    def __init__(self, context: StudyContext, prompts: Prompts | None = None) -> None:
        self._context = context
        self._prompts = prompts
        # Ray writes here which node this is; two of them may share a host in a test.
        node_id = ray.get_runtime_context().get_node_id()
        self.name = f"{socket.gethostname()}/{node_id[:6]}"
        #: Where logs are written until the driver has them; None where it sees those that this node writes.
        self._logs_here = None if context.logs.is_dir() else Path(tempfile.mkdtemp(prefix="sweep-logs-"))
        self._launcher = make_launcher(context.launcher, self._logs_here or context.logs, context.folder)
        self._server: ServerHandle | None = None
        self._disagreements_told = 0
        self.facts: dict[str, Any] = {
            "host": socket.gethostname(),
            "node_id": node_id,
            "gpu_names": self._launcher.gpu_names(),
            "versions": {**self._launcher.versions(), **_own_versions()},
        }
        stop_leftovers(context.study_id, context.run_id)
        _allow_open_files(context.workload)

    def launch(self, plan: TrialPlan, pulse: Pulse) -> ServerHandle:
        """Start the trial's server, unless it is known to fail; raises a LaunchError."""
        if self._server is not None:
            raise RuntimeError("the node still has a server")
        pulse.enter("pre-flight")
        self._launcher.preflight(self._context.spec(plan))
        self.facts["started_at"] = datetime.now(UTC)
        self._server = self._launcher.launch(
            self._context.spec(plan),
            on_progress=pulse.starting,
            should_stop=lambda: pulse.stop > 0,
        )
        return self._server

    def started(self, start: StartInfo, server: ServerHandle, plan: TrialPlan, wall_s: float) -> StartInfo:
        """The facts of a start that became ready."""
        start = dataclasses.replace(
            start,
            start_id=server.start_id,
            started_at=self.facts["started_at"],
            startup_s=sum(server.phase_s.values()),
            startup_wall_s=wall_s,
            phase_s=dict(server.phase_s),
            server_environment=readback.environment_of(server, plan.env),
            start_changes=changes(readback.log_text(server)),
        )
        return _looked_at(start, readback.look_at(server), plan)

    def checked(self, start: StartInfo, server: ServerHandle, plan: TrialPlan, pulse: Pulse) -> StartInfo:
        """The start with its answers to the fixed prompts; the first level flushes what they left in the cache.

        Raises the LaunchError of a server that dies of them.
        """
        pulse.enter("checking output")
        began = time.monotonic()
        attention = Attention(server, pulse, "while it answered the fixed prompts")

        def ask(at_once: bool) -> readback.Tokens | None:
            return readback.ask_prompts(
                server,
                at_once=at_once,
                timeout_s=self._context.workload.request_timeout_s,
                should_stop=attention.over,
            )

        outputs = ask(at_once=True)
        alone = ask(at_once=False) if outputs is not None and plan.ordinal == _BASELINE else None
        attention.check()
        # What its requests were told comes before its end.
        patience_s = _DEATH_S if outputs is None and not pulse.stop else 0.0
        if _ended(server, patience_s) and (error := server.failure()) is not None:
            raise error
        return dataclasses.replace(start, outputs=outputs, outputs_alone=alone, outputs_s=time.monotonic() - began)

    def measure(
        self, server: ServerHandle, load: Load, pulse: Pulse
    ) -> tuple[MeasuredLevel, LevelRecord, ReadBack] | None:
        """One level, what it was computed from, and the server after it; None when it was cancelled.

        Raises the LaunchError of a server that hangs in it.
        """
        workload = self._context.workload
        began = time.monotonic()
        logged = readback.log_size(server)
        pulse.enter("flushing", load)
        flush = flush_cache(server.url, api_key=server.api_key)
        pulse.enter("measuring", load)
        attention = Attention(server, pulse, load.when)
        record = loop.run(
            run_level(
                server.url,
                workload,
                load,
                prompts=self._prompts,
                model=server.model,
                api_key=server.api_key,
                on_progress=attention.progress,
                should_stop=attention.over,
            )
        )
        attention.check()
        if not record.completed and server.alive():
            return None
        look = readback.look_at(server)
        told = readback.log_text(server, since=logged)
        # What the ranks say is a mean since the last flush.
        metrics = level_metrics(record, look.ranks if flush == "flushed" else (), workload.slo)
        level = MeasuredLevel(
            metrics=metrics,
            measured_at=datetime.now(UTC),
            level_wall_s=time.monotonic() - began,
            cache_state=cache_state(
                flush,
                metrics,
                record.counters_before,
                record.counters_after,
                allowed_share(record, self._prompts, workload.api),
            ),
            counters_before=record.counters_before,
            counters_after=record.counters_after,
            level_changes=changes(told),
            retraction_events=retractions(told),
            repeated_prompts=None if self._prompts is None else repeated(self._prompts, record),
            client_limited=client_limit(metrics, workload),
            gave_up=record.gave_up,
        )
        return level, record, look

    def failure(self, server: ServerHandle, level: MeasuredLevel, record: LevelRecord) -> Outcome | None:
        """Why the trial cannot go on after a level; None when it can."""
        at = level.load.when
        if not server.alive() and (error := server.failure()) is not None:
            kind = ServerCrashed.kind if isinstance(error, UnknownFailure) else error.kind
            return Outcome("failed", kind, f"{at}: {error.message}", _UNDER_LOAD)
        # What else makes a level invalid lies with us, and says nothing of the next one.
        if (why := level.server_failed) is not None:
            kind = Unreachable.kind if record.unreachable else "requests_failed"
            return Outcome("failed", kind, f"{at} {why}", _UNDER_LOAD)
        return None

    def disagreements(self) -> tuple[str, ...]:
        """Where rules and server were found to differ since the last call."""
        told, found = self._disagreements_told, self._launcher.findings
        self._disagreements_told = len(found)
        return found[told:]

    def take_logs(self) -> Iterator[tuple[str, bytes]]:
        """Names and texts of the logs that the driver does not have; each is gone from here once it was taken."""
        for log in sorted(self._logs_here.glob("*.log")) if self._logs_here else ():
            with contextlib.suppress(OSError):
                yield log.name, log.read_bytes()
                log.unlink()

    def end(self) -> None:
        """Let the node go."""
        self.stop()
        if self._logs_here is not None:
            shutil.rmtree(self._logs_here, ignore_errors=True)

    def stop(self) -> dict[str, Any]:
        """Take the server down; teardown facts for StartInfo, empty where there was none."""
        server, self._server = self._server, None
        if server is None:
            return {}
        report = server.stop()
        return {"teardown_s": report.took_s, "stop_proven": report.proven, "stop_report": report.as_dict()}


def repeated(prompts: Prompts, record: LevelRecord) -> int:
    """Requests of a level whose prompt it had sent before."""
    sent = 1 + max((request.index for request in record.requests), default=-1)
    return 0 if prompts.unique is None else max(0, sent - prompts.unique)


def _ended(server: ServerHandle, patience_s: float) -> bool:
    """Whether the server ends by itself within this time."""
    end = time.monotonic() + patience_s
    while server.alive():
        if time.monotonic() >= end:
            return False
        time.sleep(0.05)
    return True


def _looked_at(start: StartInfo, look: ReadBack, plan: TrialPlan) -> StartInfo:
    """The start with what its server runs with now; as it was where the server did not tell."""
    if not look.resolved:
        return start
    return dataclasses.replace(
        start,
        effective_settings=look.settings(plan.flags),
        effective_max_running_requests=look.max_running_requests,
        effective_kv_tokens=look.kv_tokens,
    )


def _posted(plan: TrialPlan, start: StartInfo, level: MeasuredLevel, record: LevelRecord) -> LevelReport:
    """A level as the board gets it."""

    def table(make: Callable[..., pa.Table]) -> pa.Table:
        return make(record, trial=plan.ordinal, attempt=plan.attempt, start_id=start.start_id)

    return LevelReport(start, level, table(requests_table), table(counters_table) if record.series else None)


def _allow_open_files(workload: Workload) -> None:
    """Let this process open a socket for each request in flight, as far as the system lets it."""
    most = max([*workload.concurrency, *(workload.arrivals.max_in_flight for _ in workload.request_rate)])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))


def _own_versions() -> dict[str, str]:
    """What measured: this project, and what it stands on."""
    packages = ("sglang-orchestrator", "ray", "optuna", "aiohttp")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in packages}}
