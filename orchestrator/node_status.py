"""What a node does now, as it tells the board and as a display has it."""

from __future__ import annotations

from dataclasses import dataclass

from launchers.base import StartProgress
from orchestrator.offered_load import Load


@dataclass(frozen=True)
class StartStatus:
    """How far a server's start is."""

    progress: StartProgress
    #: Wall seconds since it was spawned, and since its phase began.
    elapsed_s: float = 0.0
    phase_elapsed_s: float = 0.0


@dataclass(frozen=True)
class NodeStatus:
    """What a node does now, for the display."""

    node: str
    ordinal: int
    phase: str
    #: The level being measured, and its measured and planned requests.
    load: Load | None = None
    done: int = 0
    total: int = 0
    output_tokens_per_s: float | None = None
    #: Half of the rate's 95 % interval so far, as a share of it; None while too little has come.
    half_width: float | None = None
    #: While a server starts.
    start: StartStatus | None = None
