"""What SGLang 0.5.23 refuses or dies of, one function a rule; each sees flags as the rewrites left them.

Read in arg_groups/speculative_hook.py, parallel_hook.py, validation_hook.py and model_path_hook.py, or
recorded from 0.5.23 on CPU. `pp-size` above 1 with speculation is refused in most cases, not in all: left to
the server, which says so within seconds.
"""

from __future__ import annotations

from collections.abc import Callable

from launchers.base import Phase
from launchers.sglang.rewrites import (
    ALGORITHMS,
    DRAFT_PATH,
    DRAFT_TOKENS,
    EAGLE_FAMILY,
    STEPS,
    TOPK,
)
from launchers.sglang.verdict import KILLED, Draft, Rejection

#: Backends that can draft a tree over pages of more than one token.
_PAGED_TREE_BACKENDS = ("flashinfer", "fa3", "triton")
#: Model families with multi-head latent attention, as their names begin.
_MLA_MODELS = ("deepseek-v2", "deepseek-v3", "deepseek-r1", "kimi-k2")


def _at_parse(reason: str, error_text: str) -> Rejection:
    # an exception while the arguments are resolved
    return Rejection(reason, error_text, exit_code=1, dies_in=Phase.SPAWNED)


def unknown_algorithm(draft: Draft) -> Rejection | None:
    """Recorded from 0.5.23 on CPU: a ValueError, exit 1."""
    if draft.algorithm is None or draft.algorithm in ALGORITHMS:
        return None
    asked = draft.get("speculative-algorithm")
    return _at_parse(
        f"speculative-algorithm {asked} is unknown to SGLang 0.5.23. Use one of {', '.join(sorted(ALGORITHMS))}.",
        f"ValueError: Unknown speculative algorithm name: {draft.algorithm}",
    )


def weight_cache_with_drafter(draft: Draft) -> Rejection | None:
    """The weight cache daemon does not hold the drafter's weights."""
    if draft.algorithm is None or draft.get("weight-cache-mode", "off") == "off":
        return None
    return _at_parse(
        "weight-cache-mode does not go with speculation: it has no draft weights. Set one of them off.",
        "ValueError: --weight-cache-mode is not supported together with speculative decoding (--speculative-algorithm)",
    )


def two_kinds_of_dp(draft: Draft) -> Rejection | None:
    """Replicas and data-parallel attention exclude each other."""
    replicas = int(draft.get("dp-size", 1))
    if replicas == 1 or draft.attention_dp == 1:
        return None
    return _at_parse(
        f"dp-size {replicas} with attn-dp-size {draft.attention_dp}: SGLang has replicas or data-parallel "
        "attention, not both. Leave one of them out.",
        f"ValueError: --dp-size {replicas} with --attn-dp-size {draft.attention_dp}: data-parallel replicas "
        "combined with attention data parallelism are not supported.",
    )


def uneven_attention_dp(draft: Draft) -> Rejection | None:
    """Each attention group has the same number of ranks."""
    ranks = int(draft.get("tp-size", 1))
    if ranks % draft.attention_dp == 0:
        return None
    return _at_parse(
        f"tp-size {ranks} is not divisible by attn-dp-size {draft.attention_dp}. Choose a divisor.",
        "AssertionError",
    )


def uneven_chunk(draft: Draft) -> Rejection | None:
    """A prefill chunk is whole pages."""
    chunk, page = draft.get("chunked-prefill-size"), draft.get("page-size")
    if chunk is None or page is None or chunk <= 0 or chunk % page == 0:
        return None
    return _at_parse(
        f"chunked-prefill-size {chunk} is not divisible by page-size {page}. Choose a multiple.",
        "AssertionError: chunked_prefill_size must be divisible by page_size",
    )


def attention_dp_unsupported(draft: Draft) -> Rejection | None:
    """STANDALONE, NGRAM and UNO have no data-parallel attention."""
    named = {"STANDALONE": "standalone", "NGRAM": "ngram"}
    if draft.attention_dp == 1 or draft.algorithm not in {*named, "UNO"}:
        return None
    text = (
        f"Currently {named[draft.algorithm]} speculative decoding does not support dp attention."
        if draft.algorithm in named
        else "UNO does not support DP attention or context parallelism."
    )
    return _at_parse(
        f"{draft.algorithm} does not go with attn-dp-size {draft.attention_dp}. Set it to 1 or use EAGLE3.",
        f"ValueError: {text}",
    )


def uno_on_one_rank(draft: Draft) -> Rejection | None:
    """UNO runs on one rank."""
    if draft.algorithm != "UNO" or draft.nccl_ranks == 1:
        return None
    return _at_parse(
        "UNO runs on one rank only. Set tp-size and pp-size to 1 or use EAGLE3.",
        "ValueError: UNO requires TP=PP=1.",
    )


def steps_missing(draft: Draft) -> Rejection | None:
    """The other two without steps: a bare assertion."""
    if not _plain_eagle(draft) or draft.get(STEPS) is not None:
        return None
    if draft.get(TOPK) is None and draft.get(DRAFT_TOKENS) is None:
        return None
    return _at_parse(f"{STEPS} is missing beside {TOPK} or {DRAFT_TOKENS}. Set all three or none.", "AssertionError")


def topk_missing(draft: Draft) -> Rejection | None:
    """Recorded from 0.5.23 on CPU: the missing value is compared with a number."""
    if not _plain_eagle(draft) or draft.get(STEPS) is None or draft.get(TOPK) is not None:
        return None
    return _at_parse(
        f"{TOPK} is missing beside {STEPS}. Set all three of steps, topk and draft tokens, or none.",
        "TypeError: '>' not supported between instances of 'NoneType' and 'int'",
    )


def draft_tokens_missing(draft: Draft) -> Rejection | None:
    """A tree's size is filled in for chains only; SGLang fails on the missing number somewhere later."""
    if not _plain_eagle(draft) or _topk(draft) < 2 or draft.get(DRAFT_TOKENS) is not None:
        return None
    return Rejection(f"{DRAFT_TOKENS} is missing beside {TOPK} {_topk(draft)}. Set all three or none.", ours=True)


def tree_on_trtllm_mha(draft: Draft) -> Rejection | None:
    """trtllm_mha verifies chains only."""
    if draft.algorithm not in EAGLE_FAMILY or _topk(draft) < 2:
        return None
    if "trtllm_mha" not in _backends(draft):
        return None
    return _at_parse(
        f"{TOPK} {_topk(draft)} on the attention backend trtllm_mha, which verifies chains only. "
        f"Set {TOPK} to 1 or take another backend.",
        "ValueError: trtllm_mha backend only supports topk = 1 for speculative decoding.",
    )


def rejection_sampling_on_chains(draft: Draft) -> Rejection | None:
    """Rejection sampling is for chains of EAGLE drafters, with thresholds at 1."""
    if not draft.get("speculative-use-rejection-sampling") or draft.algorithm not in EAGLE_FAMILY:
        return None
    flag = "--speculative-use-rejection-sampling"
    if draft.algorithm == "STANDALONE":
        return _at_parse(
            "Rejection sampling needs EAGLE or EAGLE3. Drop speculative-use-rejection-sampling.",
            f"NotImplementedError: {flag} is only supported for EAGLE / EAGLE3 / NEXTN, "
            f"not speculative_algorithm={draft.algorithm}.",
        )
    if _topk(draft) != 1:
        return _at_parse(
            f"Rejection sampling needs {TOPK} 1, not {draft.get(TOPK)}. Set it to 1 or drop the sampling.",
            f"ValueError: {flag} requires --speculative-eagle-topk=1.",
        )
    thresholds = [draft.get(f"speculative-accept-threshold-{kind}", 1.0) for kind in ("single", "acc")]
    if thresholds == [1.0, 1.0]:
        return None
    return _at_parse(
        "Rejection sampling ignores accept thresholds and refuses any but 1.0. Drop one of them.",
        f"ValueError: {flag} is incompatible with --speculative-accept-threshold-single / "
        "--speculative-accept-threshold-acc; rejection sampling ignores the accept thresholds.",
    )


def tree_over_pages(draft: Draft) -> Rejection | None:
    """A tree over pages of several tokens needs a backend that can share the last page."""
    backend, page = draft.get("attention-backend"), draft.get("page-size")
    if page is None or page <= 1 or backend is None or _topk(draft) < 2:
        return None
    advice = f"Set page-size or {TOPK} to 1, or take flashinfer."
    if draft.algorithm == "NGRAM" and backend != "flashinfer":
        return _at_parse(
            f"NGRAM with page-size {page} on {backend}. {advice}",
            f"ValueError: speculative_eagle_topk({_topk(draft)}) > 1 with page_size({page}) > 1 is unstable "
            "and produces incorrect results for paged attention backends. "
            "This combination is only supported for the 'flashinfer' backend.",
        )
    if draft.algorithm not in EAGLE_FAMILY or backend in _PAGED_TREE_BACKENDS:
        return None
    return _at_parse(
        f"{TOPK} {_topk(draft)} with page-size {page} on {backend}. {advice}",
        f"ValueError: speculative_eagle_topk > 1 with page_size > 1 is only supported on "
        f"{_PAGED_TREE_BACKENDS}; got attention_backend={backend!r}. "
        "Use page_size == 1 or one of those backends.",
    )


def tree_on_flashinfer_mla(draft: Draft) -> Rejection | None:
    """FlashInfer's latent attention verifies chains only; it says so while its graphs are captured."""
    model = draft.model_name or ""
    if draft.algorithm not in EAGLE_FAMILY or _topk(draft) < 2 or not model.startswith(_MLA_MODELS):
        return None
    if draft.get("attention-backend") != "flashinfer":
        return None
    return Rejection(
        f"{TOPK} {_topk(draft)} on flashinfer with latent attention (MLA), where it verifies chains only."
        f" Set {TOPK} to 1 or take triton.",
        "Flashinfer MLA only supports topk=1",
        KILLED,
        Phase.GRAPH_CAPTURE,
    )


def tree_too_large(draft: Draft) -> Rejection | None:
    """More tokens to verify than the drafter proposes: topk + (steps - 1) topk^2 candidates and the root.

    Recorded from 0.5.23 on CPU: dies only when it first drafts, -9.
    """
    topk, steps, tokens = _topk(draft), draft.get(STEPS), draft.get(DRAFT_TOKENS)
    if draft.algorithm not in EAGLE_FAMILY or topk < 2 or steps is None or tokens is None:
        return None
    most = topk + (steps - 1) * topk**2 + 1
    if 2 <= tokens <= most:
        return None
    return Rejection(
        f"{DRAFT_TOKENS} {tokens}: {steps} steps of topk {topk} give 2 to {most}. Choose within.",
        "RuntimeError: selected index k out of range",
        KILLED,
        Phase.WARMUP,
    )


def drafter_missing(draft: Draft) -> Rejection | None:
    """Without a draft path SGLang drafts from the target's own weights, which is not what was meant."""
    if draft.algorithm not in ("EAGLE3", "STANDALONE") or draft.get(DRAFT_PATH):
        return None
    return Rejection(
        f"{draft.algorithm} without {DRAFT_PATH}: SGLang would draft from the target's own weights. Name the drafter.",
        ours=True,
    )


#: The first one wins.
REJECTIONS: tuple[Callable[[Draft], Rejection | None], ...] = (
    unknown_algorithm,
    weight_cache_with_drafter,
    two_kinds_of_dp,
    uneven_attention_dp,
    uneven_chunk,
    attention_dp_unsupported,
    uno_on_one_rank,
    steps_missing,
    topk_missing,
    draft_tokens_missing,
    tree_on_trtllm_mha,
    rejection_sampling_on_chains,
    tree_over_pages,
    tree_on_flashinfer_mla,
    tree_too_large,
    drafter_missing,
)


def _plain_eagle(draft: Draft) -> bool:
    return draft.algorithm in EAGLE_FAMILY and not draft.get("speculative-adaptive")


def _topk(draft: Draft) -> int:
    return int(draft.get(TOPK, 1))


def _backends(draft: Draft) -> set[str | None]:
    return {draft.get(f"{prefix}attention-backend") for prefix in ("", "prefill-", "decode-")}
