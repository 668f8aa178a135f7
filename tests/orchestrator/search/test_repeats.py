"""How the budget is divided between the search and its proof, and what is started again when."""

from __future__ import annotations

import itertools

import pytest

from orchestrator.config import Repeats
from orchestrator.search.repeats import (
    Launched,
    Repeat,
    confirmation_due,
    confirmations_left,
    finalists,
    more_rounds,
    plan_repeats,
    sentinel_due,
)


@pytest.mark.parametrize(("trials", "cost"), list(itertools.product((1, 2, 5, 12, 24, 100, 400), (0.3, 0.7, 1.0))))
def test_repeats_never_cost_more_than_their_share(trials: int, cost: float) -> None:
    plan = plan_repeats(Repeats(), trials, cost)
    spent = plan.aa + len(plan.sentinels) + plan.confirmations * cost
    assert spent == pytest.approx(plan.cost)
    assert spent <= 0.2 * trials + 1e-9
    assert 1 <= plan.searched <= trials
    # What is searched and what is proven are the budget.
    assert trials - 1 < plan.searched + spent <= trials


def test_a_large_budget_pays_for_all_that_is_asked() -> None:
    plan = plan_repeats(Repeats(), 100, 0.7)
    assert (plan.aa, plan.finalists, plan.rounds) == (1, 2, 3)
    assert plan.sentinels == tuple(range(8, 81, 8))
    # Fewer than one after every 8 candidates are spread evenly.
    assert plan_repeats(Repeats(), 48, 0.95).sentinels == (12, 25)
    assert plan.confirmations == 9


def test_of_a_small_budget_the_confirmation_comes_first() -> None:
    plan = plan_repeats(Repeats(), 16, 0.7)
    assert (plan.finalists, plan.rounds, plan.aa, plan.sentinels) == (1, 2, 0, ())
    assert plan_repeats(Repeats(), 4, 0.7).launches == 4
    assert plan_repeats(Repeats(share=0), 100, 0.7).launches == 100
    assert plan_repeats(Repeats(finalists=0), 24, 0.7).confirmations == 0


def test_what_an_earlier_confirmation_cost_is_not_spent_again() -> None:
    assert plan_repeats(Repeats(), 48, 0.7, spent=9.0).confirmations == 0


def test_more_rounds_come_out_of_what_is_left_of_the_share() -> None:
    plan = plan_repeats(Repeats(sentinel_every=0), 100, 0.7)
    assert more_rounds(plan, 2) == plan
    grown = more_rounds(plan, 50)
    assert grown.rounds > 3
    assert grown.cost <= grown.allowed < grown.cost + 3 * 0.7
    assert more_rounds(plan, 4).rounds == 4


def searched(*merits: float | None) -> list[Launched]:
    return [Launched(n, "candidate" if n else "baseline", merit=merit) for n, merit in enumerate(merits)]


def test_the_baseline_is_started_again_at_once_and_then_every_so_often() -> None:
    plan = plan_repeats(Repeats(), 100, 0.7)
    launched, order = searched(100.0), []
    while len(launched) < 21:
        due = sentinel_due(plan, launched)
        role = due.role if due else "candidate"
        order.append(role[0])
        launched.append(Launched(len(launched), role, due.of if due else None, due.number if due else 0, 90.0))
    assert "".join(order) == "s" + "cccccccc" + "s" + "cccccccc" + "s" + "c"
    assert [t.number for t in launched if t.role == "sentinel"] == [1, 2, 3]


def test_finalists_are_the_best_that_beat_the_baseline() -> None:
    launched = searched(100.0, 90.0, 120.0, None, 110.0, 120.0)
    assert finalists(launched, 2) == [2, 5]
    assert finalists(launched, 9) == [2, 5, 4]
    assert finalists(searched(100.0, 90.0), 2) == []
    assert finalists(searched(None, 90.0), 2) == []


def confirm(launched: list[Launched], trials: int = 100) -> list[Repeat]:
    plan, made = plan_repeats(Repeats(), trials, 0.7), []
    while (due := confirmation_due(plan, launched)) is not None:
        made.append(due)
        launched.append(Launched(len(launched), due.role, due.of, due.number))
    return made


def test_the_confirmation_goes_round_by_round() -> None:
    launched = searched(100.0, 120.0, 110.0)
    made = confirm(launched)
    # Every second round the other way round: a drift is no difference.
    assert [(r.of, r.number) for r in made] == [(0, 1), (1, 1), (2, 1), (2, 2), (1, 2), (0, 2), (0, 3), (1, 3), (2, 3)]
    assert confirm(launched) == []


def test_a_refuted_finalist_is_not_started_again() -> None:
    launched = searched(100.0, 120.0, 110.0)
    launched += [Launched(3, "confirmation", 0, 1), Launched(4, "confirmation", 1, 1, refutes=True)]
    assert [(r.of, r.number) for r in confirm(list(launched))] == [(2, 1), (2, 2), (0, 2), (0, 3), (2, 3)]
    # Nor is the baseline, once there is nobody left to stand beside it.
    launched.append(Launched(5, "confirmation", 2, 1, refutes=True))
    assert confirm(list(launched)) == []
    # Of a search that went on neither is a finalist again.
    launched.append(Launched(6, "candidate", merit=105.0))
    assert finalists(launched, 9) == [6]


def test_a_search_that_goes_on_is_confirmed_afresh() -> None:
    launched = searched(100.0, 120.0, 110.0)
    confirm(launched)
    launched.append(Launched(len(launched), "candidate", merit=130.0))
    again = confirm(launched)
    # Further rounds: those of the earlier one belong to another time.
    assert [(r.of, r.number) for r in again][:3] == [(0, 4), (12, 4), (1, 4)]


def test_without_a_candidate_above_the_baseline_the_floor_is_measured_instead() -> None:
    plan = plan_repeats(Repeats(), 16, 0.7)
    assert (plan.aa, plan.rounds, plan.confirmations) == (0, 2, 4)
    # Four starts of 0.7 trials pay for two whole ones.
    assert confirm(searched(100.0, 90.0), 16) == [Repeat(0, "sentinel", 1), Repeat(0, "sentinel", 2)]


@pytest.mark.parametrize("trials", [24, 48, 100])
@pytest.mark.parametrize("cost", [0.2, 0.3, 0.6])
def test_what_is_made_instead_of_a_confirmation_keeps_to_the_share(trials: int, cost: float) -> None:
    plan = more_rounds(plan_repeats(Repeats(), trials, cost), 50)
    made = confirmations_left(plan, searched(100.0, 90.0))
    assert plan.instead > 0
    assert made == plan.aa + len(plan.sentinels) + plan.instead <= plan.allowed + 1e-9


def test_what_is_left_to_confirm_is_counted_as_it_will_be_asked() -> None:
    launched = searched(100.0, 120.0, 110.0)
    plan = plan_repeats(Repeats(), 100, 0.7)
    assert confirmations_left(plan, launched) == 9
    launched.append(Launched(3, "confirmation", 0, 1))
    assert confirmations_left(plan, launched) == 8
