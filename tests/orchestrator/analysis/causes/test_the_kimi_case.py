"""A study of the box that one team tuned by hand for months: the causes they found are told unasked (simulated).

The rows are drawn through the twin's performance model, which is held to what they measured.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from twin_study import eagle3, trial

from launchers.simulated.profile import load_profile
from orchestrator.analysis.explain import explain, explain_trial
from orchestrator.analysis.finding import Finding
from orchestrator.analysis.findings import findings
from orchestrator.analysis.objectives import parse_objective
from orchestrator.analysis.rows import Row

PROFILE = load_profile("kimi-k2.5-8x-rtx-pro-6000")
SCORE = parse_objective("output_tokens_per_s@128")
K2, OWN, WRONG = (
    "moonshotai/Kimi-K2-eagle3",
    "ours/Kimi-K2.5-eagle3",
    "ours/Kimi-K2.5-eagle3-wrong-wiring",
)
TUNED = {"NCCL_PROTO": "LL", "NCCL_ALGO": "allreduce:tree", "NCCL_P2P_LEVEL": "SYS"}
SETTINGS = {
    0: ({}, {}),
    1: ({}, {}),
    2: ({}, TUNED),
    3: (eagle3(K2, 3), {}),
    4: (eagle3(K2, 5), {}),
    5: (eagle3(OWN, 3), {}),
    6: (eagle3(OWN, 5), {}),
    7: (eagle3(OWN, 10), {}),
    8: (eagle3(WRONG, 5), {}),
    9: (eagle3(OWN, 5), TUNED),
    10: (eagle3(OWN, 10), TUNED),
    11: (eagle3(OWN, 5, 2, 8), TUNED),
    12: (eagle3(OWN, 5, 4, 16), TUNED),
    13: ({"max-running-requests": 48}, {}),
    14: (eagle3(OWN, 3), TUNED),
}


@pytest.fixture(scope="module")
def rows(build_row: Callable[..., Row]) -> list[Row]:
    found = []
    for number, (flags, env) in SETTINGS.items():
        role = {0: "baseline", 1: "sentinel"}.get(number, "candidate")
        repeats = 0 if role == "sentinel" else None
        found += trial(build_row, PROFILE, number, flags, env, role=role, repeats=repeats)
    return found


@pytest.fixture(scope="module")
def told(rows: list[Row]) -> list[Finding]:
    return explain(rows, SCORE)


def of(told: list[Finding], kind: str, **data: object) -> Finding:
    [found] = [f for f in told if f.kind == kind and all(f.data.get(k) == v for k, v in data.items())]
    return found


def test_speculation_loses_at_every_load_with_every_drafter(told: list[Finding]) -> None:
    crossovers = [f for f in told if f.kind == "crossover"]
    assert {f.data["drafter"] for f in crossovers} == {
        "EAGLE3 with Kimi-K2-eagle3",
        "EAGLE3 with Kimi-K2.5-eagle3",
        "EAGLE3 with Kimi-K2.5-eagle3-wrong-wiring",
    }
    for found in crossovers:
        assert set(found.data["verdicts"].values()) == {"costs"}
        assert "pays at no load" in found.text
    judged = [f for f in told if f.kind == "break_even"]
    assert len(judged) == 3 * 4
    assert all(f.data["accept_length"] < f.data["break_even"] for f in judged)


def test_the_sentence_on_the_sister_models_drafter_at_128_users(told: list[Finding]) -> None:
    """849 tok/s were measured, 1.65 tokens a cycle under a cap of 48: a cycle of 93 ms, about three plain steps."""
    found = of(told, "break_even", drafter="EAGLE3 with Kimi-K2-eagle3", concurrency=128)
    assert found.data["trial"] == 3
    assert found.data["accept_length"] == pytest.approx(1.65, abs=0.05)
    assert found.data["cycle_ms"] == pytest.approx(93, abs=4)
    assert found.data["batch"] == 48
    assert found.data["break_even"] == pytest.approx(3.05, abs=0.2)
    assert found.data["gain_percent"] == pytest.approx(-64, abs=2)
    assert found.text.startswith("EAGLE3 with Kimi-K2-eagle3 at C=128: 1.65 tokens a cycle of at most 4; break-even")
    assert "and max_running_requests was 48, so 80 of 128 requests queued" in found.text
    # The step at batch 48 was measured in the trial that only has the cap.
    assert found.data["plain_step_from"] == (13,)
    assert found.data["plain_step_how"] == "measured"
    assert {(3, "C=128"), (13, "C=128")} <= set(found.rows)


def test_what_is_measured_at_48_would_have_been_read_off_the_ladder(rows: list[Row]) -> None:
    without = explain([row for row in rows if row.trial.trial != 13], SCORE)
    found = of(without, "break_even", drafter="EAGLE3 with Kimi-K2-eagle3", concurrency=128)
    assert found.data["plain_step_how"] == "interpolated"
    assert found.data["break_even"] == pytest.approx(3.05, abs=0.3)
    assert "the baseline's between C=32 and C=128" in found.text


def test_tuned_and_stock_nccl_are_not_mixed_up(told: list[Finding]) -> None:
    """71 against 90 tok/s: the drafter's best is faster than the stock baseline, and still costs."""
    found = of(told, "break_even", drafter="EAGLE3 with Kimi-K2.5-eagle3", concurrency=1)
    assert found.data["gain_percent"] > 5
    assert (found.data["verdict"], found.data["against"]) == ("costs", 2)
    assert "against trial 2, the same without speculation: no speedup" in found.text


def test_the_cap_of_48_is_sglangs_own_and_costs(told: list[Finding]) -> None:
    found = of(told, "admission_limited", concurrency=128)
    assert set(found.data["caps"].values()) == {48}
    assert 13 not in found.data["unasked"]
    assert {3, 9} <= set(found.data["unasked"])
    assert "SGLang itself set it so because it speculated" in found.text
    assert found.data["cap_moved_percent"] == pytest.approx(-38, abs=4)


def test_nccl_tuning_removed_communication_at_low_load_and_costs_at_high(told: list[Finding]) -> None:
    """63.6 became 90 tok/s by NCCL alone."""
    found = of(told, "communication", concurrency=1)
    assert found.data["gain_percent"] == pytest.approx(41.5, abs=2)
    assert found.data["removed_ms"] == pytest.approx(1000 / 63.6 - 1000 / 90, abs=0.4)
    assert ". That is consistent with " in found.text
    assert "of the baseline's step at batch 1 having been communication. Elsewhere it costs: " in found.text
    assert 128 in found.data["costs"]


def test_the_wrong_wiring_is_suspected_and_no_more_than_that(told: list[Finding]) -> None:
    [found] = [f for f in told if f.kind == "drafter_unfit"]
    assert found.data["drafter"] == "EAGLE3 with Kimi-K2.5-eagle3-wrong-wiring"
    assert "consistent with" in found.text
    assert "eagle_aux_hidden_state_layer_ids" in found.text
    beside = of(told, "drafters")
    lengths = [step["accept_length"] for step in beside.data["drafters"].values()]
    assert lengths == sorted(lengths, reverse=True)
    assert list(beside.data["drafters"]) == ["Kimi-K2.5-eagle3", "Kimi-K2-eagle3", "Kimi-K2.5-eagle3-wrong-wiring"]
    assert "acceptance alone" in beside.text


def test_drafting_deeper_costs_more_than_it_brings(told: list[Finding]) -> None:
    found = of(told, "draft_depth", drafter="EAGLE3 with Kimi-K2.5-eagle3")
    assert found.data["steps"] == [3, 10]
    assert "deeper costs more than it brings" in found.text


def test_a_cycle_is_divided_as_far_as_the_trials_tell(told: list[Finding]) -> None:
    """The model's draft step is 1.04 ms + 0.03 ms a branch, and two all-reduces; see the profile."""
    [stock, tuned] = [f for f in told if f.kind == "cycle_parts"]
    assert "which cannot be told apart" in stock.text
    assert "step with its token" in stock.data["levels"][1]
    at_one = tuned.data["levels"][1]
    step, token = at_one["step"], at_one["token"]
    assert step["ms"] > step["half"]
    assert step["ms"] == pytest.approx(1.15, abs=0.25)
    assert token["ms"] > token["half"]
    # 67 us to verify, 30 us of the target, experts and all-reduces, for each of 48 requests.
    assert tuned.data["levels"][128]["token"]["ms"] > 10 * token["ms"]


def test_one_trial_is_explained_alone(rows: list[Row]) -> None:
    own = explain_trial(rows, 7, SCORE)
    assert {f.data["trial"] for f in own if f.kind == "break_even"} == {7}
    assert own[0].data["concurrency"] == 128
    assert {"crossover", "draft_depth", "admission_limited"} <= {f.kind for f in own}
    assert {f.kind for f in explain_trial(rows, 2, SCORE)} >= {"communication"}
    assert explain_trial(rows, 99, SCORE) == []


def test_the_summary_has_the_causes_and_only_the_scores_load_in_full(rows: list[Row]) -> None:
    told = findings(rows, SCORE)
    assert {f.data["concurrency"] for f in told if f.kind == "break_even"} == {128}
    assert {"crossover", "communication", "admission_limited", "drafter_unfit"} <= {f.kind for f in told}
    assert all("simulated" in f.text for f in told if "tok/s" in f.text)
