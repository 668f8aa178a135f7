"""Trials of ours and how they stand in Optuna: pure reading of its records.

A trial is one launched configuration and has an *ordinal*: 0 is the baseline, 1, 2, ... the candidates. Each
start of it is an Optuna trial with the *attempt* 1, 2 or 3. What was never launched has no attempt.

Counting rule: a launched trial counts towards the budget once it is complete, has failed for a reason of its
own, or was interrupted at each of its attempts. Interrupted ones that run again, duplicates and refused
configurations do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from orchestrator.search.candidate import Candidate

#: A trial is started at most this often: once, and twice more after interruptions.
MAX_ATTEMPTS = 3


class Outcome(StrEnum):
    """How an Optuna trial of ours ended. Its life: asked (RUNNING), then exactly one of these."""

    COMPLETE = "complete"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    DUPLICATE = "duplicate"
    REFUSED = "refused"


@dataclass(frozen=True)
class Trial:
    """One launch to make."""

    ordinal: int
    optuna_number: int
    role: str
    #: 1 for the first start; a re-run after an interruption has the next number.
    attempt: int
    candidate: Candidate


@dataclass(frozen=True)
class Told:
    """What Optuna is told of a trial."""

    outcome: Outcome
    score: float | None = None
    #: By constraint text: 0 or less is feasible.
    violations: Mapping[str, float] | None = None
    reason: str | None = None


def by_ordinal(trials: Iterable[FrozenTrial]) -> dict[int, list[FrozenTrial]]:
    """Every attempt of every launched trial, in order."""
    attempts: dict[int, list[FrozenTrial]] = {}
    for trial in trials:
        if trial.user_attrs.get("attempt"):
            attempts.setdefault(trial.user_attrs["ordinal"], []).append(trial)
    return attempts


def ended(attempts: list[FrozenTrial]) -> bool:
    """Whether a launched trial has its end: complete, failed by itself, or interrupted too often."""
    last = attempts[-1]
    if not last.state.is_finished():
        return False
    interrupted = last.user_attrs.get("outcome") == Outcome.INTERRUPTED
    return not interrupted or last.user_attrs["attempt"] >= MAX_ATTEMPTS


def ends(launched: Mapping[int, list[FrozenTrial]]) -> dict[str, Told | None]:
    """By identity, what a duplicate of a launched trial is told; None while the trial has no end."""
    found: dict[str, Told | None] = {}
    for ordinal, attempts in launched.items():
        last = attempts[-1]
        identity = last.user_attrs["identity"]
        if not ended(attempts):
            found[identity] = None
        elif last.state is TrialState.COMPLETE:
            found[identity] = Told(Outcome.DUPLICATE, last.value, dict(last.constraints), f"same as trial {ordinal}")
        else:
            found[identity] = Told(Outcome.DUPLICATE, reason=f"same as trial {ordinal}, which failed")
    return found


def answered_draws(trials: Iterable[FrozenTrial], ordinal: int) -> int:
    """How many draws of an ordinal were answered without a launch, in this run or an earlier one."""
    answered = {Outcome.DUPLICATE, Outcome.REFUSED}
    return sum(
        t.user_attrs.get("ordinal") == ordinal and t.state.is_finished() and t.user_attrs.get("outcome") in answered
        for t in trials
    )


def stored_params(trial: FrozenTrial) -> dict[str, Any]:
    """The parameters of an attempt; one that was killed while it was taken from the queue has not all yet."""
    return {**trial.system_attrs.get("fixed_params", {}), **trial.params}
