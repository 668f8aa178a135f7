"""The conductor starts settings again: A/A, sentinels, and the confirmation in rounds, within the budget's share."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from conductor_desk import Desk

from launchers.errors import PortTaken, ServerCrashed
from orchestrator.analysis.confirmation import confirmations
from orchestrator.analysis.fresh_starts import refuted
from orchestrator.analysis.objectives import parse_objective
from orchestrator.analysis.rows import Outcome
from orchestrator.analysis.winner import winner
from orchestrator.offered_load import Load
from orchestrator.plan import TrialPlan
from orchestrator.price import confirmation_cost

MakeDesk = Callable[..., Desk]
#: 6 configurations; half of 12 trials pays for an A/A start and the confirmation of two finalists.
CHANGES: dict[str, Any] = {
    "budget": {"trials": 12},
    "repeats": {"share": 0.5, "sentinel_every": 0},
    "constraints": [],
}


def rate_of(plan: TrialPlan) -> float:
    """More running requests are faster; the third start of a setting is a little slower than the first."""
    return 100.0 + plan.flags.get("max-running-requests", 0) + 0.1 * plan.ordinal


def run_all(d: Desk, most: int = 40) -> list[TrialPlan]:
    plans = []
    for n in range(most):
        plan = d.conductor.next(f"n{n}")
        if plan is None:
            break
        d.carry_out(f"n{n}", plan, rate_of(plan))
        plans.append(plan)
    return plans


def roles(d: Desk) -> list[str]:
    return [rows[0].trial.role for _, rows in sorted(d.store.trials().items())]


def test_a_study_ends_with_its_winner_confirmed(desk: MakeDesk) -> None:
    d = desk(changes=CHANGES)
    plans = run_all(d)
    found = roles(d)
    assert found[:2] == ["baseline", "sentinel"]
    searched = found.count("baseline") + found.count("candidate")
    rounds = found.count("confirmation") // 3
    assert searched <= 6
    assert rounds >= 2
    assert found == [*found[: searched + 1], *["confirmation"] * 3 * rounds]
    assert d.conductor.ended in ("budget", "exhausted")
    # Interleaved: the baseline, then each finalist, round by round.
    rows = d.store.trials()
    order = [(r[0].trial.repeats, r[0].trial.repeat) for r in rows.values() if r[0].trial.role == "confirmation"]
    best, second = order[1][0], order[2][0]
    in_round = {1: (0, best, second), 0: (second, best, 0)}
    assert order == [(of, n) for n in range(1, rounds + 1) for of in in_round[n % 2]]
    # The finalists' own settings are started, and the score's level alone is measured.
    confirmed = [p for p in plans if rows[p.ordinal][0].trial.role == "confirmation"]
    assert {p.ladder for p in confirmed} == {(Load(4),)}
    by_ordinal = {p.ordinal: p for p in plans}
    for plan in confirmed:
        of = rows[plan.ordinal][0].trial.repeats
        assert of is not None
        assert plan.flags == by_ordinal[of].flags
        assert rows[plan.ordinal][0].trial.identity == rows[of][0].trial.identity
    every = [r for g in rows.values() for r in g]
    assert [c.rounds for c in confirmations(every, parse_objective("output_tokens_per_s@4"), ())] == [rounds] * 2
    assert winner(rows, d.config.score.objective, d.config.limits) in (best, second)
    assert d.conductor.done == d.conductor.planned == len(rows)


def test_the_baseline_is_measured_twice_in_its_own_start(desk: MakeDesk) -> None:
    d = desk(changes=CHANGES)
    plan = d.conductor.next("a")
    assert plan is not None
    assert plan.ladder == (Load(1), Load(4), Load(4, repeat=1))
    d.carry_out("a", plan, 100.0)
    sentinel = d.conductor.next("b")
    assert sentinel is not None
    assert (sentinel.flags, sentinel.ladder) == ({}, (Load(1), Load(4)))


def test_a_run_that_goes_on_makes_no_repeat_twice(desk: MakeDesk) -> None:
    whole = desk(changes=CHANGES)
    run_all(whole, most=10)
    seen = roles(whole)
    assert "confirmation" in seen
    d = desk(changes=CHANGES)
    assert d.conductor.resume() == []
    assert not d.conductor.nothing_left()
    run_all(d)
    rows = d.store.trials()
    keys = [(r[0].trial.repeats, r[0].trial.repeat) for r in rows.values() if r[0].trial.role == "confirmation"]
    assert len(keys) == len(set(keys))
    assert roles(d).count("sentinel") == 1
    again = desk(changes=CHANGES)
    again.conductor.resume()
    assert again.conductor.nothing_left()


def test_an_interrupted_repeat_is_made_again_as_what_it_was(desk: MakeDesk) -> None:
    d = desk(changes=CHANGES)
    run_all(d, most=9)
    plan = d.conductor.next("x")
    assert plan is not None
    d.end("x", d.start(plan), Outcome("interrupted"))
    d = desk(changes=CHANGES)
    assert d.conductor.resume() == [plan.ordinal]
    again = d.conductor.next("y")
    assert again is not None
    assert (again.ordinal, again.attempt, again.flags, again.ladder) == (plan.ordinal, 2, plan.flags, plan.ladder)


def test_a_repeat_that_fails_for_good_leaves_its_round_and_the_rest_goes_on(desk: MakeDesk) -> None:
    d = desk(changes=CHANGES)
    failed = None
    for n in range(40):
        plan = d.conductor.next(f"n{n}")
        if plan is None:
            break
        role = d.conductor.live[f"n{n}"].role
        if role == "confirmation" and failed in (None, plan.ordinal) and d.conductor.live[f"n{n}"].repeats != 0:
            failed = plan.ordinal
            d.end(f"n{n}", d.start(plan), Outcome("failed", PortTaken.kind, "taken"))
        else:
            d.carry_out(f"n{n}", plan, rate_of(plan))
    rows = d.store.trials()
    found = confirmations([r for g in rows.values() for r in g], d.config.score.objective, ())
    assert len({c.rounds for c in found}) == 2
    assert d.conductor.ended is not None


def test_where_nothing_beats_the_baseline_it_is_started_again_instead(desk: MakeDesk) -> None:
    d = desk(changes=CHANGES)
    for n in range(20):
        if d.run(f"n{n}", rate=100.0 - n) is None:
            break
    assert "confirmation" not in roles(d)
    assert roles(d)[-2:] == ["sentinel", "sentinel"]
    assert d.conductor.ended in ("budget", "exhausted")


def test_a_time_budget_keeps_time_for_the_confirmation(desk: MakeDesk) -> None:
    d = desk(changes={**CHANGES, "budget": {"trials": 12, "time": "120s"}})
    run_all(d)
    # 12 starts of 10 s: the search stops early enough for the confirmation to be made.
    assert "confirmation" in roles(d)
    assert d.now <= 120.0
    assert d.conductor.ended == "time"


@pytest.mark.parametrize("nodes", [2, 3])
def test_finalists_are_chosen_once_every_candidate_has_its_end(desk: MakeDesk, nodes: int) -> None:
    d = desk(changes=CHANGES, nodes=nodes)
    run_all(d, most=5)
    last = d.conductor.next("slow")
    assert last is not None
    assert d.conductor.live["slow"].role == "candidate"
    while (plan := d.conductor.next("other")) is not None and d.conductor.live["other"].role == "candidate":
        d.carry_out("other", plan, 150.0)
    assert plan is None
    d.carry_out("slow", last, 500.0)
    first = d.conductor.next("other")
    assert first is not None
    assert d.conductor.live["other"].role == "confirmation"
    second = d.conductor.next("slow")
    assert second is not None
    assert d.conductor.live["slow"].repeats == last.ordinal


def test_a_confirmation_measures_the_loads_of_the_constraints_too(desk: MakeDesk) -> None:
    d = desk(changes={**CHANGES, "constraints": ["ttft_ms.p99@1 <= 150"], "workload": {"concurrency": [1, 2, 4]}})
    plans = run_all(d)
    again = [plan for plan in plans if d.store.trial(plan.ordinal)[0].trial.role == "confirmation"]
    assert again
    assert {plan.ladder for plan in again} == {(Load(1), Load(4))}
    # Of three loads two: what it costs beside a whole start follows.
    assert d.config.confirmation_ladder == (Load(1), Load(4))
    assert 0.8 < confirmation_cost(d.config) < 1


def test_a_finalist_that_fails_by_itself_is_refuted_at_once(desk: MakeDesk) -> None:
    d = desk(changes=CHANGES)
    failed: list[int] = []
    for n in range(40):
        key = f"n{n}"
        plan = d.conductor.next(key)
        if plan is None:
            break
        trial = d.conductor.live[key]
        if trial.role == "confirmation" and trial.repeats and not failed:
            failed = [plan.ordinal, trial.repeats]
            d.end(key, d.start(plan), Outcome("failed", ServerCrashed.kind, "it died", "benchmark"))
        else:
            assert not failed or trial.repeats != failed[1]
            d.carry_out(key, plan, rate_of(plan))
    # Another start might live: whether each does is what was asked.
    assert (d.outcome(failed[0]).state, failed[0] in d.store.trials()) == ("failed", True)
    rows = d.store.trials()
    assert list(refuted(rows, ())) == failed[1:]
    best = winner(rows, d.config.score.objective, d.config.limits)
    assert best not in (None, failed[1])
    assert d.conductor.ended in ("budget", "exhausted")


@pytest.mark.parametrize("better", [False, True])
def test_a_whole_study_keeps_its_repeats_within_the_share(desk: MakeDesk, better: bool) -> None:
    ladder = [1, 2, 4, 8, 16]
    d = desk(
        changes={
            "budget": {"trials": 48},
            "repeats": {},
            "constraints": [],
            "space": {"flags": {"max-running-requests": {"int": [2, 200]}}},
            "workload": {"concurrency": ladder},
        }
    )
    rng = random.Random(1)
    for n in range(90):
        key = f"n{n}"
        plan = d.conductor.next(key)
        if plan is None:
            break
        # Starts far apart ask for as many rounds as the share pays for.
        faster = 50.0 if better and plan.flags else -50.0 if plan.flags else 0.0
        d.carry_out(key, plan, 100.0 + faster + rng.gauss(0, 3), took_s=len(plan.ladder))
    assert d.conductor.ended == "budget"
    # A level costs what it costs: there is no start in this study, so that the confirmation's are a fifth of a trial.
    again = [len(rows) for rows in d.store.trials().values() if rows[0].trial.repeats is not None]
    assert 0.15 * 48 * len(ladder) < sum(again) <= 0.2 * 48 * len(ladder)
    assert ("confirmation" in roles(d)) is better
