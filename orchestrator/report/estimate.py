"""How long a start takes, guessed from earlier ones of the study. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

from launchers.base import Phase
from orchestrator.analysis.rows import StartInfo
from orchestrator.node_status import StartStatus

#: Later starts find files in the page cache and kernels compiled: old ones would mislead.
_RECENT = 5

#: Wall seconds by phase of one start.
PhaseSeconds = Mapping[str, float]


def recent_starts(starts: Iterable[StartInfo]) -> tuple[PhaseSeconds, ...]:
    """The latest starts that became ready. Simulated seconds are brought to the wall clock's length."""
    found = []
    for start in starts:
        total_s = sum(start.phase_s.values())
        if start.started_at is not None and start.startup_wall_s is not None and total_s > 0:
            scale = start.startup_wall_s / total_s
            found.append((start.started_at, {phase: s * scale for phase, s in start.phase_s.items()}))
    found.sort(key=lambda dated: dated[0])
    return tuple(seconds for _, seconds in found[-_RECENT:])


def total_s(start: StartStatus, earlier: Iterable[PhaseSeconds]) -> float | None:
    """About how long this start takes in all; None where there is none to compare it with.

    Elapsed, plus what is left of the phase (by its files where some are loaded, else by the earlier starts'
    median), plus the medians of the phases that follow. A phase that a start did not have took it 0 s.
    """
    earlier = tuple(earlier)
    if not earlier:
        return None

    def usual_s(phase: Phase) -> float:
        return median(seconds.get(str(phase), 0.0) for seconds in earlier)

    progress = start.progress
    phases = list(Phase)
    left_s = sum(usual_s(phase) for phase in phases[phases.index(progress.phase) + 1 :])
    done, total = progress.shards or (0, 0)
    if done:
        left_s += start.phase_elapsed_s * (total - done) / done
    else:
        left_s += max(0.0, usual_s(progress.phase) - start.phase_elapsed_s)
    return start.elapsed_s + left_s
