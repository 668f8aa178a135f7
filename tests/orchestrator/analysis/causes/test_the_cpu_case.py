"""A real SGLang 0.5.23 on two CPU cores with drafters that guess as well as asked: where each pays, and why.

Figures measured on two idle cores, 2026-11, with SGLang's own client, 32 prompt and 64 output tokens: output tokens/s
at 1, 4 and 8 users, and tokens a cycle. The time per token, which was not kept, is taken as users over throughput.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from orchestrator.analysis.explain import explain
from orchestrator.analysis.finding import Finding
from orchestrator.analysis.journal import entries
from orchestrator.analysis.objectives import parse_objective
from orchestrator.analysis.rows import Row
from orchestrator.benchmark.records import Distribution

LADDER = (1, 4, 8)
SCORE = parse_objective("output_tokens_per_s@8")
#: Of two runs, the mean.
PLAIN = (68.0, 217.0, 346.5)
#: By the drafter's noise and steps: tokens/s, and tokens a cycle.
DRAFTED = {
    ("0.0", 3): ((134.0, 364.0, 590.0), (4.0, 4.0, 4.0)),
    ("0.1", 3): ((115.0, 283.0, 437.0), (2.6, 2.7, 2.65)),
    ("0.1", 6): ((111.0, 244.0, 419.0), (3.2, 3.4, 3.3)),
    ("0.2", 3): ((99.0, 198.0, 314.0), (2.2, 2.2, 2.2)),
    ("0.3", 3): ((56.0, 68.0, 92.0), (1.9, 1.9, 1.9)),
}


@pytest.fixture(scope="module")
def rows(build_row: Callable[..., Row]) -> list[Row]:
    def level(trial: int, users: int, rate: float, **more: object) -> Row:
        row = build_row(trial, users, rate, simulated=False, gpus=0, admits=8, **more)
        assert row.level is not None
        ms = 1000 * users / rate
        metrics = dataclasses.replace(row.level.metrics, tpot_ms=Distribution(ms, ms, ms, ms))
        return dataclasses.replace(row, level=dataclasses.replace(row.level, metrics=metrics))

    found = [level(0, users, rate, role="baseline") for users, rate in zip(LADDER, PLAIN, strict=True)]
    for number, ((noise, steps), (rates, lengths)) in enumerate(DRAFTED.items(), start=1):
        flags = {
            "speculative-algorithm": "EAGLE",
            "speculative-draft-model-path": f"models/markov-eagle-{noise}",
            "speculative-num-steps": steps,
            "speculative-eagle-topk": 1,
            "speculative-num-draft-tokens": steps + 1,
        }
        for users, rate, length in zip(LADDER, rates, lengths, strict=True):
            found.append(level(number, users, rate, flags=flags, accept_length=length))
    return found


@pytest.fixture(scope="module")
def told(rows: list[Row]) -> list[Finding]:
    return explain(rows, SCORE)


def crossover(told: list[Finding], noise: str) -> Finding:
    [found] = [f for f in told if f.kind == "crossover" and f.data["drafter"] == f"EAGLE with markov-eagle-{noise}"]
    return found


def at(told: list[Finding], noise: str, users: int) -> Finding:
    [found] = [
        f
        for f in told
        if f.kind == "break_even"
        and (f.data["drafter"], f.data["concurrency"]) == (f"EAGLE with markov-eagle-{noise}", users)
    ]
    return found


def test_the_crossover_of_the_middling_drafter_is_explained(told: list[Finding]) -> None:
    found = crossover(told, "0.2")
    assert found.data["verdicts"] == {1: "pays", 4: "costs", 8: "costs"}
    assert found.text.startswith(
        "EAGLE with markov-eagle-0.2 crosses over between C=1 and C=4: it pays at C=1 and costs from C=4 on, "
        "by single starts. It gets 2.20 tokens a cycle, whatever the load; break-even is about 1.51 at C=1 and "
        "2.43 at C=8"
    )
    assert "consistent with verifying 4 tokens of each" in found.text
    assert [level["break_even"] > level["accept_length"] for level in found.data["levels"]] == [False, True, True]


def test_the_good_drafters_pay_at_every_load(told: list[Finding]) -> None:
    for noise in ("0.0", "0.1"):
        assert "pays at every load" in crossover(told, noise).text
    assert ": it pays (trial 2, the best of 2)" in at(told, "0.1", 8).text


def test_the_noisy_drafter_loses_since_it_gets_less_than_a_cycle_costs(told: list[Finding]) -> None:
    assert "pays at no load" in crossover(told, "0.3").text
    found = at(told, "0.3", 1)
    assert found.data["break_even"] == pytest.approx(1.9 * 68 / 56)
    assert found.text == (
        "EAGLE with markov-eagle-0.3 at C=1: 1.90 tokens a cycle of at most 4; break-even here is about 2.31, because "
        "a cycle took 34 ms, about 2.31 plain steps at batch 1 (14.7 ms, the baseline's). -17.6 % against the "
        "baseline, by single starts of which nobody knows how far they differ: no speedup (trial 5)."
    )


def test_deeper_drafting_by_the_better_drafter_does_not_pay(told: list[Finding]) -> None:
    [found] = [f for f in told if f.kind == "draft_depth"]
    assert (found.data["drafter"], found.data["steps"]) == ("EAGLE with markov-eagle-0.1", [3, 6])
    assert "(+23 %), and a cycle takes 29 ms instead of 23 ms (+28 %): deeper costs more than it brings" in found.text


def test_nothing_measured_is_called_simulated(told: list[Finding], rows: list[Row]) -> None:
    lines = entries(rows, SCORE)
    assert not any("simulated" in text for text in [f.text for f in told] + [line.finding for line in lines])
    assert lines[4].finding == "accept length 2.20 of 4, -9.4 % at C=8: no speedup"
