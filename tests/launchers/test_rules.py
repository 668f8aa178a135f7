"""SGLang's rules: what is refused, what is rewritten, and which configurations are one and the same server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers.base import Phase
from launchers.sglang.rules import Verdict, judge

KIMI = {"model-path": "moonshotai/Kimi-K2.5", "tp-size": 8}


def spec(steps: int | None, topk: int | None, tokens: int | None, **more: Any) -> dict[str, Any]:
    return {
        **KIMI,
        "speculative-algorithm": "EAGLE3",
        "speculative-draft-model-path": "ours/drafter",
        "speculative-num-steps": steps,
        "speculative-eagle-topk": topk,
        "speculative-num-draft-tokens": tokens,
        **{name.replace("_", "-"): value for name, value in more.items()},
    }


def identity(flags: dict[str, Any], env: dict[str, str] | None = None) -> tuple[Any, Any]:
    verdict = judge(flags, env or {})
    assert verdict.rejected is None
    return verdict.canonical_flags, verdict.canonical_env


def assert_dies(verdict: Verdict, text: str, exit_code: int, phase: Phase) -> None:
    assert verdict.rejected
    assert verdict.error_text is not None
    assert text in verdict.error_text
    assert (verdict.exit_code, verdict.dies_in, verdict.ours) == (exit_code, phase, False)


def test_a_plain_configuration_passes_unchanged() -> None:
    verdict = judge(KIMI, {"NCCL_DEBUG": "WARN"})
    assert verdict.rejected is None
    assert verdict.error_text is None
    assert verdict.exit_code is None
    assert verdict.dies_in is None
    assert not verdict.ours
    assert verdict.rewrites == ()
    assert verdict.canonical_flags == KIMI
    assert verdict.canonical_env == {"NCCL_DEBUG": "WARN"}


def test_a_restated_value_stays_but_what_is_left_out_goes() -> None:
    verdict = judge({**KIMI, "page-size": 1, "enable-metrics": False, "schedule-policy": None}, {})
    assert verdict.canonical_flags == {**KIMI, "page-size": 1}


def test_second_names_of_a_flag_are_the_same_flag() -> None:
    assert identity({"model": "m", "tensor-parallel-size": 8}) == identity({"model-path": "m", "tp": 8})


def test_chain_of_five_steps_is_one_server_whatever_draft_tokens_were_asked() -> None:
    asked = [judge(spec(5, 1, tokens, max_running_requests=64), {}) for tokens in (4, 6, 8)]
    assert asked[0].canonical_flags == asked[1].canonical_flags == asked[2].canonical_flags
    assert asked[0].canonical_flags["speculative-num-draft-tokens"] == 6
    (rewrite,) = asked[0].rewrites
    assert (rewrite.flag, rewrite.asked, rewrite.becomes) == ("speculative-num-draft-tokens", 4, 6)
    assert rewrite.log_line is not None
    assert "adjusted to speculative_num_steps + 1" in rewrite.log_line
    assert asked[1].rewrites == ()


def test_speculation_without_a_limit_runs_48_requests_and_says_so() -> None:
    verdict = judge(spec(3, 1, 4), {})
    assert verdict.canonical_flags["max-running-requests"] == 48
    assert verdict.rewrites[0].asked is None
    assert verdict.rewrites[0].log_line is not None
    assert "Max running requests is reset to 48" in verdict.rewrites[0].log_line
    assert verdict.canonical_flags == judge(spec(3, 1, 4, max_running_requests=48), {}).canonical_flags


def test_an_explicit_limit_is_kept() -> None:
    verdict = judge(spec(3, 1, 4, max_running_requests=256), {})
    assert verdict.canonical_flags["max-running-requests"] == 256


def test_without_an_algorithm_every_speculative_flag_is_inert() -> None:
    flags = spec(5, 2, 8)
    flags["speculative-algorithm"] = None
    assert identity(flags) == identity(KIMI)
    assert "max-running-requests" not in judge(flags, {}).canonical_flags


def test_algorithm_names_in_any_case_and_nextn_for_eagle() -> None:
    for name in ("eagle", "NEXTN", "nextn"):
        assert identity({**spec(3, 1, 4), "speculative-algorithm": name}) == identity(
            {**spec(3, 1, 4), "speculative-algorithm": "EAGLE"}
        )


@pytest.mark.parametrize(
    ("model", "tree"),
    [
        ("moonshotai/Kimi-K2.5", (3, 1, 4)),
        ("meta-llama/Llama-3.1-8B-Instruct", (5, 4, 8)),
        ("/models/grok-1", (5, 4, 8)),
    ],
)
def test_nothing_given_gets_the_models_own_tree(model: str, tree: tuple[int, int, int]) -> None:
    chosen = judge({**spec(None, None, None), "model-path": model}, {}).canonical_flags
    names = ("num-steps", "eagle-topk", "num-draft-tokens")
    assert tuple(chosen[f"speculative-{name}"] for name in names) == tree


def test_without_a_model_nothing_is_guessed() -> None:
    flags = spec(None, None, None)
    del flags["model-path"]
    assert "speculative-num-steps" not in judge(flags, {}).canonical_flags


def test_old_spelling_of_attention_dp_is_the_new_one() -> None:
    old = {**KIMI, "dp-size": 4, "enable-dp-attention": True}
    assert identity(old) == identity({**KIMI, "attn-dp-size": 4})


def test_ngram_fills_in_its_breadth_and_switches_mixed_chunks_off() -> None:
    verdict = judge({**KIMI, "speculative-algorithm": "NGRAM", "enable-mixed-chunk": True}, {})
    flags = verdict.canonical_flags
    assert "enable-mixed-chunk" not in flags
    assert (flags["speculative-eagle-topk"], flags["speculative-num-draft-tokens"]) == (10, 12)
    assert flags["speculative-num-steps"] == 1


@pytest.mark.parametrize("algorithm", ["DFLASH", "DSPARK"])
def test_block_drafters_take_one_step(algorithm: str) -> None:
    verdict = judge({**spec(5, 4, 16), "speculative-algorithm": algorithm}, {})
    flags = verdict.canonical_flags
    assert (flags["speculative-num-steps"], flags["speculative-eagle-topk"]) == (1, 1)
    assert any("overriding speculative_num_steps=5 to 1" in (r.log_line or "") for r in verdict.rewrites)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({**KIMI, "speculative-algorithm": "foo"}, "ValueError: Unknown speculative algorithm name: FOO"),
        (spec(None, 1, 4), "AssertionError"),
        (spec(None, None, 4), "AssertionError"),
        (spec(5, None, None), "TypeError: '>' not supported between instances of 'NoneType' and 'int'"),
        (spec(3, 2, 4, attention_backend="trtllm_mha"), "trtllm_mha backend only supports topk = 1"),
        (spec(3, 2, 4, decode_attention_backend="trtllm_mha"), "trtllm_mha backend only supports topk = 1"),
        (spec(3, 2, 4, page_size=64, attention_backend="flashmla"), "topk > 1 with page_size > 1"),
        (spec(3, 2, 4, speculative_use_rejection_sampling=True), "requires --speculative-eagle-topk=1"),
        (
            spec(3, 1, 4, speculative_use_rejection_sampling=True, speculative_accept_threshold_acc=0.9),
            "incompatible with --speculative-accept-threshold-single",
        ),
        (
            {**spec(3, 1, 4, speculative_use_rejection_sampling=True), "speculative-algorithm": "STANDALONE"},
            "only supported for EAGLE / EAGLE3 / NEXTN",
        ),
        ({**spec(3, 1, 4, attn_dp_size=2), "speculative-algorithm": "STANDALONE"}, "standalone speculative"),
        ({**KIMI, "speculative-algorithm": "NGRAM", "attn-dp-size": 2}, "ngram speculative decoding"),
        (
            {**KIMI, "speculative-algorithm": "NGRAM", "page-size": 16, "attention-backend": "triton"},
            "speculative_eagle_topk(10) > 1 with page_size(16) > 1",
        ),
        (spec(3, 1, 4, weight_cache_mode="client"), "--weight-cache-mode is not supported together"),
        ({**KIMI, "chunked-prefill-size": 1000, "page-size": 64}, "must be divisible by page_size"),
        ({**KIMI, "chunked-prefill-size": 512, "page-size": 128, "attn-dp-size": 8}, "must be divisible by page_size"),
        ({**KIMI, "attn-dp-size": 3}, "AssertionError"),
        ({**KIMI, "attn-dp-size": 2, "dp-size": 2}, "--dp-size 2 with --attn-dp-size 2"),
    ],
)
def test_refused_while_parsing(flags: dict[str, Any], text: str) -> None:
    assert_dies(judge(flags, {}), text, 1, Phase.SPAWNED)


@pytest.mark.parametrize(
    "flags",
    [
        spec(3, 2, 4, page_size=64, attention_backend="triton"),
        spec(3, 1, 4, page_size=64, attention_backend="flashmla"),
        spec(3, 2, 4, page_size=64),
        spec(3, 1, 4, attention_backend="trtllm_mha"),
        spec(3, 1, 4, attn_dp_size=2),
        spec(3, 1, 4, speculative_use_rejection_sampling=True),
        spec(None, None, None, speculative_adaptive=True),
        {**KIMI, "weight-cache-mode": "client"},
        {**KIMI, "chunked-prefill-size": -1, "page-size": 64},
        {**KIMI, "chunked-prefill-size": 1000, "page-size": 64, "disaggregation-mode": "decode"},
        {**KIMI, "chunked-prefill-size": -1, "page-size": 64, "attn-dp-size": 2},
        {**KIMI, "dp-size": 2},
    ],
)
def test_neighbours_of_the_refused_pass(flags: dict[str, Any]) -> None:
    assert judge(flags, {}).rejected is None


@given(steps=st.integers(1, 6), topk=st.integers(2, 8), tokens=st.integers(2, 400))
def test_a_tree_dies_late_exactly_when_it_has_more_tokens_than_were_drafted(steps: int, topk: int, tokens: int) -> None:
    drafted = topk + sum(topk * topk for _ in range(steps - 1))
    verdict = judge(spec(steps, topk, tokens), {})
    if tokens - 1 <= drafted:
        assert verdict.rejected is None
    else:
        assert_dies(verdict, "selected index k out of range", -9, Phase.WARMUP)


def test_a_tree_on_flashinfer_dies_with_latent_attention_only() -> None:
    flags = spec(3, 2, 4, attention_backend="flashinfer")
    assert_dies(judge(flags, {}), "Flashinfer MLA only supports topk=1", -9, Phase.GRAPH_CAPTURE)
    assert judge({**flags, "model-path": "qwen/Qwen3-32B"}, {}).rejected is None


@pytest.mark.parametrize("algorithm", ["EAGLE3", "STANDALONE"])
def test_a_missing_drafter_is_refused_by_us_alone(algorithm: str) -> None:
    flags = {**spec(3, 1, 4, speculative_draft_model_path=None), "speculative-algorithm": algorithm}
    verdict = judge(flags, {})
    assert verdict.rejected
    assert verdict.ours
    assert verdict.error_text is None


def test_eagle_may_draft_from_the_target() -> None:
    flags = {**spec(3, 1, 4, speculative_draft_model_path=None), "speculative-algorithm": "EAGLE"}
    assert judge(flags, {}).rejected is None


def test_a_tree_without_its_size_is_refused_by_us() -> None:
    assert judge(spec(3, 2, None), {}).ours
    assert judge(spec(3, 1, None), {}).canonical_flags["speculative-num-draft-tokens"] == 4


@pytest.mark.parametrize(
    ("env", "called"),
    [
        ({"NCCL_ALGO": "Tree"}, "AllGather"),
        ({"NCCL_ALGO": "tree,ring;allreduce:^tree,ring"}, "AllReduce"),
        ({"NCCL_ALGO": "ring;broadcast:tree"}, "Broadcast"),
        ({"NCCL_ALGO": "allreduce:PAT"}, "AllReduce"),
        ({"NCCL_ALGO": "allreduce:NVLS"}, "AllReduce"),
        ({"NCCL_ALGO": "allreduce:NVLSTree", "NCCL_NVLS_ENABLE": "1"}, "AllReduce"),
        ({"NCCL_ALGO": "allreduce:CollnetDirect"}, "AllReduce"),
        ({"NCCL_ALGO": "allreduce:NVLS", "NCCL_PROTO": "LL", "NCCL_NVLS_ENABLE": "1"}, "AllReduce"),
    ],
)
def test_nccl_without_an_algorithm_fails_at_the_first_such_call(env: dict[str, str], called: str) -> None:
    text = f"No algorithm/protocol available for function {called}"
    assert_dies(judge(KIMI, env), text, -9, Phase.GRAPH_CAPTURE)
    assert judge({**KIMI, "tp-size": 1}, env).rejected is None


@pytest.mark.parametrize(
    "env",
    [
        {"NCCL_ALGO": "allreduce:tree"},
        {"NCCL_ALGO": "Ring"},
        {"NCCL_ALGO": "ring,tree;allreduce:tree;broadcast:^tree"},
        {"NCCL_ALGO": "allreduce:NVLS", "NCCL_NVLS_ENABLE": "1"},
        {"NCCL_PROTO": "^LL128"},
        {"NCCL_PROTO": "LL,Simple"},
    ],
)
def test_nccl_settings_that_serve_everything_pass(env: dict[str, str]) -> None:
    assert judge(KIMI, env).rejected is None


@pytest.mark.parametrize(
    ("env", "text"),
    [
        ({"NCCL_ALGO": "allreduce:tree;ring"}, "All entries except the first must have a prefix"),
        ({"NCCL_ALGO": "Rign"}, "Unrecognized element token"),
        ({"NCCL_PROTO": "fast"}, "Unrecognized element token"),
        ({"NCCL_ALGO": "alreduce:tree"}, "Unrecognized element token"),
    ],
)
def test_nccl_cannot_read_it(env: dict[str, str], text: str) -> None:
    assert_dies(judge(KIMI, env), text, -9, Phase.DISTRIBUTED_INIT)


@pytest.mark.parametrize("protocols", ["LL128", "LL,LL128", "^LL"])
def test_forced_ll128_is_refused_off_nvlink_only(protocols: str) -> None:
    verdict = judge(KIMI, {"NCCL_PROTO": protocols})
    assert verdict.rejected
    assert verdict.ours
    assert judge(KIMI, {"NCCL_PROTO": protocols}, nvlink=True).rejected is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"NCCL_PROTO": "simple"}, {"NCCL_PROTO": "Simple"}),
        ({"NCCL_PROTO": "ll"}, {"NCCL_PROTO": "LL"}),
        ({"NCCL_ALGO": "Ring, Tree"}, {"NCCL_ALGO": "tree,ring"}),
        ({"NCCL_ALGO": "AllReduce:tree"}, {"NCCL_ALGO": "allreduce:Tree"}),
        ({"NCCL_P2P_LEVEL": "sys"}, {"NCCL_P2P_LEVEL": "SYS"}),
        ({"NCCL_MIN_NCHANNELS": "8"}, {"NCCL_MIN_CTAS": "8"}),
        ({"NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}, {}),
    ],
)
def test_equal_nccl_settings_are_spelled_alike(one: dict[str, str], other: dict[str, str]) -> None:
    assert identity(KIMI, one) == identity(KIMI, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"NCCL_PROTO": "LL"}, {}),
        ({"NCCL_ALGO": "allreduce:tree"}, {"NCCL_ALGO": "allreduce:ring"}),
        ({"NCCL_ALGO": "^tree"}, {"NCCL_ALGO": "tree,ring"}),
        ({"NCCL_MIN_CTAS": "8"}, {"NCCL_MAX_CTAS": "8"}),
        ({"NCCL_CUMEM_ENABLE": "1"}, {}),
    ],
)
def test_different_nccl_settings_stay_different(one: dict[str, str], other: dict[str, str]) -> None:
    assert identity(KIMI, one) != identity(KIMI, other)


def test_deterministic_inference_overwrites_algorithm_and_channels() -> None:
    flags = {**KIMI, "enable-deterministic-inference": True}
    env = {"NCCL_ALGO": "Ring", "NCCL_MIN_NCHANNELS": "8", "NCCL_PROTO": "LL"}
    assert identity(flags, env) == identity(flags, {"NCCL_PROTO": "LL"})
    assert identity(KIMI, env) != identity(KIMI, {"NCCL_PROTO": "LL"})


@given(
    steps=st.one_of(st.none(), st.integers(1, 10)),
    topk=st.one_of(st.none(), st.integers(1, 8)),
    tokens=st.one_of(st.none(), st.integers(2, 64)),
    limit=st.one_of(st.none(), st.integers(1, 512)),
    algorithm=st.sampled_from([None, "EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "UNO", "X"]),
    algo=st.sampled_from([None, "ring", "allreduce:tree", "Tree", "nonsense"]),
)
def test_the_canonical_form_is_a_fixed_point(
    steps: int | None, topk: int | None, tokens: int | None, limit: int | None, algorithm: str | None, algo: str | None
) -> None:
    flags = {**spec(steps, topk, tokens, max_running_requests=limit), "speculative-algorithm": algorithm}
    once = judge(flags, {} if algo is None else {"NCCL_ALGO": algo})
    again = judge(once.canonical_flags, once.canonical_env)
    assert (again.canonical_flags, again.canonical_env) == (once.canonical_flags, once.canonical_env)
    assert (again.rejected is None) == (once.rejected is None)
    assert again.rewrites == ()
