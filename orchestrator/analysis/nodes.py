"""Whether nodes differ, and which comparison of a confirmation cannot be told from that. Pure.

Which node a start runs on is not chosen (`orchestrator.cluster`): what nodes differ by is estimated from all starts
that were repeated, and taken out of a confirmation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from orchestrator.analysis.baseline import value_at
from orchestrator.analysis.comparisons import percent
from orchestrator.analysis.confirmation import confounded
from orchestrator.analysis.finding import Finding, rows_behind, trials_text
from orchestrator.analysis.floor import repeated_starts
from orchestrator.analysis.layout import Layout
from orchestrator.analysis.noise import around
from orchestrator.analysis.objectives import Constraint, Objective
from orchestrator.analysis.rows import Row
from orchestrator.benchmark.intervals import largest_t


def node_differences(rows: Sequence[Row], objective: Objective) -> list[Finding]:
    """The two nodes that lie furthest apart by the score, where that is more than starts on one node differ by."""
    layout = Layout(repeated_starts(rows, objective.metric), by_node=True)
    pairs = list(combinations(layout.nodes, 2))
    if not pairs or layout.freedom < 1:
        return []
    # The furthest of all pairs is picked: the doubt is that of all together.
    reach = largest_t(layout.freedom, len(pairs)) * layout.sd
    found = []
    for one, other in pairs:
        effect = layout.between_nodes(one, other)
        if effect is not None and abs(effect.mean) > reach * effect.scale:
            slow, fast = (one, other) if effect.mean < 0 else (other, one)
            found.append((abs(effect.mean), reach * effect.scale, fast, slow))
    if not found:
        return []
    mean, half, more, less = max(found, key=lambda one: one[0])
    ratio = around(mean, half)
    text = (
        f"Nodes differ: on {more} {objective.metric} is {percent(ratio.mean)} % ({percent(ratio.low)} to "
        f"{percent(ratio.high)} %) beside {less}, the setting the same: more than starts on one node differ by "
        f"({100 * layout.sd:.2f} %). A confirmation has that taken out; single starts are compared with it in their "
        "doubt."
    )
    data = {"more": more, "less": less, "percent": 100 * math.expm1(mean)}
    behind = [row for row in rows if row.trial.role != "candidate" and value_at(row, objective.metric)]
    return [Finding("node_difference", text, data, rows_behind(behind))]


def confounded_with_nodes(rows: Sequence[Row], objective: Objective, limits: Sequence[Constraint]) -> list[Finding]:
    """Finalists of which nothing is claimed, since they and the baseline ran on different nodes throughout."""
    trials = confounded(rows, objective, limits)
    if not trials:
        return []
    text = (
        f"Not confirmed: {trials_text(trials)} and the baseline were started afresh on different nodes, and no setting "
        "ran on both, so that what is the setting's and what is the node's cannot be told apart. Further rounds "
        "(repeats.starts) or a single node would tell."
    )
    behind = [row for row in rows if row.trial.role == "confirmation" and row.trial.repeats in (0, *trials)]
    return [Finding("confirmed_not", text, {"trials": trials}, rows_behind(behind))]
