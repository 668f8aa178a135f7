"""What a node is told to do, and what it tells back. Plain values that travel through Ray."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from launchers.base import Launcher, LaunchSpec
from launchers.sglang.launcher import SGLangLauncher
from launchers.simulated.launcher import SimulatedLauncher
from orchestrator import config as schema
from orchestrator.analysis.rows import Outcome, StartInfo
from orchestrator.offered_load import Load
from orchestrator.workload import Workload


@dataclass(frozen=True)
class Reservation:
    """A whole node as Ray counts it: all GPUs it has, or all CPUs for a server without GPUs.

    Whoever holds all of either owns the node: no second trial runs beside it.
    """

    resource: Literal["GPU", "CPU"]
    amount: int

    @property
    def bundle(self) -> dict[str, float]:
        """What Ray is asked for."""
        return {"CPU": 0.0, self.resource: float(self.amount)}


@dataclass(frozen=True)
class StudyContext:
    """The same for every trial of a run."""

    study: str
    study_id: str
    run_id: str
    launcher: schema.SimulatedLauncher | schema.SGLangLauncher
    workload: Workload
    model: str
    #: Where logs go on a node that sees the study's folder; elsewhere they stay in a temporary folder.
    logs: Path
    #: GPUs that a server gets.
    gpus: int
    #: What a trial holds in Ray.
    reservation: Reservation
    #: Where the sweep was started: relative paths of a server mean this folder.
    folder: Path

    def spec(self, plan: TrialPlan) -> LaunchSpec:
        """What to start for a trial."""
        return LaunchSpec(
            model=self.model,
            flags=plan.flags,
            env=plan.env,
            gpus=self.gpus,
            study_marker=self.study_id,
            run_marker=self.run_id,
            folder=self.folder,
        )


@dataclass(frozen=True)
class TrialPlan:
    """One trial as a node runs it."""

    ordinal: int
    attempt: int
    flags: dict[str, Any]
    env: dict[str, str]
    #: The levels that this trial measures, in their order.
    ladder: tuple[Load, ...]


Event = Literal["ready", "level", "end"]


@dataclass(frozen=True)
class Report:
    """What one step of a trial tells the driver. Levels travel by the board; here is only which one."""

    event: Event
    load: Load | None = None
    #: With `end`: how it ended, on which start, and whether nothing of the server is left.
    outcome: Outcome | None = None
    start: StartInfo | None = None


def make_launcher(settings: schema.SimulatedLauncher | schema.SGLangLauncher, logs: Path, folder: Path) -> Launcher:
    """The launcher that a resolved config names; `folder` is where the sweep was started."""
    if isinstance(settings, schema.SimulatedLauncher):
        return SimulatedLauncher(logs, settings.profile, settings.startup_speedup, settings.startup_timeout_s)
    return SGLangLauncher(logs, folder=folder, **settings.model_dump(exclude={"kind"}))
