"""Output compared with the baseline's, as the conductor keeps it and tells it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from conductor_desk import Desk

from orchestrator.analysis.rows import Outcome
from orchestrator.offered_load import Load
from orchestrator.plan import Report

RIGHT = tuple(tuple(range(n, n + 20)) for n in range(12))
WRONG = tuple(tuple(range(n + 500, n + 520)) for n in range(12))


def answered(d: Desk, key: str, outputs: Any, alone: Any = None) -> int:
    """A whole trial of a server that gives these greedy answers; its ordinal."""
    plan = d.conductor.next(key)
    assert plan is not None
    start = dataclasses.replace(d.start(plan), outputs=outputs, outputs_alone=alone)
    d.conductor.report(key, Report("ready", start=start))
    for load in d.config.workload.ladder:
        d.measure(key, plan, start, load, rate=900.0 if outputs == WRONG else 100.0)
    d.end(key, start, Outcome("complete"))
    return plan.ordinal


def test_output_unlike_the_baselines_is_told_as_a_violated_constraint(desk: Callable[..., Desk]) -> None:
    d = desk()
    answered(d, "a", RIGHT, alone=RIGHT)
    wrong, right = answered(d, "b", WRONG), answered(d, "c", RIGHT)
    rows = d.store.trials()
    assert [row.start.output_differs for row in rows[wrong]] == [True, True]
    assert [row.start.output_differs for row in rows[right] + rows[0]] == [False] * 4
    assert (rows[wrong][0].start.output_agreement, rows[wrong][0].start.output_self_agreement) == (0.0, 1.0)
    assert d.optuna_states() == ["COMPLETE", "PRUNED", "COMPLETE"]
    told = d.study._study.trials[1]
    assert told.constraints["output"] > 0
    assert told.user_attrs["reason"] == "output_differs"
    assert [done.how for done in d.finished] == [
        "complete",
        "complete, but its output is not the baseline's",
        "complete",
    ]

    # A later run knows the baseline's answers from the disk.
    later = desk()
    later.conductor.resume()
    number = answered(later, "d", WRONG)
    assert later.store.trials()[number][0].start.output_differs is True


def test_a_baseline_that_was_interrupted_is_the_yardstick_of_its_own_levels(desk: Callable[..., Desk]) -> None:
    d = desk()
    plan = d.conductor.next("a")
    assert plan is not None
    start = dataclasses.replace(d.start(plan), outputs=RIGHT, outputs_alone=RIGHT)
    d.conductor.report("a", Report("ready", start=start))
    d.measure("a", plan, start, Load(1))
    d.end("a", start, Outcome("interrupted"))
    later = desk()
    later.conductor.resume()
    again = later.conductor.next("a")
    assert again is not None
    assert again.ordinal == 0
    # This start could not be asked: the first one's answers remain.
    unasked = later.start(again)
    later.conductor.report("a", Report("ready", start=unasked))
    later.measure("a", again, unasked, Load(4))
    later.end("a", unasked, Outcome("complete"))
    number = answered(later, "b", WRONG)
    assert later.store.trials()[number][0].start.output_differs is True


@pytest.mark.parametrize(("temperature", "differs"), [(0.7, True), (0.0, False)])
def test_lossy_thresholds_are_never_a_score_where_tokens_are_sampled(
    desk: Callable[..., Desk], temperature: float, differs: bool
) -> None:
    speculative = {
        "speculative-algorithm": "EAGLE",
        "speculative-draft-model-path": "d",
        "speculative-accept-threshold-single": 0.5,
        "speculative-num-steps": 3,
        "speculative-eagle-topk": 1,
        "speculative-num-draft-tokens": 4,
    }
    space = {"flags": {name: {"choices": [value]} for name, value in speculative.items()}}
    workload = {"concurrency": [1, 4], "sampling": {"temperature": temperature}}
    d = desk(changes={"space": space, "workload": workload})
    answered(d, "a", RIGHT, alone=RIGHT)
    trial = answered(d, "b", RIGHT)
    assert [row.start.output_differs for row in d.store.trials()[trial]] == [differs] * 2
    assert d.optuna_states()[-1] == ("PRUNED" if differs else "COMPLETE")
