"""What a trial's end comes to, by the remedy for its failure and by how often it was started before. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from launchers.errors import NcclUnknown, Remedy, remedy_of
from orchestrator.analysis.fresh_starts import its_own
from orchestrator.analysis.rows import Outcome
from orchestrator.search.trials import Trial

_RETRY = frozenset({Remedy.RETRY_HERE, Remedy.RETRY_ELSEWHERE})


def settled(outcome: Outcome, trial: Trial) -> Outcome:
    """The end as it is kept.

    `interrupted` is what runs again: after a failure that another start may not meet, and after one for which
    the study stops, since the configuration has no part in it.
    """
    remedy = remedy_of(outcome.failure_kind)
    if outcome.state == "failed":
        if remedy is Remedy.INFEASIBLE:
            return dataclasses.replace(outcome, state="infeasible")
        again = not trial.last_failure if remedy in _RETRY else not trial.last_interruption
        if trial.role == "confirmation" and trial.repeats and its_own(outcome.failure_kind):
            again = False  # whether a finalist starts and lives each time is what is asked
        if remedy is not None and again:
            return dataclasses.replace(outcome, state="interrupted")
    if outcome.state == "interrupted" and trial.last_interruption:
        return Outcome("failed", "interrupted", f"interrupted {trial.interruptions + 1} times")
    return outcome


def retried(outcome: Outcome) -> bool:
    """Whether a kept end is that of a start which failed, and is to be made once more."""
    return outcome.state == "interrupted" and remedy_of(outcome.failure_kind) in _RETRY


def stops_study(outcome: Outcome) -> bool:
    """Whether further trials would meet the same."""
    return remedy_of(outcome.failure_kind) is Remedy.STOP_STUDY


def environment(trial: Trial) -> dict[str, str]:
    """The trial's variables, with what may tell more about a failure that an earlier start could not explain."""
    env: Mapping[str, str] = trial.candidate.env
    return {"NCCL_DEBUG": "INFO", **env} if NcclUnknown.kind in trial.failures else dict(env)
