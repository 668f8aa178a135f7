"""Trials of ours and how they stand in Optuna: pure reading of its records.

A trial is one launched configuration and has an *ordinal*: 0 is the baseline, 1, 2, ... the candidates. Each
start of it is an Optuna trial with an *attempt*: 1, 2, ... What was never launched has no attempt. A setting that
is launched once more to see how starts differ (`search.repeats`) is a trial of its own with an ordinal of its own.

Counting rule: a launched trial of the search counts towards the budget once it has its end: it is complete, cannot
run, has failed for a reason of its own, or was given up after too many interruptions or failures. Those that run
again, duplicates and refused configurations do not count.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from orchestrator.search.candidate import Candidate

#: A trial is given up once it was interrupted this often.
MAX_INTERRUPTIONS = 3
#: A trial is given up once this many of its starts failed for a reason that another start may not meet, by role.
#: Without a baseline nothing can be compared, so it gets one try more.
MAX_FAILURES = {"baseline": 3, "candidate": 2, "sentinel": 2, "confirmation": 2}


class Outcome(StrEnum):
    """How an Optuna trial of ours ended. Its life: asked (RUNNING), then exactly one of these."""

    COMPLETE = "complete"
    FAILED = "failed"
    #: It was launched, and cannot run at all or is of no use.
    INFEASIBLE = "infeasible"
    INTERRUPTED = "interrupted"
    #: It failed for a reason that another start may not meet, and is started again.
    RETRIED = "retried"
    #: Never launched: the same configuration has an end, or runs now.
    DUPLICATE = "duplicate"
    #: Never launched: the rules know that it cannot run.
    REFUSED = "refused"


@dataclass(frozen=True)
class Trial:
    """One launch to make."""

    ordinal: int
    optuna_number: int
    role: str
    #: 1 for the first start; each further one has the next number.
    attempt: int
    candidate: Candidate
    #: The trial whose setting this starts again, and the how-manieth time; see `search.repeats.Repeat`.
    repeats: int | None = None
    repeat: int = 0
    #: How often it was interrupted before.
    interruptions: int = 0
    #: Why its earlier starts failed, those that were tried again.
    failures: tuple[str, ...] = ()

    @property
    def last_interruption(self) -> bool:
        """Whether one more interruption is one too many."""
        return self.interruptions + 1 >= MAX_INTERRUPTIONS

    @property
    def last_failure(self) -> bool:
        """Whether one more failure is one too many."""
        return len(self.failures) + 1 >= MAX_FAILURES[self.role]


@dataclass(frozen=True)
class Told:
    """What Optuna is told of a trial."""

    outcome: Outcome
    score: float | None = None
    #: By constraint text: 0 or less is feasible.
    violations: Mapping[str, float] | None = None
    reason: str | None = None
    #: User attributes for people, see `orchestrator.attributes`; the search reads none of them.
    shown: Mapping[str, str | float] = field(default_factory=dict)


def by_ordinal(trials: Iterable[FrozenTrial]) -> dict[int, list[FrozenTrial]]:
    """Every attempt of every launched trial, in order."""
    attempts: dict[int, list[FrozenTrial]] = {}
    for trial in trials:
        if trial.user_attrs.get("attempt"):
            attempts.setdefault(trial.user_attrs["ordinal"], []).append(trial)
    return attempts


def outcomes(attempts: Iterable[FrozenTrial]) -> list[tuple[Outcome, str]]:
    """How the attempts ended and why, those without an end left out."""
    told = (attempt.user_attrs for attempt in attempts if attempt.state.is_finished())
    return [(Outcome(attrs["outcome"]), attrs.get("reason", "")) for attrs in told if "outcome" in attrs]


def ended(attempts: Sequence[FrozenTrial]) -> bool:
    """Whether a launched trial has its end."""
    if not attempts[-1].state.is_finished():
        return False
    known = [outcome for outcome, _ in outcomes(attempts)]
    last = known[-1] if known else None
    if last is Outcome.INTERRUPTED:
        return known.count(last) >= MAX_INTERRUPTIONS
    if last is Outcome.RETRIED:
        return known.count(last) >= MAX_FAILURES[attempts[-1].user_attrs["role"]]
    return True


def told_end(attempts: Sequence[FrozenTrial]) -> FrozenTrial | None:
    """The latest attempt that came to an end of its own; None for none."""
    own = {Outcome.COMPLETE, Outcome.FAILED, Outcome.INFEASIBLE}
    return next((a for a in reversed(attempts) if a.state.is_finished() and a.user_attrs.get("outcome") in own), None)


def lost(launched: Mapping[int, Sequence[FrozenTrial]], read: Container[int]) -> list[int]:
    """Ordinals that have an end of their own of which nothing is on disk; `read` are those whose end can be read.

    An end is written before it is told, so that something has become of the file since.
    """
    return [o for o, attempts in sorted(launched.items()) if told_end(attempts) is attempts[-1] and o not in read]


def counted(launched: Mapping[int, Sequence[FrozenTrial]]) -> list[int]:
    """Ordinals of the search that used up budget: complete, failed for a reason of their own, or given up."""
    return [
        ordinal
        for ordinal, attempts in sorted(launched.items())
        if ended(attempts) and "repeats" not in attempts[-1].user_attrs
    ]


def answered(trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
    """Draws that were answered without a launch."""
    told = {Outcome.DUPLICATE, Outcome.REFUSED}
    return [t for t in trials if t.state.is_finished() and t.user_attrs.get("outcome") in told]


def ends(launched: Mapping[int, list[FrozenTrial]]) -> dict[str, Told | None]:
    """By identity, what a duplicate of a launched trial is told; None while the trial has no end."""
    found: dict[str, Told | None] = {}
    for ordinal, attempts in launched.items():
        last = attempts[-1]
        if "repeats" in last.user_attrs:
            continue
        identity = last.user_attrs["identity"]
        if not ended(attempts):
            found[identity] = None
        elif last.state is TrialState.COMPLETE:
            found[identity] = Told(Outcome.DUPLICATE, last.value, dict(last.constraints), f"same as trial {ordinal}")
        else:
            # Of one that is infeasible the search shall learn as of one that was refused.
            violations = dict(last.constraints) if last.state is TrialState.PRUNED else None
            reason = f"same as trial {ordinal}, which {'is infeasible' if violations else 'failed'}"
            found[identity] = Told(Outcome.DUPLICATE, violations=violations, reason=reason)
    return found


def answered_draws(trials: Iterable[FrozenTrial], ordinal: int) -> int:
    """How many draws of an ordinal were answered without a launch, in this run or an earlier one."""
    return sum(trial.user_attrs.get("ordinal") == ordinal for trial in answered(trials))


def stored_params(trial: FrozenTrial) -> dict[str, Any]:
    """The parameters of an attempt; one that was killed while it was taken from the queue has not all yet."""
    return {**trial.system_attrs.get("fixed_params", {}), **trial.params}
