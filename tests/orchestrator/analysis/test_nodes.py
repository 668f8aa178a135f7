"""Several nodes: what they differ by is told, and is no setting's merit or fault."""

from __future__ import annotations

import random
from collections.abc import Callable

from orchestrator.analysis.confirmation import confirmations
from orchestrator.analysis.findings import findings
from orchestrator.analysis.objectives import parse_objective
from orchestrator.analysis.rows import Row, by_trial
from orchestrator.analysis.winner import winner

Build = Callable[..., Row]
SCORE = parse_objective("output_tokens_per_s@8")
SD = 0.003


def study(build: Build, seed: int, gap: float, sentinels: str, gain: float = 0.0, rounds: int = 4) -> list[Row]:
    """Node b is slower by `gap`. Every round has the baseline on one node and the finalist on the other, as two nodes
    take what is handed out; `sentinels` are the nodes of the baseline's starts before."""
    rng = random.Random(seed)

    def rate(node: str, more: float = 0.0) -> float:
        return 200 * (1 + more) * (1 - gap * (node == "b")) * (1 + rng.gauss(0, SD))

    rows = [build(1, 8, 220.0, node="a")]
    for n, node in enumerate(sentinels):
        number, role = (n + 1, "sentinel") if n else (0, "baseline")
        rows.append(build(number, 8, rate(node), role=role, repeats=0 if n else None, repeat=n, node=node))
    rows = [r for r in rows if r.trial.role != "candidate"] + rows[:1]
    for number in range(1, rounds + 1):
        for of, node in ((0, "a"), (1, "b")):
            value = rate(node, gain * of)
            rows.append(build(40 + len(rows), 8, value, role="confirmation", repeats=of, repeat=number, node=node))
    return rows


def test_the_difference_of_nodes_is_no_difference_of_settings(build_row: Build) -> None:
    verdicts = [confirmations(study(build_row, seed, 0.05, "abab"), SCORE, ())[0].verdict for seed in range(100)]
    assert verdicts.count("tie") >= 92


def test_nor_does_it_hide_one(build_row: Build) -> None:
    found = [confirmations(study(build_row, seed, 0.05, "ababab", gain=0.04), SCORE, ())[0] for seed in range(30)]
    assert sum(c.verdict == "better" for c in found) >= 27


def test_what_cannot_be_told_from_the_node_is_not_claimed(build_row: Build) -> None:
    rows = study(build_row, 1, -0.05, "aaaa")
    assert confirmations(rows, SCORE, ()) == []
    [said] = [f for f in findings(rows, SCORE) if f.kind == "confirmed_not"]
    assert "trial 1 and the baseline were started afresh on different nodes" in said.text
    assert not [f for f in findings(rows, SCORE) if f.kind.startswith("confirmed_") and f is not said][1:]
    assert winner(by_trial(rows), SCORE, ()) == 1  # of the search, and unconfirmed


def test_nodes_that_differ_are_told_and_those_that_do_not_are_not(build_row: Build) -> None:
    [said] = [f for f in findings(study(build_row, 2, 0.05, "ababab"), SCORE) if f.kind == "node_difference"]
    assert said.text.startswith("Nodes differ: on node-1/a output_tokens_per_s@8 is +5.")
    assert "beside node-1/b" in said.text
    told = [
        f for s in range(60) for f in findings(study(build_row, s, 0.0, "ababab"), SCORE) if f.kind == "node_difference"
    ]
    assert len(told) <= 6
