"""Where a study stands: its launched trials, how its budget is divided, and what is still to come. Pure reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from optuna.trial import FrozenTrial, TrialState

from orchestrator.analysis.floor import floor_of
from orchestrator.analysis.fresh_starts import start_refutes
from orchestrator.analysis.journal import Attempt, Standing, Unlaunched
from orchestrator.analysis.noise import rounds_needed
from orchestrator.analysis.rows import Row
from orchestrator.analysis.winner import feasible_value
from orchestrator.config import SweepConfig
from orchestrator.price import confirmation_cost
from orchestrator.search.distributions import from_optuna
from orchestrator.search.repeats import (
    Launched,
    RepeatPlan,
    confirmations_left,
    current_confirmations,
    more_rounds,
    plan_repeats,
)
from orchestrator.search.space import SearchSpace
from orchestrator.search.trials import Outcome, counted, ended, stored_params, told_end

#: Draws that were answered without a launch, by what Optuna was told.
_ANSWERED = {
    Outcome.DUPLICATE: "drawn again after it was measured: answered from that, not launched",
    Outcome.REFUSED: "refused by SGLang's rules, not launched",
}

Attempts = Mapping[int, Sequence[FrozenTrial]]
Known = Mapping[int, Sequence[Row]]


def launched_trials(config: SweepConfig, attempts: Attempts, known: Known) -> list[Launched]:
    """The launched trials as far as repeats depend on them; `known` are the rows of those that have an end."""
    objective, limits = config.score.objective, config.limits
    sign = 1 if objective.direction == "maximize" else -1
    found = []
    for ordinal, tries in attempts.items():
        attrs = tries[-1].user_attrs
        rows = known.get(ordinal)
        value = feasible_value(rows, objective, limits) if rows else None
        if value is None and ordinal == 0 and rows:
            # What does not meet a constraint is beaten by all that do.
            value = -sign * float("inf")
        merit = None if value is None else sign * value
        refutes = bool(rows) and start_refutes(rows or ()) is not None
        found.append(Launched(ordinal, attrs["role"], attrs.get("repeats"), attrs.get("repeat", 0), merit, refutes))
    return found


def budget_plan(config: SweepConfig, launched: Sequence[Launched], known: Known) -> RepeatPlan:
    """How the budget is divided, as far as is known now."""
    cost = _confirmation_cost(config, known)
    past = sum(t.role == "confirmation" for t in launched) - len(current_confirmations(launched))
    plan = plan_repeats(config.repeats, config.budget.trials, cost, past * cost)
    searched = [row for rows in list(known.values()) for row in rows if row.trial.role != "confirmation"]
    floor = floor_of(searched, config.score.objective.metric, by_node=True)
    if floor is None:
        return plan
    return more_rounds(plan, rounds_needed(floor, config.repeats.gap, config.repeats.power))


def _confirmation_cost(config: SweepConfig, known: Known) -> float:
    """A start of the confirmation, in whole trials: as the baseline took, once that is known."""
    rows = known.get(0) or ()
    levels = {row.level.load: row.level.level_wall_s for row in rows if row.level}
    if not set(config.workload.ladder) <= set(levels):
        return confirmation_cost(config)
    start = rows[0].start
    around_s = (start.startup_wall_s or 0.0) + (start.teardown_s or 0.0)
    whole_s = sum(levels[load] for load in config.workload.ladder)
    return (around_s + sum(levels[load] for load in config.confirmation_ladder)) / (around_s + whole_s)


def standing(
    config: SweepConfig, attempts: Attempts, answered: Iterable[FrozenTrial], known: Known, *, alive: bool
) -> Standing:
    """What the journal needs beside the rows. `answered` are Optuna's trials that were never launched; `alive`: a sweep
    is at work on the study.
    """
    knobs = {knob.name: knob for knob in SearchSpace.build(config.space).knobs}
    found = {}
    for ordinal, tries in attempts.items():
        last, attrs = tries[-1], tries[-1].user_attrs
        waits = last.state is TrialState.WAITING or (last.state.is_finished() and not ended(tries))
        drawn = {n: from_optuna(knobs[n], v) for n, v in stored_params(last).items() if n in knobs}
        found[ordinal] = Attempt(
            trial=ordinal,
            role=attrs["role"],
            number=attrs["attempt"],
            standing="running" if last.state is TrialState.RUNNING else "waiting" if waits else "ended",
            settings={**config.server.flags, **config.server.env, **{n: v for n, v in drawn.items() if v is not None}},
            repeats=attrs.get("repeats"),
            repeat=attrs.get("repeat", 0),
            told=_told(told_end(tries)),
        )
    coming = _coming(config, attempts, known)
    levels = len(config.workload.ladder)
    return Standing(found, (*coming, *_draws(answered)), alive, levels)


def _told(end: FrozenTrial | None) -> str | None:
    """What Optuna was told of a trial's end, in words."""
    if end is None:
        return None
    if end.value is not None:
        return f"{end.value:,.1f}"
    what = "that it cannot run" if end.user_attrs["outcome"] == Outcome.INFEASIBLE else "that it failed"
    reason = end.user_attrs.get("reason")
    return f"{what}: {reason.replace('_', ' ')}" if reason else what


def _coming(config: SweepConfig, attempts: Attempts, known: Known) -> list[Unlaunched]:
    """Starts that the plan still holds, by their kind."""
    if not attempts:
        # With rows and without attempts the search's memory is not there: nobody knows what is to come.
        return (
            []
            if known
            else [Unlaunched("baseline", 1, "pending", "to be started first: what the others are compared with")]
        )
    launched = launched_trials(config, attempts, {o: rows for o, rows in known.items() if _has_end(rows)})
    plan = budget_plan(config, launched, known)
    found = []
    sentinels = plan.aa + len(plan.sentinels) - sum(trial.role == "sentinel" for trial in launched)
    open_searched = sum(not ended(t) and "repeats" not in t[-1].user_attrs for t in attempts.values())
    candidates = plan.searched - len(counted(attempts)) - open_searched
    if candidates > 0:
        text = "to be drawn, as far as the budget and the space go"
        found.append(Unlaunched("candidate", candidates, "pending", text))
    if sentinels > 0:
        found.append(Unlaunched("sentinel", sentinels, "pending", "the baseline once more, to know how starts differ"))
    if candidates > 0 or open_searched:
        if plan.confirmations:
            text = f"{plan.rounds} rounds of the baseline and the best, afresh, once the search is over"
            found.append(Unlaunched("confirmation", plan.confirmations, "pending", text))
    elif (left := confirmations_left(plan, launched)) > 0:
        found.append(Unlaunched("confirmation", left, "pending", "of the confirmation, the baseline's included"))
    return found


def _has_end(rows: Sequence[Row]) -> bool:
    return bool(rows) and rows[0].outcome.state != "interrupted"


def _draws(answered: Iterable[FrozenTrial]) -> list[Unlaunched]:
    """Draws that were never launched, counted by the reason."""
    counts: Counter[tuple[Outcome, str]] = Counter()
    for trial in answered:
        told = trial.user_attrs.get("outcome")
        if told in _ANSWERED:
            outcome = Outcome(told)
            reason = str(trial.user_attrs.get("reason", ""))
            # Of duplicates it is enough to know how many.
            counts[outcome, reason if outcome is Outcome.REFUSED else ""] += 1
    found = []
    for (outcome, reason), count in counts.most_common():
        text = _ANSWERED[outcome] + (f": {reason}" if reason else "")
        found.append(Unlaunched("draw", count, "infeasible", text, str(outcome)))
    return found
