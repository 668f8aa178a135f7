"""The rules of single algorithms and backends: what each refuses and rewrites, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest

from launchers.base import Phase
from launchers.sglang.rules import Verdict, judge

EAGLE: dict[str, Any] = {
    "model-path": "m",
    "speculative-algorithm": "EAGLE",
    "speculative-draft-model-path": "d",
    "speculative-num-steps": 3,
    "speculative-eagle-topk": 1,
    "speculative-num-draft-tokens": 4,
    "max-running-requests": 8,
}
TREE = {**EAGLE, "speculative-eagle-topk": 4, "speculative-num-draft-tokens": 8}
UNO: dict[str, Any] = {
    "model-path": "m",
    "speculative-algorithm": "UNO",
    "uno-lora-path": "a",
    "speculative-num-draft-tokens": 4,
    "attention-backend": "fa3",
}
UNO_TREE = {**UNO, "speculative-eagle-topk": 4, "speculative-num-steps": 3, "speculative-num-draft-tokens": 8}


def block(algorithm: str, **more: Any) -> dict[str, Any]:
    flags = {"model-path": "m", "speculative-algorithm": algorithm, "speculative-draft-model-path": "d"}
    return flags | {name.replace("_", "-"): value for name, value in more.items()}


def refused_with(flags: dict[str, Any], env: dict[str, str] | None = None) -> str:
    """The line that the server ends with while it parses its arguments; empty where it does not."""
    verdict = judge(flags, env or {})
    if verdict.rejected is None or verdict.ours or verdict.dies_in is not Phase.SPAWNED:
        return ""
    assert verdict.exit_code == 1
    assert verdict.error_text
    return verdict.error_text


def became(flags: dict[str, Any], name: str, **known: Any) -> Any:
    return judge(flags, {}, **known).canonical_flags.get(name)


def rewrite_of(verdict: Verdict, flag: str) -> str | None:
    """The line that the server prints about a flag."""
    (line,) = [rewrite.log_line for rewrite in verdict.rewrites if rewrite.flag == flag]
    return line


# ---- numbers -----------------------------------------------------------------------------------------------


def test_a_number_written_as_text_is_the_same_server() -> None:
    text = {**EAGLE, "speculative-num-steps": "3", "speculative-eagle-topk": "1"}
    assert judge(text, {}).canonical_flags == judge(EAGLE, {}).canonical_flags
    # A name is no number.
    assert became({"model-path": "m", "x": "007"}, "x") == "007"


@pytest.mark.parametrize(
    ("value", "text"), [("many", "invalid int value: 'many'"), (1.5, "invalid int"), (True, "expected one argument")]
)
def test_what_is_no_whole_number_ends_the_parser(value: Any, text: str) -> None:
    verdict = judge({**EAGLE, "speculative-num-steps": value}, {})
    assert verdict.error_text is not None
    assert text in verdict.error_text
    assert (verdict.exit_code, verdict.dies_in) == (2, Phase.SPAWNED)


# ---- the model's architecture ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("architecture", "topk"), [("LlamaForCausalLM", 4), ("Grok1ForCausalLM", 4), ("DeepseekV3ForCausalLM", 1)]
)
def test_the_architecture_decides_what_sglang_chooses_whatever_the_models_name(architecture: str, topk: int) -> None:
    flags = {"model-path": "llama-2-7b", "speculative-algorithm": "EAGLE"}
    assert became(flags, "speculative-eagle-topk", architecture=architecture) == topk
    assert became({"speculative-algorithm": "EAGLE"}, "speculative-eagle-topk", architecture=architecture) == topk


def test_latent_attention_is_told_by_the_architecture() -> None:
    flags = {**TREE, "attention-backend": "flashinfer"}
    assert judge(flags, {}).rejected is None
    verdict = judge(flags, {}, architecture="DeepseekV3ForCausalLM")
    assert verdict.error_text == "Flashinfer MLA only supports topk=1"
    named = {**flags, "model-path": "deepseek-v3"}
    assert judge(named, {}).rejected
    assert judge(named, {}, architecture="LlamaForCausalLM").rejected is None


# ---- backends and pages ------------------------------------------------------------------------------------


def test_one_backend_for_both_phases_is_the_backend() -> None:
    flags = {**EAGLE, "attention-backend": "triton"}
    both = {**flags, "prefill-attention-backend": "fa3", "decode-attention-backend": "fa3"}
    assert became(both, "attention-backend") == "fa3"
    assert became({**both, "decode-attention-backend": "triton"}, "attention-backend") == "triton"


@pytest.mark.parametrize(
    ("backend", "page", "becomes"),
    [
        ("flashmla", 1, 64),
        ("flashmla", None, 64),
        ("trtllm_mla", 16, 64),
        ("trtllm_mla", 32, 32),
        ("cutedsl_mla", 16, 64),
        ("trtllm_mha", 8, 64),
        ("trtllm_mha", 128, 128),
        ("hpc_ops", 32, 64),
        ("triton", 8, 8),
        ("triton", None, None),
    ],
)
def test_backends_that_know_few_sizes_of_pages_take_64(backend: str, page: int | None, becomes: int | None) -> None:
    assert became({"attention-backend": backend, "page-size": page}, "page-size") == becomes
    assert became({"decode-attention-backend": backend, "page-size": page}, "page-size") == becomes


def test_a_backends_own_pages_can_make_a_tree_impossible() -> None:
    assert "page_size > 1" in refused_with({**TREE, "attention-backend": "flashmla"})
    assert refused_with({**EAGLE, "attention-backend": "flashmla"}) == ""


def test_flex_attention_verifies_no_drafts() -> None:
    assert "Flex Attention" in refused_with({**EAGLE, "attention-backend": "flex_attention"})
    assert refused_with({"attention-backend": "flex_attention"}) == ""


def test_without_a_gpu_no_default_backend_drafts_trees_over_pages() -> None:
    for flags in ({**TREE, "page-size": 16}, block("NGRAM", page_size=16)):
        assert "page_size" in refused_with({**flags, "device": "cpu"})
        assert refused_with(flags) == ""


def test_ngram_drafts_trees_over_pages_on_flashinfer_only() -> None:
    flags = block("NGRAM", page_size=16)
    assert "is only supported for the 'flashinfer' backend" in refused_with({**flags, "attention-backend": "fa3"})
    assert refused_with({**flags, "attention-backend": "flashinfer"}) == ""
    assert refused_with({**flags, "attention-backend": "fa3", "speculative-ngram-max-bfs-breadth": 1}) == ""
    assert refused_with({**flags, "attention-backend": "fa3", "page-size": 1}) == ""


def test_deterministic_inference_runs_on_few_backends() -> None:
    flags = {"model-path": "m", "enable-deterministic-inference": True}
    assert "you explicitly specified 'torch_native'" in refused_with({**flags, "attention-backend": "torch_native"})
    assert refused_with({**flags, "attention-backend": "fa3"}) == ""
    assert refused_with(flags) == ""
    assert "'intel_amx'" in refused_with({**flags, "device": "cpu"})
    # The backend for both phases replaces the one that was asked only after it was looked at.
    both = {"prefill-attention-backend": "intel_amx", "decode-attention-backend": "intel_amx"}
    assert refused_with({**flags, **both, "attention-backend": "triton"}) == ""


# ---- mixed chunks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "kept"),
    [("EAGLE", True), ("EAGLE3", True), ("DFLASH", True), ("STANDALONE", None), ("FROZEN_KV_MTP", None)],
)
def test_some_algorithms_switch_mixed_chunks_off(algorithm: str, kept: bool | None) -> None:
    flags = {**EAGLE, "speculative-algorithm": algorithm, "enable-mixed-chunk": True}
    assert became(flags, "enable-mixed-chunk") is kept


def test_switching_mixed_chunks_off_is_logged() -> None:
    verdict = judge({**EAGLE, "speculative-algorithm": "STANDALONE", "enable-mixed-chunk": True}, {})
    assert "does not support it" in (rewrite_of(verdict, "enable-mixed-chunk") or "")


# ---- adaptive steps ----------------------------------------------------------------------------------------


def test_adaptive_speculation_chooses_its_steps_and_draws_a_chain() -> None:
    flags = {"model-path": "m", "speculative-algorithm": "EAGLE", "speculative-adaptive": True}
    verdict = judge(flags, {})
    assert verdict.rejected is None
    names = ("num-steps", "eagle-topk", "num-draft-tokens")
    assert [verdict.canonical_flags[f"speculative-{name}"] for name in names] == [3, 1, 4]


def test_adaptive_speculation_starts_within_its_steps() -> None:
    flags = {**EAGLE, "speculative-adaptive": True, "speculative-num-steps": 2}
    assert "candidate_steps [0, 1, 3, 5, 7]" in refused_with(flags)
    assert refused_with({**flags, "speculative-num-steps": 5}) == ""
    # The file's steps are not known here.
    assert refused_with({**flags, "speculative-adaptive-config": "steps.json"}) == ""


@pytest.mark.parametrize(
    "unfit",
    [
        {"speculative-algorithm": "STANDALONE"},
        {"speculative-eagle-topk": 2, "speculative-num-draft-tokens": 4},
        {"attn-dp-size": 2, "tp-size": 2},
        {"enable-multi-layer-eagle": True},
        {"enable-two-batch-overlap": True},
        {"enable-pdmux": True},
    ],
)
def test_where_adaptive_speculation_cannot_run_the_steps_are_fixed(unfit: dict[str, Any]) -> None:
    flags = {**EAGLE, **unfit}
    verdict = judge({**flags, "speculative-adaptive": True, "speculative-num-steps": 2}, {})
    assert verdict.rejected is None
    assert verdict.canonical_flags == judge({**flags, "speculative-num-steps": 2}, {}).canonical_flags


# ---- sampling and verification -----------------------------------------------------------------------------


def test_deterministic_rejection_sampling_needs_a_gpu() -> None:
    flags = {**EAGLE, "speculative-use-rejection-sampling": True, "enable-deterministic-inference": True}
    flags["attention-backend"] = "triton"
    assert "Triton hash kernel" in refused_with({**flags, "device": "cpu"})
    assert refused_with(flags) == ""


def test_block_verification_samples_on_a_gpu_and_so_needs_chains() -> None:
    flags = {**EAGLE, "speculative-use-block-verification": True}
    assert refused_with(flags) == ""
    assert "only supports CUDA" in refused_with({**flags, "device": "cpu"})
    assert "only supports EAGLE" in refused_with({**flags, "speculative-algorithm": "STANDALONE"})
    assert "only supports EAGLE" in refused_with({"speculative-use-block-verification": True})
    assert "requires --speculative-eagle-topk=1" in refused_with({**TREE, "speculative-use-block-verification": True})


@pytest.mark.parametrize(
    ("window", "sink", "text"),
    [
        (0, None, "draft-window-size must be positive"),
        (64, -1, "draft-sink-size must be non-negative"),
        (None, 4, "requires --speculative-draft-window-size"),
        (64, 4, ""),
        (64, None, ""),
    ],
)
def test_a_drafters_window(window: int | None, sink: int | None, text: str) -> None:
    told = refused_with({**EAGLE, "speculative-draft-window-size": window, "speculative-draft-sink-size": sink})
    assert text in told
    assert bool(told) is bool(text)


# ---- pipelines ---------------------------------------------------------------------------------------------


def test_a_pipeline_speculates_on_prefill_nodes_or_where_a_variable_allows_it() -> None:
    flags = {**EAGLE, "pp-size": 2}
    allowed = {"SGLANG_ENABLE_PP_SPEC": "1"}
    assert "only supported on prefill nodes" in refused_with(flags)
    assert refused_with({**flags, "disaggregation-mode": "prefill"}) == ""
    assert refused_with(flags, allowed) == ""
    assert refused_with({**flags, "pp-size": 1}) == ""
    assert "currently only supports EAGLE" in refused_with({**flags, "speculative-algorithm": "EAGLE3"}, allowed)
    assert "currently only supports EAGLE" in refused_with({**flags, "enable-multi-layer-eagle": True}, allowed)
    assert "--speculative-adaptive" in refused_with({**flags, "speculative-adaptive": True}, allowed)
    assert "attention DP" in refused_with({**flags, "attn-dp-size": 2, "tp-size": 2}, allowed)


# ---- DFLASH, DSPARK, UNO -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, ""),
        ({"device": "cpu"}, "not supported by CpuSRTPlatform"),
        ({"attn-dp-size": 2, "tp-size": 2}, "requires --enable-dp-lm-head"),
        ({"attn-dp-size": 2, "tp-size": 2, "enable-dp-lm-head": True}, ""),
        ({"pp-size": 2}, "only supports pp_size == 1"),
        ({"speculative-draft-model-path": None}, "requires setting --speculative-draft-model-path"),
        ({"speculative-dflash-block-size": 0}, "to be positive, got 0"),
        ({"speculative-dflash-block-size": 8, "speculative-num-draft-tokens": 16}, "they must match"),
        ({"speculative-dflash-block-size": 8, "speculative-num-draft-tokens": 8}, ""),
    ],
)
def test_dflash(change: dict[str, Any], text: str) -> None:
    told = refused_with({**block("DFLASH"), **change})
    assert text in told
    assert bool(told) is bool(text)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, ""),
        ({"device": "cpu"}, "only supports CUDA, NPU or XPU"),
        ({"attn-dp-size": 2, "tp-size": 2}, "requires --enable-dp-lm-head"),
        ({"pp-size": 2}, "pipeline parallelism requires PD prefill"),
        ({"pp-size": 2, "disaggregation-mode": "prefill"}, ""),
        ({"speculative-dspark-block-size": 0}, "to be positive, got 0"),
        ({"speculative-dspark-block-size": 7, "speculative-num-draft-tokens": 4}, "must equal gamma + 1 (= 8"),
        ({"speculative-dspark-block-size": 7, "speculative-num-draft-tokens": 8}, ""),
        ({"speculative-num-draft-tokens": 1}, "must be >= 2"),
    ],
)
def test_dspark(change: dict[str, Any], text: str) -> None:
    told = refused_with({**block("DSPARK"), **change})
    assert text in told
    assert bool(told) is bool(text)


def test_the_block_is_what_is_verified() -> None:
    tokens = "speculative-num-draft-tokens"
    assert became(block("DFLASH", speculative_dflash_block_size=8), tokens) == 8
    assert became(block("DSPARK", speculative_dspark_block_size=7), tokens) == 8
    assert became(block("DFLASH"), tokens) is None


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, ""),
        ({"device": "cpu"}, "only supports CUDA"),
        ({"speculative-draft-model-path": "d"}, "does not accept --speculative-draft-model-path"),
        ({"uno-lora-path": None}, "requires --uno-lora-path"),
        ({"enable-deterministic-inference": True}, "--enable-deterministic-inference"),
        ({"speculative-num-draft-tokens": None}, "to be a positive integer"),
        ({"tp-size": 2}, "requires TP=PP=1"),
        ({"pp-size": 2}, "requires TP=PP=1"),
        ({"attn-dp-size": 1}, ""),
        ({"speculative-use-rejection-sampling": True}, "its own stochastic verification"),
        ({"attention-backend": "triton"}, "requires FA3"),
        ({"decode-attention-backend": "triton"}, "requires FA3"),
        ({"attention-backend": None}, ""),
    ],
)
def test_uno(change: dict[str, Any], text: str) -> None:
    told = refused_with({**UNO, **change})
    assert text in told
    assert bool(told) is bool(text)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, ""),
        ({"speculative-num-steps": None}, "requires --speculative-num-steps"),
        ({"speculative-num-steps": 0}, "to be positive, got 0"),
        ({"speculative-num-draft-tokens": 3}, "requires Q >= F"),
        ({"speculative-num-draft-tokens": 129, "speculative-num-steps": 40}, "at most Q=128"),
        ({"speculative-num-draft-tokens": 128, "speculative-eagle-topk": 32}, "Q*K <= 2048"),
        ({"speculative-num-draft-tokens": 4, "speculative-num-steps": 1, "speculative-eagle-topk": 2}, "capacity=3"),
        ({"speculative-num-draft-tokens": 11}, "parent-list ABI"),
        ({"speculative-num-draft-tokens": 10}, ""),
        ({"speculative-accept-threshold-acc": 0.9}, "both speculative accept thresholds"),
    ],
)
def test_a_tree_of_uno(change: dict[str, Any], text: str) -> None:
    told = refused_with({**UNO_TREE, **change})
    assert text in told
    assert bool(told) is bool(text)


def test_uno_takes_one_step_unless_it_draws_a_tree() -> None:
    steps = "speculative-num-steps"
    one = judge({**UNO, steps: 5}, {})
    assert one.canonical_flags[steps] == 1
    assert rewrite_of(one, steps) == "UNO uses speculative_num_steps=1; overriding 5."
    assert became(UNO_TREE, steps) == 3
    # It alone keeps the limit of requests as it is.
    assert became(UNO, "max-running-requests") is None
    assert became({**UNO, "enable-mixed-chunk": True}, "enable-mixed-chunk") is None
