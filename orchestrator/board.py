"""The board: a small Ray actor beside the driver, through which nodes and driver tell each other what goes on.

Nodes post phases and measured levels; the driver takes levels from it, asks nodes to stop through it, and
reads it for the display. It also exports the sweep's numbers as Ray metrics, so that the dashboard has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pyarrow as pa
import ray
from ray.util.metrics import Gauge
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from orchestrator.analysis.rows import MeasuredLevel, StartInfo
from orchestrator.benchmark.datasets.prompts import Prompts
from orchestrator.node_status import NodeStatus
from orchestrator.offered_load import Load


class Stop(IntEnum):
    """What the nodes are asked to do."""

    NO = 0
    #: Finish the level that is being measured, then tear down; a start in progress is given up.
    AFTER_LEVEL = 1
    #: Tear down at once.
    NOW = 2


@dataclass(frozen=True)
class LevelReport:
    """A measured level on its way to the driver; the requests travel as Arrow."""

    start: StartInfo
    level: MeasuredLevel
    requests: pa.Table
    #: The server's counters over the level, of `tables.counters_table`; None where none were read.
    counters: pa.Table | None = None


@dataclass(frozen=True)
class StudyProgress:
    """How far the study is, for the metrics."""

    done: int
    planned: int
    best: float | None
    baseline: float | None
    #: Of all runs together.
    node_hours: float
    #: Trials on the front, and sentences found.
    front: int
    findings: int


class Board:
    """The actor's class; `start_board` makes the actor."""

    def __init__(self, study: str, prompts: Prompts | None = None, simulated: bool = False) -> None:
        self._study = study
        self._prompts = prompts
        self._stop = Stop.NO
        self._levels: dict[tuple[int, Load], LevelReport] = {}
        self._kept: dict[int, list[Load]] = {}
        self._logs: dict[str, bytes] = {}
        self._nodes: dict[str, NodeStatus] = {}
        self._metrics = _Metrics(study, simulated)

    def __repr__(self) -> str:
        # As the dashboard's list of actors has it.
        return f"Board(study {self._study})"

    def beat(self, status: NodeStatus) -> Stop:
        """A node's sign of life: what it does; answered with what it shall do."""
        self._metrics.node(self._nodes.get(status.node), status)
        self._nodes[status.node] = status
        return self._stop

    def leave(self, node: str) -> None:
        """A node has nothing to do (any more)."""
        status = self._nodes.pop(node, None)
        self._metrics.node(status, None)

    def post(self, ordinal: int, report: LevelReport) -> None:
        """A node has measured a level."""
        self._levels[ordinal, report.level.load] = report
        self._metrics.level(ordinal, report.level)

    def take(self, ordinal: int, load: Load) -> LevelReport | None:
        """The driver fetches a level, once."""
        return self._levels.pop((ordinal, load), None)

    def prompts(self) -> Prompts | None:
        """What every node sends; None: each makes its own of the workload."""
        return self._prompts

    def post_log(self, name: str, text: bytes) -> None:
        """A node that does not see the study's folder hands over the log of a start."""
        self._logs[name] = text

    def take_logs(self) -> dict[str, bytes]:
        """The driver fetches the logs, once."""
        logs, self._logs = self._logs, {}
        return logs

    def keep(self, ordinal: int, loads: list[Load]) -> None:
        """The driver has these levels of the trial on disk: a further start need not measure them."""
        self._kept[ordinal] = sorted({*self._kept.get(ordinal, []), *loads})

    def kept(self, ordinal: int) -> list[Load]:
        """The levels of the trial that are on disk."""
        return self._kept.get(ordinal, [])

    def stop(self, how: Stop) -> None:
        """Ask every node to stop; never less than was asked before."""
        self._stop = max(self._stop, how)

    def progress(self, progress: StudyProgress) -> None:
        """The driver tells how far the study is."""
        self._metrics.progress(progress)

    def nodes(self) -> list[NodeStatus]:
        """What every node does now."""
        return list(self._nodes.values())


class _Metrics:
    """The sweep in Ray's metrics; each has the study as a tag, and whether its figures are simulated."""

    def __init__(self, study: str, simulated: bool) -> None:
        self._tags = {"study": study, "simulated": str(simulated).lower()}

        def gauge(name: str, text: str, *tags: str) -> Gauge:
            return Gauge(f"sweep_{name}", description=text, tag_keys=("study", "simulated", *tags))

        self._done = gauge("trials_done", "Trials that have their end, those that prove the result included")
        self._planned = gauge("trials_planned", "Trials that it will be, about")
        self._best = gauge("best_score", "Best score so far")
        self._baseline = gauge("baseline_score", "The baseline's score")
        self._hours = gauge("node_hours", "Node-hours used, all runs of the study together")
        self._front = gauge("front_trials", "Trials on the Pareto front")
        self._findings = gauge("findings", "Findings so far")
        self._phase = gauge("trial_phase", "1 for the phase a trial is in", "trial", "phase")
        self._load = gauge("load", "What a node offers its server now: users, or requests per second", "node", "kind")
        self._now = gauge(
            "running_output_tokens_per_s", "Output tokens per second of the level a node measures", "node"
        )
        self._rate = gauge("output_tokens_per_s", "Output tokens per second of a level", "trial", "concurrency")
        self._accept = gauge("accept_length", "Output tokens per verify step of a level", "trial", "concurrency")

    def progress(self, progress: StudyProgress) -> None:
        self._done.set(progress.done, self._tags)
        self._planned.set(progress.planned, self._tags)
        self._hours.set(progress.node_hours, self._tags)
        self._front.set(progress.front, self._tags)
        self._findings.set(progress.findings, self._tags)
        if progress.best is not None:
            self._best.set(progress.best, self._tags)
        if progress.baseline is not None:
            self._baseline.set(progress.baseline, self._tags)

    def node(self, old: NodeStatus | None, new: NodeStatus | None) -> None:
        """A node does something else, or nothing any more."""
        for status, value in ((old, 0), (new, 1)):
            if status is not None:
                self._phase.set(value, {**self._tags, "trial": str(status.ordinal), "phase": status.phase})
        node = new or old
        if node is None:
            return
        tags = {**self._tags, "node": node.node}
        load = None if new is None or new.phase != "measuring" else new.load
        self._load.set((load and load.concurrency) or 0, {**tags, "kind": "users"})
        self._load.set((load and load.request_rate) or 0.0, {**tags, "kind": "requests_per_s"})
        self._now.set((load and node.output_tokens_per_s) or 0.0, tags)

    def level(self, ordinal: int, level: MeasuredLevel) -> None:
        if level.load.repeat:
            return
        tags = {**self._tags, "trial": str(ordinal), "concurrency": level.load.text}
        if level.metrics.output_tokens_per_s is not None:
            self._rate.set(level.metrics.output_tokens_per_s, tags)
        if level.metrics.accept_length is not None:
            self._accept.set(level.metrics.accept_length, tags)


def start_board(study: str, prompts: Prompts | None = None, *, simulated: bool = False) -> Any:
    """The board's actor handle. It needs no CPU, and stays beside the driver: any other node may be lost."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    options = ray.remote(Board).options(
        name=f"board of {study}", num_cpus=0, max_concurrency=1, scheduling_strategy=here
    )
    return options.remote(study, prompts, simulated)
