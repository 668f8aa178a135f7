"""Which trial is handed on, and why it may be. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.analysis.confirmation import Confirmation, confirmations
from orchestrator.analysis.findings import findings
from orchestrator.analysis.fresh_starts import breaches, refuted
from orchestrator.analysis.rows import Row, by_trial
from orchestrator.analysis.winner import winner
from orchestrator.kept_study import KeptStudy
from orchestrator.study_command import BadUsage

BEST = "best"
_STATES = {
    "failed": "failed",
    "infeasible": "cannot run",
    "interrupted": "is not finished",
}


class NotExportable(BadUsage):
    """A trial that nobody should run. The text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The trial that is handed on."""

    trial: int
    #: The trial's own levels; of a repeat, those of the trial that it started again.
    rows: tuple[Row, ...]
    #: What starting it afresh beside the baseline found; None where that was not done.
    confirmation: Confirmation | None
    #: Why this one, in a sentence.
    why: str
    #: What the study says of it, a sentence each.
    findings: tuple[str, ...]

    @property
    def baseline(self) -> bool:
        """Whether it is the baseline."""
        return self.trial == 0


def choose(study: KeptStudy, wanted: str = BEST) -> Choice:
    """The trial `wanted` names: its number, or `best`, the confirmed winner, else the search's best, else the
    baseline. A repeat stands for the trial that it started again.

    Raises NotExportable for one that does not exist, is not complete, breaks a constraint or answers differently.
    """
    rows = study.results.rows
    trials = by_trial(rows)
    if wanted == BEST:
        best = winner(trials, study.config.score.objective, study.config.limits)
        if best is None:
            raise NotExportable(
                f"no trial of {study.store.root} is complete and within the constraints"
                f"{' yet' if trials else ': nothing was measured yet'}. Run the sweep on, or name a trial by its number"
            )
        return _choice(study, trials, best, _why_best(study, trials, best))
    if not wanted.isdecimal():
        raise NotExportable(f"{wanted!r} is no trial: write a trial's number, or best")
    number = int(wanted)
    if number not in trials:
        if number in study.attempts:
            raise NotExportable(f"trial {number} has no measured level yet: wait for it, or take --trial best")
        there = f"it has 0 to {max(trials)}" if trials else "nothing was measured yet"
        raise NotExportable(f"there is no trial {number} in {study.store.root}: {there}")
    again = trials[number][0].trial.repeats
    why = f"Trial {number} was asked for."
    if again is not None:
        if again not in trials:
            raise NotExportable(f"trial {number} starts trial {again} again, which is not there: its rows are lost")
        why, number = f"Trial {number} was asked for: it is a further start of trial {again}.", again
    _refuse(study, trials, number)
    return _choice(study, trials, number, why)


def _refuse(study: KeptStudy, trials: dict[int, list[Row]], number: int) -> None:
    rows, limits = trials[number], study.config.limits
    outcome, other = rows[0].outcome, "Take another trial, or --trial best"
    if outcome.state != "complete":
        reason = f": {outcome.failure_message}" if outcome.failure_message else ""
        raise NotExportable(f"trial {number} {_STATES[outcome.state]}{reason}. {other}")
    if any(row.start.output_differs for row in rows):
        raise NotExportable(
            f"trial {number} does not answer as the baseline does, so its numbers were never compared. {other}"
        )
    if (why := breaches(trials, limits).get(number)) is not None:
        raise NotExportable(f"trial {number} breaks {why}. {other}")
    if (why := refuted(trials, limits).get(number)) is not None:
        raise NotExportable(f"trial {number} was refuted: {why}. {other}")


def _why_best(study: KeptStudy, trials: dict[int, list[Row]], best: int) -> str:
    metric = study.config.score.objective.metric
    limits = study.config.limits
    found = confirmations(study.results.rows, study.config.score.objective, limits)
    base = breaches(trials, limits).get(0)
    beside = "" if base is None else f" The baseline breaks {base}."
    if best == 0:
        if found:
            return f"No setting was confirmed to beat the baseline by {metric}: this is the baseline."
        if any(rows[0].trial.role == "candidate" for rows in trials.values()):
            return f"Nothing beats the baseline by {metric}: this is the baseline."
        return "Only the baseline was measured so far: this is the baseline."
    if found:
        what = "beat the baseline" if base is None else "keep the constraints"
        return f"It is the best by {metric} of those that fresh starts confirmed to {what}.{beside}"
    unsure = "Unconfirmed: the best of a search looks better than it is."
    return f"It is the best of the search by {metric}. {unsure}{beside}"


def _choice(study: KeptStudy, trials: dict[int, list[Row]], trial: int, why: str) -> Choice:
    objective = study.config.score.objective
    found = confirmations(study.results.rows, objective, study.config.limits)
    told = tuple(
        f.text for f in findings(study.results.rows, objective, study.config.limits) if f.data.get("trial") == trial
    )
    own = next((c for c in found if c.trial == trial), None)
    return Choice(trial, tuple(trials[trial]), own, why, told)
