"""Tells where the sweep stands: to the display, to `live.json`, and to Ray's metrics through the board."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import ray

from orchestrator.analysis.finding import own_settings
from orchestrator.analysis.rows import Row
from orchestrator.board import StudyProgress
from orchestrator.conductor import Conductor
from orchestrator.config import SweepConfig
from orchestrator.live_file import LiveFile
from orchestrator.node_status import NodeStatus
from orchestrator.report.estimate import recent_starts
from orchestrator.report.progress import Display
from orchestrator.report.snapshot import NodeView, ResultsView, Score, Snapshot, node_view, results_view
from orchestrator.report.summary import fixed_settings


class Reporter:
    """Makes the snapshots. What needs all rows is computed when a trial has ended, never at a tick."""

    def __init__(self, config: SweepConfig, simulated: bool, conductor: Conductor, display: Display) -> None:
        self._config = config
        self._simulated = simulated
        self._conductor = conductor
        self._display = display
        self._fixed = fixed_settings(config)
        self._began = time.monotonic()
        self._results = ResultsView(Score(str(config.score.objective.metric)))

    def resumed(self) -> None:
        """What earlier runs have measured is known. Nothing of it is new."""
        self._results = results_view(self._config, self._rows())

    def trial_ended(self) -> None:
        """A trial has its end."""
        self._results = results_view(self._config, self._rows(), self._results)

    def _rows(self) -> list[Row]:
        return [row for rows in list(self._conductor.known.values()) for row in rows]

    def tell(self, board: Any, live: LiveFile, stopping: int) -> None:
        """Show how it stands now. Called about twice a second."""
        snapshot = self.snapshot(ray.get(board.nodes.remote()), stopping)
        score = snapshot.results.score
        progress = StudyProgress(
            done=snapshot.done,
            planned=snapshot.planned,
            best=score.best,
            baseline=score.baseline,
            node_hours=snapshot.node_hours,
            front=len(snapshot.results.front),
            findings=len(snapshot.results.findings),
        )
        ray.get(board.progress.remote(progress))
        self._display.update(snapshot)
        live.update(snapshot)

    def snapshot(self, nodes: Sequence[NodeStatus] = (), stopping: int = 0, *, over: bool = False) -> Snapshot:
        """How it stands now; of a run that is `over` nothing is left, and Ray is not asked."""
        conductor = self._conductor
        left = None if over else conductor.left_node_s()
        return Snapshot(
            study=self._config.study,
            simulated=self._simulated,
            done=conductor.done,
            planned=conductor.planned,
            elapsed_s=time.monotonic() - self._began,
            left_s=None if over else conductor.left_s(),
            node_hours=conductor.used_node_s() / 3600,
            node_hours_left=None if left is None else left / 3600,
            results=self._results,
            nodes=self._views(nodes),
            stopping=stopping,
        )

    def _views(self, nodes: Sequence[NodeStatus]) -> tuple[NodeView, ...]:
        trials = {trial.ordinal: trial for trial in list(self._conductor.live.values())}
        starts = recent_starts(rows[0].start for rows in list(self._conductor.known.values()) if rows)
        views = []
        for status in sorted(nodes, key=lambda status: status.node):
            trial = trials.get(status.ordinal)
            if trial is None:  # it has just ended, and the node takes its server down
                views.append(node_view(status, "", "", starts))
                continue
            settings = own_settings(trial.candidate.flags, trial.candidate.env, self._fixed)
            views.append(node_view(status, trial.role, settings, starts))
        return tuple(views)
