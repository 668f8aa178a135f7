"""What SGLang 0.5.23 refuses of DFLASH, DSPARK and UNO; see `rejections`.

Read in arg_groups/speculative_hook.py (`_handle_dflash`, `_handle_dspark`, `_handle_uno`); all need a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from launchers.sglang.rewrites import DFLASH_BLOCK, DRAFT_PATH, DRAFT_TOKENS, DSPARK_BLOCK, STEPS, TOPK
from launchers.sglang.verdict import Draft, Rejection, at_parse


def refused_by_dflash(draft: Draft) -> Rejection | None:
    """A drafter of its own, one pipeline stage, and one size of block."""
    return _first(draft, "DFLASH", _dflash)


def _dflash(draft: Draft) -> Iterator[str]:
    if draft.on_cpu:
        yield "DFLASH speculative decoding is not supported by CpuSRTPlatform on device 'cpu'."
    if draft.attention_dp > 1 and not draft.get("enable-dp-lm-head"):
        yield "DFLASH with dp attention requires --enable-dp-lm-head."
    if draft.get("pp-size", 1) > 1:
        yield "Currently DFLASH speculative decoding only supports pp_size == 1."
    if draft.get(DRAFT_PATH) is None:
        yield "DFLASH speculative decoding requires setting --speculative-draft-model-path."
    block, tokens = draft.get(DFLASH_BLOCK), draft.get(DRAFT_TOKENS)
    if block is not None and block <= 0:
        yield f"DFLASH requires --speculative-dflash-block-size to be positive, got {block}."
    if block is not None and tokens is not None and block != tokens:
        yield (
            "Both --speculative-num-draft-tokens and --speculative-dflash-block-size are set but they differ. "
            f"For DFLASH they must match. speculative_num_draft_tokens={tokens}, speculative_dflash_block_size={block}."
        )


def refused_by_dspark(draft: Draft) -> Rejection | None:
    """One pipeline stage unless it is a prefill node, and one token to verify more than drafted."""
    return _first(draft, "DSPARK", _dspark)


def _dspark(draft: Draft) -> Iterator[str]:
    if draft.on_cpu:
        yield "DSpark speculative decoding only supports CUDA, NPU or XPU device."
    if draft.attention_dp > 1 and not draft.get("enable-dp-lm-head"):
        yield "DSpark with dp attention requires --enable-dp-lm-head."
    if draft.get("pp-size", 1) > 1 and draft.get("disaggregation-mode", "null") != "prefill":
        yield (
            "DSpark pipeline parallelism requires PD prefill; decode and non-disaggregated serving require "
            "pp_size == 1."
        )
    block, tokens = draft.get(DSPARK_BLOCK), draft.get(DRAFT_TOKENS)
    if block is not None and block <= 0:
        yield f"DSpark requires --speculative-dspark-block-size to be positive, got {block}."
    if block is not None and tokens is not None and tokens != block + 1:
        yield (
            f"DSpark speculative_num_draft_tokens must equal gamma + 1 (= {block + 1} for gamma={block}), but got "
            f"speculative_num_draft_tokens={tokens}."
        )
    if tokens is not None and tokens < 2:
        yield f"DSpark speculative_num_draft_tokens must be >= 2 (= gamma + 1), got {tokens}."


def refused_by_uno(draft: Draft) -> Rejection | None:
    """UNO drafts with an adapter of the target, on one GPU and one backend."""
    return _first(draft, "UNO", _uno)


def _uno(draft: Draft) -> Iterator[str]:
    if draft.on_cpu:
        yield "UNO only supports CUDA."
    if draft.get(DRAFT_PATH) is not None:
        yield "UNO reuses the target model and does not accept --speculative-draft-model-path."
    if draft.get("uno-lora-path") is None:
        yield "UNO requires --uno-lora-path."
    if draft.get("enable-deterministic-inference"):
        yield (
            "UNO does not support --enable-deterministic-inference because its sampling path does not use "
            "per-request seeds."
        )
    tokens, topk = draft.get(DRAFT_TOKENS), draft.get(TOPK, 1)
    if tokens is None or tokens < 1:
        yield (
            "UNO requires --speculative-num-draft-tokens to be a positive integer denoting the linear width or tree "
            "verify width Q."
        )
    elif topk > 1:
        yield from _uno_tree(draft, tokens, topk)
    if draft.nccl_ranks > 1:
        yield "UNO requires TP=PP=1."
    if draft.attention_dp > 1:
        yield "UNO does not support DP attention or context parallelism."
    if draft.get("speculative-use-rejection-sampling"):
        yield ("UNO manages its own stochastic verification and does not use --speculative-use-rejection-sampling.")
    prefill, decode = draft.attention_backends
    # Unnamed, the backend depends on the GPU: left to the server.
    if {prefill, decode} - {None, "fa3"}:
        yield f"UNO requires FA3 for both prefill and decode attention; got prefill={prefill!r}, decode={decode!r}."


def _uno_tree(draft: Draft, tokens: int, topk: int) -> Iterator[str]:
    """Q tokens to verify, K branches, and F = steps + 1 levels."""
    steps = draft.get(STEPS)
    if steps is None:
        yield (
            "UNO tree mode requires --speculative-num-steps so its draft width F can be derived as "
            "speculative_num_steps + 1."
        )
        return
    if steps < 1:
        yield f"UNO tree mode requires --speculative-num-steps to be positive, got {steps}."
    if tokens < steps + 1:
        yield f"UNO tree mode requires Q >= F; got Q={tokens}, F={steps + 1}."
    if tokens > 128:
        yield f"UNO tree mode currently supports at most Q=128 verify nodes, got Q={tokens}."
    if tokens * topk > 2048:
        yield f"UNO tree mode currently supports Q*K <= 2048; got Q*K={tokens}*{topk}={tokens * topk}."
    capacity = sum(topk**depth for depth in range(steps + 1))
    if tokens > capacity:
        yield (
            f"UNO tree mode cannot build the requested Q from F and K: Q={tokens} exceeds capacity={capacity} for "
            f"F={steps + 1}, K={topk}."
        )
    parents = topk * max(steps - 1, 0) + 1
    if tokens - 1 > parents:
        yield (
            f"UNO tree mode cannot represent the requested Q in EAGLE's parent-list ABI: Q-1={tokens - 1} exceeds "
            f"K*(F-2)+1={parents} for F={steps + 1}, K={topk}."
        )
    thresholds = [draft.get(f"speculative-accept-threshold-{kind}", 1.0) for kind in ("single", "acc")]
    if thresholds != [1.0, 1.0]:
        yield (
            "UNO tree mode reuses EAGLE target-only sampling and requires both speculative accept thresholds to be 1.0."
        )


def _first(draft: Draft, algorithm: str, rules: Callable[[Draft], Iterator[str]]) -> Rejection | None:
    """The first of SGLang's sentences, which say themselves what to do."""
    text = next(rules(draft), None) if draft.algorithm == algorithm else None
    return None if text is None else at_parse(f"{algorithm}: {text}", f"ValueError: {text}")


BLOCK_REJECTIONS: tuple[Callable[[Draft], Rejection | None], ...] = (
    refused_by_dflash,
    refused_by_dspark,
    refused_by_uno,
)
