"""Which settings are started again, when and how often: for the noise floor, for drift, and to confirm a winner. Pure.

    trial 0          the baseline
    A/A              the baseline again, at once: how far do two starts of the same lie apart?
    sentinels        the baseline again, spread over the search: does the machine drift?
    confirmation     after the search, in rounds: the baseline and each finalist once, one after the other, every
                     second round the other way round, so that a drift is no difference

Their costs are reckoned in whole trials, a start of the confirmation being cheaper, since it measures the loads of the
score and of the constraints alone. Together they take at most a share of the budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.config import Repeats

#: Fewer rounds than this leave nothing to compare by.
_FEWEST_ROUNDS = 2

RepeatRole = Literal["sentinel", "confirmation"]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A start of a trial's setting once more."""

    of: int
    role: RepeatRole
    #: From 1: the how-manieth sentinel, or the round of the confirmation.
    number: int


@dataclass(frozen=True, slots=True)
class Launched:
    """A launched trial, as far as it matters here."""

    ordinal: int
    role: str
    repeats: int | None = None
    number: int = 0
    #: Of the search: what the score is, better being more; None where there is none (yet).
    merit: float | None = None
    #: Of a confirmation: whether this start refutes the setting.
    refutes: bool = False


@dataclass(frozen=True, slots=True)
class RepeatPlan:
    """How the budget is divided."""

    #: Trials of the search, baseline included.
    searched: int
    aa: int = 0
    #: After how many candidates each sentinel comes.
    sentinels: tuple[int, ...] = ()
    finalists: int = 0
    rounds: int = 0
    #: What one start of the confirmation costs, in whole trials.
    each: float = 1.0
    #: What the repeats cost, in whole trials.
    cost: float = 0.0
    #: What the budget allows for them.
    allowed: float = 0.0

    @property
    def confirmations(self) -> int:
        """Starts of the confirmation."""
        return self.rounds * (1 + self.finalists)

    @property
    def instead(self) -> int:
        """Whole starts of the baseline that cost no more than the confirmation: made where there is none to make."""
        return math.floor(self.confirmations * self.each + 1e-9)

    @property
    def launches(self) -> int:
        """All starts that the budget comes to, retries left out."""
        return self.searched + self.aa + len(self.sentinels) + self.confirmations


def plan_repeats(wanted: Repeats, trials: int, confirmation_cost: float, spent: float = 0.0) -> RepeatPlan:
    """Divide a budget of `trials`; `confirmation_cost` is that of one start of the confirmation, in whole trials.

    `spent` went into confirmations of an earlier search of the same study. The most telling comes first: two rounds
    with one finalist, one A/A, the asked number of rounds, a sentinel, further finalists, further A/A, sentinels.
    """
    allowed = wanted.share * trials
    plan = RepeatPlan(trials, each=confirmation_cost, allowed=allowed)

    def cost(of: RepeatPlan) -> float:
        return spent + of.aa + len(of.sentinels) + of.confirmations * confirmation_cost

    def searched(of: RepeatPlan) -> int:
        return max(1, trials - math.ceil(cost(of) - 1e-9))

    def taken(**changes: object) -> bool:
        nonlocal plan
        bigger = replace(plan, **changes)  # type: ignore[arg-type]
        if cost(bigger) > allowed + 1e-9:
            return False
        plan = bigger
        return True

    if wanted.finalists and wanted.starts:
        taken(finalists=1, rounds=min(wanted.starts, _FEWEST_ROUNDS))
    if wanted.aa:
        taken(aa=1)
    while plan.rounds and plan.rounds < wanted.starts and taken(rounds=plan.rounds + 1):
        pass
    if wanted.sentinel_every:
        taken(sentinels=(0,))
    while plan.rounds and plan.finalists < wanted.finalists and taken(finalists=plan.finalists + 1):
        pass
    while plan.aa and plan.aa < wanted.aa and taken(aa=plan.aa + 1):
        pass
    while plan.sentinels and taken(sentinels=(0,) * (len(plan.sentinels) + 1)):
        pass
    # One after every so many candidates needs no more than that; fewer are spread evenly.
    while plan.sentinels and len(plan.sentinels) * wanted.sentinel_every >= searched(plan):
        plan = replace(plan, sentinels=plan.sentinels[1:])
    count, candidates = len(plan.sentinels), searched(plan) - 1
    step = max(wanted.sentinel_every, candidates / (count + 1))
    after = tuple(int(step * (i + 1)) for i in range(count))
    return replace(plan, searched=searched(plan), sentinels=after, cost=cost(plan))


def more_rounds(plan: RepeatPlan, needed: int) -> RepeatPlan:
    """The plan with as many of the needed rounds as what is left of the share pays for."""
    if not plan.rounds:
        return plan
    left = plan.allowed - plan.cost
    affordable = plan.rounds + math.floor((left + 1e-9) / ((1 + plan.finalists) * plan.each))
    rounds = max(plan.rounds, min(needed, affordable))
    further = (rounds - plan.rounds) * (1 + plan.finalists) * plan.each
    return replace(plan, rounds=rounds, cost=plan.cost + further)


def sentinel_due(plan: RepeatPlan, launched: Iterable[Launched]) -> Repeat | None:
    """The A/A repeat or sentinel that comes next, before any further candidate; None for none now."""
    known = list(launched)
    candidates = sum(trial.role == "candidate" for trial in known)
    have = sum(trial.role == "sentinel" for trial in known)
    want = plan.aa + sum(candidates >= after for after in plan.sentinels)
    return Repeat(0, "sentinel", have + 1) if have < want else None


def finalists(launched: Iterable[Launched], count: int) -> list[int]:
    """The best candidates that were better than the baseline, best first; the earlier of equals. Who was refuted in
    an earlier confirmation is none.
    """
    known = list(launched)
    current = current_confirmations(known)
    out = {t.repeats for t in known if t.refutes and t not in current}
    base = next((t.merit for t in known if t.role == "baseline"), None)
    better = [
        t
        for t in known
        if t.role == "candidate"
        and t.ordinal not in out
        and t.merit is not None
        and base is not None
        and t.merit > base
    ]
    better.sort(key=lambda t: (-(t.merit or 0.0), t.ordinal))
    return [t.ordinal for t in better[:count]]


def current_confirmations(launched: Iterable[Launched]) -> list[Launched]:
    """Starts of the confirmation that no candidate followed: an earlier one confirmed another search's winner."""
    known = list(launched)
    last = max((t.ordinal for t in known if t.role == "candidate"), default=0)
    return [t for t in known if t.role == "confirmation" and t.ordinal > last]


def confirmation_due(plan: RepeatPlan, launched: Sequence[Launched]) -> Repeat | None:
    """The next start of the confirmation; None where it is over. A finalist that was refuted is not started again.

    Where there is nothing to confirm, what it would have cost goes to the baseline: how surely nothing beats it is
    asked as well.
    """
    chosen = finalists(launched, plan.finalists)
    if not chosen:
        have = sum(t.role == "sentinel" for t in launched)
        return Repeat(0, "sentinel", have + 1) if have < plan.aa + len(plan.sentinels) + plan.instead else None
    current = current_confirmations(launched)
    before = max((t.number for t in launched if t.role == "confirmation" and t not in current), default=0)
    made = {(t.repeats, t.number) for t in current}
    refuted = {t.repeats for t in current if t.refutes}
    order = [0, *(of for of in chosen if of not in refuted)]
    if len(order) == 1:
        return None
    for number in range(before + 1, before + 1 + plan.rounds):
        for of in order if (number - before) % 2 else reversed(order):
            if (of, number) not in made:
                return Repeat(of, "confirmation", number)
    return None


def confirmations_left(plan: RepeatPlan, launched: Iterable[Launched]) -> int:
    """How many starts `confirmation_due` would ask for, one after the other, were the search over now."""
    known, count = list(launched), 0
    while (due := confirmation_due(plan, known)) is not None:
        ordinal = max(trial.ordinal for trial in known) + 1
        known.append(Launched(ordinal, due.role, due.of, due.number))
        count += 1
    return count
