"""A conductor with its surroundings, for tests: nodes do what the test says, and the clock moves as it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.analysis.rows import Outcome, Row, StartInfo
from orchestrator.benchmark.records import LevelRecord, RequestRecord
from orchestrator.board import LevelReport
from orchestrator.conductor import Conductor, Finished, Identification
from orchestrator.config import SweepConfig
from orchestrator.offered_load import Load
from orchestrator.plan import Report, TrialPlan
from orchestrator.results.store import ResultStore
from orchestrator.results.tables import requests_table
from orchestrator.search.storage import open_storage
from orchestrator.search.study import Study
from orchestrator.yaml_source import parse_sweep

SPACE = """
study: conducted
model: tiny
launcher: {kind: simulated, profile: tiny}
space:
  flags:
    max-running-requests: {choices: [2, 4, 8]}
    schedule-policy: {choices: [fcfs, lpm]}
workload: {concurrency: [1, 4]}
score: {metric: output_tokens_per_s, concurrency: 4}
constraints: ["ttft_ms.p99@4 <= 150"]
budget: {trials: 4}
repeats: {share: 0}
sampler: {kind: random, seed: 5}
"""
Build = Callable[..., Row]


class Desk:
    """A conductor with its surroundings: nodes that do what the test says, and a clock it moves."""

    def __init__(self, folder: Path, build_row: Build, changes: dict[str, Any] | None = None, nodes: int = 1) -> None:
        config, _ = parse_sweep(SPACE, "conducted.yaml")
        self.config = SweepConfig.model_validate({**config.model_dump(by_alias=True), **(changes or {})})
        self.store = ResultStore(folder)
        self.study = Study(open_storage(f"sqlite:///{folder}/study.db"), "conducted-id-1", self.config)
        self.now = 0.0
        self.nodes = nodes
        self.levels: dict[tuple[int, Load], LevelReport] = {}
        self.kept: dict[int, set[Load]] = {}
        self.finished: list[Finished] = []
        self._build_row = build_row
        self._starts = 0
        self.conductor = Conductor(
            self.config,
            self.study,
            self.store,
            Identification("id-1", True, "tiny", lambda plan: f"launch {plan.ordinal}"),
            nodes=lambda: self.nodes,
            fetch=lambda ordinal, load: self.levels.pop((ordinal, load), None),
            keep=lambda ordinal, kept: self.kept.setdefault(ordinal, set()).update(kept),
            on_end=self.finished.append,
            clock=lambda: self.now,
        )

    def start(self, plan: TrialPlan) -> StartInfo:
        self._starts += 1
        return StartInfo(plan.attempt, f"start-{self._starts}", host="vm", stop_proven=True)

    def measure(self, key: str, plan: TrialPlan, start: StartInfo, load: Load, **figures: Any) -> None:
        """The node has measured a level: it is on the board, and Tune reports it."""
        row = self._build_row(trial=plan.ordinal, concurrency=load, **figures)
        assert row.level is not None
        record = RequestRecord(0, 0, False, 0.0, 1.0, (0.5,), (4.0,), output_tokens=4)
        level = LevelRecord(load, (record,), (0.0, 1.0), (0.0, 1.0), True)
        table = requests_table(level, trial=plan.ordinal, attempt=plan.attempt, start_id=start.start_id)
        self.levels[plan.ordinal, load] = LevelReport(start, row.level, table)
        self.conductor.report(key, Report("level", load=load))

    def run(self, key: str, rate: float = 100.0, took_s: float = 10.0, **figures: Any) -> TrialPlan | None:
        """A whole trial on a node that does everything right; None where none is handed out."""
        plan = self.conductor.next(key)
        if plan is not None:
            self.carry_out(key, plan, rate, took_s, **figures)
        return plan

    def carry_out(self, key: str, plan: TrialPlan, rate: float, took_s: float = 10.0, **figures: Any) -> None:
        """A trial that was handed out, on a node that does everything right."""
        start = self.start(plan)
        self.conductor.report(key, Report("ready", start=start))
        for load in plan.ladder:
            if load not in self.kept.get(plan.ordinal, set()):
                self.measure(key, plan, start, load, rate=rate, **figures)
        self.now += took_s
        self.end(key, start, Outcome("complete"))

    def end(self, key: str, start: StartInfo, outcome: Outcome) -> None:
        self.conductor.end(key, Report("end", outcome=outcome, start=start))

    def fail(self, key: str, kind: str, message: str = "it died") -> TrialPlan:
        """A whole trial whose start fails."""
        plan = self.conductor.next(key)
        assert plan is not None
        self.end(key, StartInfo(plan.attempt, None, host="vm"), Outcome("failed", kind, message, "loading weights"))
        return plan

    def outcome(self, ordinal: int) -> Outcome:
        """What the trial's file says."""
        return self.store.trials()[ordinal][0].outcome

    def optuna_states(self) -> list[str]:
        return [t.state.name for t in self.study._study.trials]
