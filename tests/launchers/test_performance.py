"""The performance model: its mechanics, and that the Kimi profile tells the case it was made from."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from closed_loop import closed_loop, model_of

from launchers.simulated.acceptance import DraftTree, position_chances
from launchers.simulated.performance import PerformanceModel
from launchers.simulated.profile import Drafter, Profile, Target, load_profile

KIMI = load_profile("kimi-k2.5-8x-rtx-pro-6000")
SPEC_WINS = load_profile("spec-wins")
TINY = load_profile("tiny")
#: Prompt and output tokens.
LONG, SHORT, SHIPPED = (512, 128), (128, 32), (256, 32)
SPACE = Path(__file__).parents[2] / "search_spaces" / "nccl.yaml"


def spec(
    steps: int, topk: int = 1, tokens: int | None = None, drafter: str = "ours/Kimi-K2.5-eagle3"
) -> dict[str, Any]:
    return {
        "speculative-algorithm": "EAGLE3",
        "speculative-draft-model-path": drafter,
        "speculative-num-steps": steps,
        "speculative-eagle-topk": topk,
        "speculative-num-draft-tokens": steps + 1 if tokens is None else tokens,
        "max-running-requests": 256,
    }


def nccl_settings() -> Iterator[dict[str, str]]:
    """Every NCCL setting of the shipped space."""
    env = yaml.safe_load(SPACE.read_text())["space"]["env"]
    names = [name for name in env if name.startswith("NCCL_")]
    for setting in itertools.product(*(env[name]["choices"] for name in names)):
        yield {name: str(value) for name, value in zip(names, setting, strict=True) if value is not None}


def undominated_settings() -> list[dict[str, str]]:
    """Settings that no other beats in both latency and bandwidth: a step's time grows with both."""
    costs = []
    for env in nccl_settings():
        model = PerformanceModel(KIMI, {"tp-size": 8}, env)
        empty = model.breakdown(0, 0)["communication"]
        costs.append((empty, model.breakdown(1000, 0)["communication"] - empty, env))
    return [
        env
        for latency, slope, env in costs
        if not any((a <= latency and b <= slope and (a, b) != (latency, slope)) for a, b, _ in costs)
    ]


def cohort_tokens_per_s(profile: Profile, model: PerformanceModel, batch: int, lengths: tuple[int, int]) -> float:
    """Throughput of `batch` requests that are prefilled in full chunks and then decode in step.

    Kind to speculation: no token of a last step is lost, and no prefill interrupts.
    """
    prompt, output = lengths
    full, rest = divmod(batch, profile.engine.chunked_prefill_size // prompt)
    chunk = profile.engine.chunked_prefill_size // prompt
    prefill_s = full * model.prefill_s(chunk * prompt, chunk)
    if rest:
        prefill_s += model.prefill_s(rest * prompt, rest)
    step_s = model.decode_s(batch, batch * (prompt + output // 2))
    return batch * output / (prefill_s + (output - 1) / model.expected_accept_length() * step_s)


def plain_tokens_per_s(batch: int, lengths: tuple[int, int]) -> dict[tuple[tuple[str, str], ...], float]:
    return {
        tuple(env.items()): cohort_tokens_per_s(KIMI, model_of(KIMI, {}, env)[0], batch, lengths)
        for env in nccl_settings()
    }


# The case


@pytest.mark.parametrize(
    ("profile", "target"),
    [
        pytest.param(profile, target, id=f"{profile.name}: {target.name}")
        for profile in (KIMI, SPEC_WINS)
        for target in profile.targets
    ],
)
def test_a_profile_reaches_each_of_its_targets(profile: Profile, target: Target) -> None:
    measured = closed_loop(
        profile,
        target.flags,
        target.env,
        concurrency=target.concurrency,
        requests_per_user=max(target.requests_per_user, 200 if target.concurrency == 1 else 0),
        prompt_tokens=target.prompt_tokens,
        output_tokens=target.output_tokens,
    )
    assert measured.output_tokens_per_s == pytest.approx(target.output_tokens_per_s, rel=0.02)
    if target.accept_length is not None:
        assert measured.accept_length == pytest.approx(target.accept_length, rel=0.02)


def test_kimi_targets_are_the_figures_of_the_case() -> None:
    assert [t.output_tokens_per_s for t in KIMI.targets] == [63.6, 2370, 90, 849, 71, 60]


@pytest.mark.parametrize("lengths", [LONG, SHORT, SHIPPED])
def test_no_speculative_setting_beats_the_best_plain_one(lengths: tuple[int, int]) -> None:
    trees = [(steps, 1, steps + 1) for steps in range(1, 11)]
    trees += [
        (steps, topk, tokens)
        for steps, topk in itertools.product(range(1, 11), (2, 4, 8))
        for tokens in sorted({steps + 1, 2 * steps + 1, topk * steps + 1, 64})
        if tokens <= topk + (steps - 1) * topk**2 + 1
    ]
    settings = undominated_settings()
    assert 2 <= len(settings) < 40
    for batch in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128):
        best_plain = max(plain_tokens_per_s(batch, lengths).values())
        for env, tree in itertools.product(settings, trees):
            model = PerformanceModel(KIMI, spec(*tree), env)
            assert cohort_tokens_per_s(KIMI, model, batch, lengths) < 0.95 * best_plain, (batch, env, tree)


def test_the_own_drafter_is_the_best_of_the_profile() -> None:
    """So that the sweep over settings need not be repeated for the others: costs do not depend on the drafter."""
    best = KIMI.drafter("ours/Kimi-K2.5-eagle3")
    for steps, topk in itertools.product((1, 3, 10), (1, 4)):
        tree = DraftTree(steps, topk, topk * steps + 1)
        best_chances = position_chances(best, tree)
        for drafter in (*KIMI.drafters.values(), KIMI.unknown_drafter):
            pairs = zip(position_chances(drafter, tree), best_chances, strict=True)
            assert all(mine <= bests for mine, bests in pairs)


def test_more_running_requests_never_cost_throughput() -> None:
    """A cap below the concurrency therefore cannot rescue a speculative setting."""
    for flags in ({}, spec(3)):
        model = model_of(KIMI, flags, {})[0]
        rates = [cohort_tokens_per_s(KIMI, model, batch, LONG) for batch in (1, 2, 4, 8, 16, 32, 64, 128)]
        assert rates == sorted(rates)


@pytest.mark.parametrize("lengths", [LONG, SHORT, SHIPPED])
def test_half_of_the_ll_settings_gain_a_quarter_for_one_user(lengths: tuple[int, int]) -> None:
    rates = plain_tokens_per_s(1, lengths)
    with_ll = [rate for env, rate in rates.items() if ("NCCL_PROTO", "LL") in env]
    assert sum(rate >= 1.25 * rates[()] for rate in with_ll) >= len(with_ll) / 2


def test_one_user_and_many_want_different_nccl_settings() -> None:
    one, many = plain_tokens_per_s(1, LONG), plain_tokens_per_s(128, LONG)
    best_for_one, best_for_many = max(one, key=one.__getitem__), max(many, key=many.__getitem__)
    assert ("NCCL_PROTO", "LL") in best_for_one
    assert one[best_for_one] > 1.2 * one[best_for_many]
    assert many[best_for_many] > 1.2 * many[best_for_one]
    points = list(zip(one.values(), many.values(), strict=True))
    front = {p for p in points if not any(q[0] > p[0] and q[1] > p[1] for q in points)}
    assert len(front) >= 5


def test_the_tuned_targets_use_the_best_setting_of_the_space() -> None:
    one = plain_tokens_per_s(1, LONG)
    tuned = next(target for target in KIMI.targets if target.env)
    assert one[tuple(tuned.env.items())] == max(one.values())


def test_speculation_wins_for_one_user_and_loses_for_many_where_it_should() -> None:
    lengths = {"prompt_tokens": 512, "output_tokens": 128}
    good = "example/good-eagle3"
    plain_one = closed_loop(SPEC_WINS, {}, {}, concurrency=1, **lengths)
    spec_one = closed_loop(SPEC_WINS, spec(3, drafter=good), {}, concurrency=1, requests_per_user=50, **lengths)
    assert spec_one.output_tokens_per_s > 1.5 * plain_one.output_tokens_per_s
    plain_many = closed_loop(SPEC_WINS, {}, {}, concurrency=128, requests_per_user=2, **lengths)
    for steps in (1, 2, 3, 5):
        flags = spec(steps, drafter=good)
        spec_many = closed_loop(SPEC_WINS, flags, {}, concurrency=128, requests_per_user=2, **lengths)
        assert spec_many.output_tokens_per_s < 0.95 * plain_many.output_tokens_per_s


def test_tiny_serves_64_users_at_a_few_thousand_tokens_per_s() -> None:
    measured = closed_loop(TINY, {}, {}, concurrency=64, prompt_tokens=64, output_tokens=64, requests_per_user=5)
    assert 2_000 < measured.output_tokens_per_s < 10_000
    assert sum(seconds for _, seconds in model_of(TINY, {}, {})[0].startup_phases()) < 10


# The mechanics


@pytest.mark.parametrize("flags", [{}, spec(5), spec(3, 4, 16)])
def test_parts_add_up_to_the_step(flags: dict[str, Any]) -> None:
    model = model_of(KIMI, flags, {})[0]
    parts = model.breakdown(16, 9_000)
    assert set(parts) == {"draft", "verify", "communication", "overhead"}
    assert sum(parts.values()) == pytest.approx(model.decode_s(16, 9_000))
    assert (parts["draft"] > 0) == model.speculative


@pytest.mark.parametrize("flags", [{}, spec(5), spec(3, 4, 16)])
def test_steps_cost_more_with_more_requests_and_more_context(flags: dict[str, Any]) -> None:
    model = model_of(KIMI, flags, {})[0]
    times = [model.decode_s(batch, batch * 600) for batch in (1, 2, 8, 64, 256)]
    assert times == sorted(set(times))
    assert model.decode_s(8, 100_000) > model.decode_s(8, 1_000)
    assert model.prefill_s(4096, 1) > model.prefill_s(512, 1)


def test_drafting_costs_more_with_steps_branches_and_batch() -> None:
    def draft_s(steps: int, topk: int, batch: int) -> float:
        return PerformanceModel(KIMI, spec(steps, topk, 32), {}).breakdown(batch, 600)["draft"]

    assert draft_s(3, 1, 1) < draft_s(5, 1, 1) < draft_s(5, 8, 1) < draft_s(5, 8, 64)


def allreduce_like_s(env: dict[str, str], batch: int) -> float:
    return PerformanceModel(KIMI, {"tp-size": 8}, env).breakdown(batch, 0)["communication"]


def test_ll_is_quick_for_small_messages_and_slow_for_large_ones() -> None:
    assert allreduce_like_s({"NCCL_PROTO": "LL"}, 1) < 0.7 * allreduce_like_s({}, 1)
    assert allreduce_like_s({"NCCL_PROTO": "LL"}, 512) > 1.5 * allreduce_like_s({"NCCL_PROTO": "Simple"}, 512)


def test_levels_without_p2p_are_slower_and_sys_is_faster() -> None:
    off = allreduce_like_s({"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": "SYS"}, 1)
    assert off == allreduce_like_s({"NCCL_P2P_LEVEL": "NVL"}, 1)
    assert allreduce_like_s({"NCCL_P2P_LEVEL": "SYS"}, 1) < allreduce_like_s({}, 1) < off


def test_channels_are_bounded_not_set() -> None:
    assert allreduce_like_s({"NCCL_MIN_CTAS": "2"}, 128) == allreduce_like_s({}, 128)
    assert allreduce_like_s({"NCCL_MIN_NCHANNELS": "16"}, 1024) < allreduce_like_s({}, 1024)
    assert allreduce_like_s({"NCCL_MAX_CTAS": "1"}, 1024) > allreduce_like_s({}, 1024)
    assert allreduce_like_s({"NCCL_MIN_CTAS": "16"}, 1) > allreduce_like_s({}, 1)


def test_one_rank_does_not_communicate() -> None:
    assert PerformanceModel(KIMI, {"tp-size": 1}, {}).breakdown(8, 0)["communication"] == 0


def test_an_excluding_list_acts_like_the_one_name_it_leaves() -> None:
    assert allreduce_like_s({"NCCL_PROTO": "^LL128,Simple"}, 1) == allreduce_like_s({"NCCL_PROTO": "LL"}, 1)
    only_tree = allreduce_like_s({"NCCL_ALGO": "allreduce:tree"}, 1)
    assert allreduce_like_s({"NCCL_ALGO": "ring;allreduce:tree"}, 1) == only_tree
    assert allreduce_like_s({"NCCL_ALGO": "allreduce:^ring"}, 1) == only_tree


def test_drawn_acceptance_has_the_expected_length() -> None:
    model, rng = PerformanceModel(KIMI, spec(5), {}), random.Random(1)
    drawn = [model.accept_tokens(rng) for _ in range(40_000)]
    assert min(drawn) == 1
    assert max(drawn) == 6
    assert sum(drawn) / len(drawn) == pytest.approx(model.expected_accept_length(), rel=0.01)


def test_the_same_seed_draws_the_same() -> None:
    model = PerformanceModel(KIMI, spec(5), {})
    first, second = random.Random(7), random.Random(7)
    assert [model.accept_tokens(first) for _ in range(99)] == [model.accept_tokens(second) for _ in range(99)]


def test_without_speculation_each_step_gains_one_token() -> None:
    model = PerformanceModel(KIMI, {"tp-size": 8}, {})
    assert model.accept_tokens(random.Random(0)) == 1
    assert model.expected_accept_length() == 1


def test_a_wider_tree_accepts_more_but_never_surely() -> None:
    drafter = Drafter(accept=(0.5,), sibling_catch=0.2)
    chances = [position_chances(drafter, DraftTree(3, topk, 3 * topk + 1))[0] for topk in (1, 2, 4, 8)]
    assert chances == sorted(set(chances))
    assert chances[0] == 0.5
    assert chances[-1] < 0.9


def test_a_tree_is_no_deeper_than_its_tokens() -> None:
    assert DraftTree(steps=8, topk=4, draft_tokens=5).depth == 4
    assert DraftTree(steps=2, topk=1, draft_tokens=3).width == 1


@pytest.mark.parametrize(
    ("path", "length"),
    [
        ("moonshotai/Kimi-K2-eagle3", 1.65),
        ("/models/Kimi-K2-eagle3/", 1.65),
        ("ours/Kimi-K2.5-eagle3-wrong-wiring", 1.23),
        ("someone/else", 1.11),
        (None, 1.11),
    ],
)
def test_a_drafter_is_known_by_its_path_and_an_unknown_one_is_poor(path: str | None, length: float) -> None:
    flags = {**spec(3), "speculative-draft-model-path": path}
    assert PerformanceModel(KIMI, flags, {}).expected_accept_length() == pytest.approx(length, abs=0.01)


def test_a_drafter_adds_its_own_phases_to_the_start() -> None:
    plain = dict(PerformanceModel(KIMI, {}, {}).startup_phases())
    drafted = dict(PerformanceModel(KIMI, spec(3), {}).startup_phases())
    assert set(drafted) - set(plain) == {"loading draft weights", "draft graph capture"}
    assert 300 < sum(plain.values()) < sum(drafted.values()) < 600
    ngram = {"speculative-algorithm": "NGRAM", "speculative-num-draft-tokens": 12, "speculative-eagle-topk": 10}
    assert dict(PerformanceModel(KIMI, ngram, {}).startup_phases()) == plain
