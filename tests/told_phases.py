"""An observer of starts, for tests."""

from __future__ import annotations

from launchers.base import Phase, StartProgress


class Told:
    """Keeps what a start tells: every step, and the phases in their order."""

    def __init__(self) -> None:
        self.steps: list[StartProgress] = []
        self.phases: list[Phase] = []

    def __call__(self, progress: StartProgress) -> None:
        # `spawned` is told once a start, so each time is a new start.
        begins = progress.phase is Phase.SPAWNED or progress.phase is not self.steps[-1].phase
        self.steps.append(progress)
        if begins:
            self.phases.append(progress.phase)
