"""What the trials have cost, by what is stored of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.analysis.rows import Row


def node_s(rows: Iterable[Row]) -> float:
    """Wall seconds that the starts of these rows held their nodes: start, fixed prompts, levels, teardown.

    The time of a start that never became ready is not stored, so it is the least that was spent.
    """
    total_s = 0.0
    seen = set()
    for row in rows:
        start = row.start
        if row.level is not None:
            total_s += row.level.level_wall_s
        if (row.trial.trial, start.start_id) not in seen:
            seen.add((row.trial.trial, start.start_id))
            total_s += (start.startup_wall_s or 0.0) + (start.outputs_s or 0.0) + (start.teardown_s or 0.0)
    return total_s
