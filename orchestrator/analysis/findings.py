"""What a user should know at the end without asking, in sentences computed from the rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.analysis import comparisons, nodes, proof
from orchestrator.analysis import server_findings as server
from orchestrator.analysis.explain import explain
from orchestrator.analysis.finding import Finding
from orchestrator.analysis.objectives import Constraint, Objective
from orchestrator.analysis.rows import Row, all_simulated, by_trial
from orchestrator.analysis.winner import barred


def findings(
    rows: Iterable[Row],
    objective: Objective | None = None,
    limits: Sequence[Constraint] = (),
    *,
    details: bool = False,
) -> list[Finding]:
    """All findings of a study, the most important first; `objective` is its score, which a winner is confirmed by, and
    `limits` are its constraints.

    Of the causes those that one reads to know where the study stands; all of them with `details`.

    Raises ValueError for simulated and measured rows together.
    """
    rows = list(rows)
    unit = "simulated tok/s" if all_simulated(rows) else "tok/s"
    confirmed = proof.confirmed(rows, objective, limits) if objective else []
    out = barred(by_trial(rows), limits)
    # There it is told better.
    known_at = objective.metric.load if objective and confirmed else None
    return [
        *proof.out_of_it(rows, limits),
        *confirmed,
        *(nodes.confounded_with_nodes(rows, objective, limits) if objective else []),
        *comparisons.against_baseline(rows, unit, known_at, out),
        *comparisons.speculation(rows, unit, out),
        *(explain(rows, objective) if details else _causes(rows, objective)),
        *(proof.noise(rows, objective) if objective else []),
        *(nodes.node_differences(rows, objective) if objective else []),
        *(proof.within_start(rows, objective) if objective else []),
        *(proof.drift(rows, objective) if objective else []),
        *server.outputs(rows),
        *server.settings(rows),
        *server.failures(rows),
        *server.failed_requests(rows),
        *server.warm_levels(rows),
        *server.client_limits(rows),
        *server.unmeasured(rows),
        *server.repeated_prompts(rows),
        *server.used_up_prompts(rows),
        *server.counts(rows),
        *server.partial_acceptance(rows),
        *server.leftovers(rows),
        *server.disagreements(rows),
    ]


#: Causes of which the report tells every one, and a summary those of the score's load.
_BY_LOAD = ("break_even", "communication_untold")
#: And those that only the report tells.
_DETAILS = ("setting_effect", "no_effect", "inert_setting", "cycle_undivided")


def _causes(rows: list[Row], objective: Objective | None) -> list[Finding]:
    load = objective.metric.load.concurrency if objective else None
    return [
        found
        for found in explain(rows, objective)
        if found.kind not in _DETAILS and (found.kind not in _BY_LOAD or found.data["concurrency"] == load)
    ]
