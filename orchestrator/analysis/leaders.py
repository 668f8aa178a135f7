"""Who leads at which load, and where one setting overtakes another, in a sentence. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from orchestrator.analysis.comparisons import percent
from orchestrator.analysis.settings_at import Along
from orchestrator.offered_load import Load


def crossovers(found: Along) -> str:
    """Who leads at which load, and where one overtakes another; leaders that rest on single starts are unconfirmed."""
    leaders = [(load, found.leader(load)) for load in found.ladder if found.value(0, load) is not None]
    if len(leaders) < 2:
        return "Only one load was measured beside the baseline: where settings overtake each other cannot be said."
    parts = []
    for leader, loads in _runs(found, leaders):
        at = _loads(loads)
        if leader is None:
            parts.append(f"no gain over the baseline can be told at {at}")
        elif leader == 0:
            parts.append(f"the baseline leads at {at}")
        else:
            gains = [r for load in loads if (r := found.judged(leader, load)) is not None]
            ends = dict.fromkeys(percent(end(g.mean for g in gains)) for end in (min, max))
            span = " to ".join(ends) + " %"
            sure = ", unconfirmed" if _single(found, leader, loads[0]) else ""
            parts.append(f"trial {leader} leads at {at} ({span}{sure})")
    text = "Along the ladder " + _joined(parts)
    if 0 in found.barred and any(leader for _, leader in leaders):
        text += ", among those that keep the constraints, which the baseline does not"
    crossed = [c for a, b in pairwise(_told(leaders)) if (c := _crossing(found, a, b)) is not None]
    if crossed:
        return f"{text}; {_joined(crossed)}."
    alone = {leader for _, leader in leaders}
    return text + ("; no setting overtakes another." if len(alone) == 1 and None not in alone else ".")


def _crossing(found: Along, low: tuple[Load, int], high: tuple[Load, int]) -> str | None:
    """Where the leader at `high` overtakes the one at `low`; None for one and the same."""
    (start, a), (end, b) = low, high
    if a == b:
        return None
    between = [load for load in found.ladder if start <= load <= end]
    name = f"{_name(b)} overtakes {_name(a)} between {start.label} and {end.label}"
    logs = []
    for load in between:
        ratio = found.ratio(b, a, load)
        if ratio is None or load.concurrency is None:
            return name
        logs.append((math.log(load.concurrency), math.log(ratio.mean) * (1 if found.more_is_better else -1)))
    changes = [(p, q) for p, q in pairwise(logs) if p[1] < 0 <= q[1]]
    if len(changes) != 1:
        return name
    (x0, y0), (x1, y1) = changes[0]
    at = math.exp(x0 + (x1 - x0) * -y0 / (y1 - y0))
    return f"{name}, at about C={at:.0f}"


def _told(leaders: Iterable[tuple[Load, int | None]]) -> list[tuple[Load, int]]:
    """Of each run of one leader the ends, ties left out."""
    told = [(load, leader) for load, leader in leaders if leader is not None]
    return [
        one
        for i, one in enumerate(told)
        if i in (0, len(told) - 1) or one[1] != told[i - 1][1] or one[1] != told[i + 1][1]
    ]


def _single(found: Along, leader: int | None, load: Load) -> bool:
    """Whether the leader's value there is that of one start, picked from those of many."""
    return bool(leader) and (leader, load) not in found.fresh


def _runs(found: Along, leaders: Iterable[tuple[Load, int | None]]) -> list[tuple[int | None, list[Load]]]:
    runs: list[tuple[int | None, list[Load]]] = []
    for load, leader in leaders:
        alike = bool(runs) and _single(found, runs[-1][0], runs[-1][1][-1]) == _single(found, leader, load)
        if alike and runs[-1][0] == leader:
            runs[-1][1].append(load)
        else:
            runs.append((leader, [load]))
    return runs


def _loads(loads: Sequence[Load]) -> str:
    labels = [load.label for load in loads]
    return labels[0] if len(labels) == 1 else f"{labels[0]} to {labels[-1]}"


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _name(trial: int) -> str:
    return f"trial {trial}" if trial else "the baseline"
