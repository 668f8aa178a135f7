"""What the report says of a study, read once: its trials, its answer, and the settings that are worth a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.analysis.answer import Answer, answer
from orchestrator.analysis.confirmation import Confirmation, confirmations
from orchestrator.analysis.finding import Finding, settings_text
from orchestrator.analysis.findings import findings
from orchestrator.analysis.objectives import Objective
from orchestrator.analysis.rows import Row, by_trial
from orchestrator.analysis.settings_at import Along, along
from orchestrator.analysis.winner import barred
from orchestrator.config import SweepConfig
from orchestrator.kept_study import KeptStudy
from orchestrator.offered_load import Load

#: More lines in a chart cannot be told apart.
_MOST_FEATURED = 6


@dataclass(frozen=True)
class View:
    """A study seen by the report."""

    kept: KeptStudy
    rows: Sequence[Row]
    trials: Mapping[int, Sequence[Row]]
    findings: Sequence[Finding]
    answer: Answer
    #: The score's metric along the ladder.
    score: Along
    #: The trials that the charts along the ladder show, the baseline first, with why each is shown.
    featured: Mapping[int, str]

    @property
    def config(self) -> SweepConfig:
        return self.kept.config

    @property
    def objective(self) -> Objective:
        """The score."""
        return self.config.score.objective

    @property
    def simulated(self) -> bool:
        """Whether the figures are a simulated server's."""
        return any(row.trial.simulated for row in self.rows) if self.rows else self.kept.simulated

    @property
    def unit(self) -> str:
        """Of a throughput."""
        return "simulated tok/s" if self.simulated else "tok/s"

    @property
    def prefix(self) -> str:
        """Before the name of any other quantity."""
        return "simulated " if self.simulated else ""

    @property
    def common(self) -> Mapping[str, Any]:
        """The settings that every server of the study has."""
        base = self.trials[0][0].trial if 0 in self.trials else None
        if base is not None:
            return {**base.requested_flags, **base.requested_env}
        return {**self.config.server.flags, **{name: str(value) for name, value in self.config.server.env.items()}}

    def settings(self, trial: int) -> str:
        """What the trial has beyond the common settings, in a line."""
        return settings_text(self.trials[trial][0], self.common)

    def name(self, trial: int) -> str:
        """For a legend."""
        return "baseline" if trial == 0 else f"trial {trial}"

    @property
    def candidates(self) -> dict[int, Sequence[Row]]:
        """The trials of the search, by ordinal; no repeats."""
        return {number: group for number, group in self.trials.items() if group[0].trial.repeats is None}


def view_of(kept: KeptStudy) -> View:
    """Raises ValueError for simulated and measured rows together."""
    rows = kept.results.rows
    config = kept.config
    objective = config.score.objective
    ladder = config.workload.ladder
    trials = by_trial(rows)
    found = findings(rows, objective, config.limits, details=True)
    told = answer(rows, objective, config.limits, ladder, found)
    score = along(rows, objective, ladder, config.limits, barred(trials, config.limits))
    proofs = confirmations(rows, objective, config.limits)
    return View(kept, rows, trials, found, told, score, _featured(trials, told, score, ladder, proofs))


#: What fresh starts made of a finalist.
_PROVEN = {"better": "confirmed", "tie": "a tie", "worse": "refuted"}


def _featured(
    trials: Mapping[int, Sequence[Row]],
    told: Answer,
    score: Along,
    ladder: Sequence[Load],
    proofs: Sequence[Confirmation],
) -> Mapping[int, str]:
    """The finalists before all others, since only of them more is known than one start."""
    why: dict[int, str] = {}
    if 0 in trials:
        why[0] = "baseline"
    sign = -1 if score.more_is_better else 1
    for proof in sorted(proofs, key=lambda proof: (proof.trial != told.best, sign * proof.value)):
        name = "winner" if proof.trial == told.best else "finalist"
        proven = _PROVEN[proof.verdict] if proof.baseline_breaks is None else "within the constraints"
        why[proof.trial] = f"{name}, {proven} in {proof.rounds} rounds of fresh starts"
    if told.best:
        why.setdefault(told.best, "best of the search, " + ("a tie" if told.verdict == "tie" else "unconfirmed"))
    for load in reversed(ladder):
        best = score.best_candidate(load)
        if best is not None:
            why.setdefault(best, f"best single start at {load.label}, unconfirmed")
    for speculative, word in ((True, "best speculative"), (False, "best plain")):
        kind = {n for n, group in trials.items() if n and group[0].trial.speculative is speculative}
        scored = [
            (sign * value.value, trial, load)
            for (trial, load), value in score.values.items()
            if trial in kind and load == ladder[-1]
        ]
        if scored and not any(trials[n][0].trial.speculative is speculative for n in why):
            why[min(scored, key=lambda s: s[:2])[1]] = word
    return dict(list(why.items())[:_MOST_FEATURED])
