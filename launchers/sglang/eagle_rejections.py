"""What SGLang 0.5.23 refuses of EAGLE, EAGLE3 and STANDALONE, or dies of; see `rejections`.

Read in arg_groups/speculative_hook.py (`_handle_eagle_family`), or recorded from 0.5.23 on CPU.
"""

from __future__ import annotations

from collections.abc import Callable

from launchers.base import Phase
from launchers.sglang.rewrites import (
    ADAPTIVE_STEPS,
    DRAFT_PATH,
    DRAFT_TOKENS,
    EAGLE_FAMILY,
    STEPS,
    TOPK,
)
from launchers.sglang.verdict import KILLED, Draft, Rejection, at_parse

#: Backends that can draft a tree over pages of more than one token.
PAGED_TREE_BACKENDS = ("flashinfer", "fa3", "triton")
#: Model families with multi-head latent attention, as their names begin, and as their architectures do.
_MLA_MODELS = ("deepseek-v2", "deepseek-v3", "deepseek-r1", "kimi-k2")
_MLA_ARCHITECTURES = ("DeepseekV2", "DeepseekV3", "KimiK25")


def block_verification(draft: Draft) -> Rejection | None:
    """Block verification needs sampled proposals, on a GPU."""
    if not draft.get("speculative-use-block-verification"):
        return None
    flag = "--speculative-use-block-verification"
    if draft.algorithm not in ("EAGLE", "EAGLE3", "DFLASH", "DSPARK"):
        return at_parse(
            f"Block verification does not go with {draft.algorithm or 'no algorithm'}. Drop it or use EAGLE or EAGLE3.",
            f"ValueError: {flag} only supports EAGLE / EAGLE3 / NEXTN / DFLASH / DSPARK.",
        )
    if not draft.on_cpu:
        return None
    return at_parse(
        "Block verification needs a GPU. Drop speculative-use-block-verification.",
        f"ValueError: {flag} only supports CUDA or ROCm.",
    )


def adaptive_outside_its_steps(draft: Draft) -> Rejection | None:
    """Adaptive speculation starts from one of the steps that it chooses from."""
    steps = draft.get(STEPS)
    adaptive = draft.algorithm and draft.get("speculative-adaptive")
    if not adaptive or draft.get("speculative-adaptive-config") is not None:
        return None
    if steps is None or steps in ADAPTIVE_STEPS:
        return None
    return at_parse(
        f"{STEPS} {steps} with speculative-adaptive, which chooses from {', '.join(map(str, ADAPTIVE_STEPS))}. "
        f"Take one of them, or name others in speculative-adaptive-config.",
        f"ValueError: --speculative-num-steps={steps} is not in the adaptive config candidate_steps "
        f"{list(ADAPTIVE_STEPS)}. Pass one of those values.",
    )


def steps_missing(draft: Draft) -> Rejection | None:
    """The other two without steps: a bare assertion."""
    if not _plain_eagle(draft) or draft.get(STEPS) is not None:
        return None
    if draft.get(TOPK) is None and draft.get(DRAFT_TOKENS) is None:
        return None
    return at_parse(f"{STEPS} is missing beside {TOPK} or {DRAFT_TOKENS}. Set all three or none.", "AssertionError")


def topk_missing(draft: Draft) -> Rejection | None:
    """Recorded from 0.5.23 on CPU: the missing value is compared with a number."""
    if not _plain_eagle(draft) or draft.get(STEPS) is None or draft.get(TOPK) is not None:
        return None
    return at_parse(
        f"{TOPK} is missing beside {STEPS}. Set all three of steps, topk and draft tokens, or none.",
        "TypeError: '>' not supported between instances of 'NoneType' and 'int'",
    )


def draft_tokens_missing(draft: Draft) -> Rejection | None:
    """A tree's size is filled in for chains only; SGLang fails on the missing number somewhere later."""
    if not _plain_eagle(draft) or topk_of(draft) < 2 or draft.get(DRAFT_TOKENS) is not None:
        return None
    return Rejection(f"{DRAFT_TOKENS} is missing beside {TOPK} {topk_of(draft)}. Set all three or none.", ours=True)


def tree_on_trtllm_mha(draft: Draft) -> Rejection | None:
    """trtllm_mha verifies chains only."""
    if draft.algorithm not in EAGLE_FAMILY or topk_of(draft) < 2:
        return None
    if "trtllm_mha" not in draft.attention_backends:
        return None
    return at_parse(
        f"{TOPK} {topk_of(draft)} on the attention backend trtllm_mha, which verifies chains only. "
        f"Set {TOPK} to 1 or take another backend.",
        "ValueError: trtllm_mha backend only supports topk = 1 for speculative decoding.",
    )


def rejection_sampling_on_chains(draft: Draft) -> Rejection | None:
    """Rejection sampling is for chains of EAGLE drafters, with thresholds at 1."""
    block = draft.get("speculative-use-block-verification") and draft.algorithm in ("EAGLE", "EAGLE3")
    if draft.algorithm not in EAGLE_FAMILY or not (draft.get("speculative-use-rejection-sampling") or block):
        return None
    flag = "--speculative-use-rejection-sampling"
    if draft.algorithm == "STANDALONE":
        return at_parse(
            "Rejection sampling needs EAGLE or EAGLE3. Drop speculative-use-rejection-sampling.",
            f"NotImplementedError: {flag} is only supported for EAGLE / EAGLE3 / NEXTN, "
            f"not speculative_algorithm={draft.algorithm}.",
        )
    if topk_of(draft) != 1:
        return at_parse(
            f"Rejection sampling needs {TOPK} 1, not {draft.get(TOPK)}. Set it to 1 or drop the sampling.",
            f"ValueError: {flag} requires --speculative-eagle-topk=1.",
        )
    if draft.get("enable-deterministic-inference") and draft.on_cpu:
        return at_parse(
            "Deterministic rejection sampling needs a GPU. Drop one of them.",
            "ValueError: Deterministic rejection sampling is currently supported only on CUDA-compatible devices "
            "because draft proposal sampling uses a Triton hash kernel.",
        )
    thresholds = [draft.get(f"speculative-accept-threshold-{kind}", 1.0) for kind in ("single", "acc")]
    if thresholds == [1.0, 1.0]:
        return None
    return at_parse(
        "Rejection sampling ignores accept thresholds and refuses any but 1.0. Drop one of them.",
        f"ValueError: {flag} is incompatible with --speculative-accept-threshold-single / "
        "--speculative-accept-threshold-acc; rejection sampling ignores the accept thresholds.",
    )


def tree_on_flashinfer_mla(draft: Draft) -> Rejection | None:
    """FlashInfer's latent attention verifies chains only; it says so while its graphs are captured."""
    latent = (
        draft.architecture.startswith(_MLA_ARCHITECTURES)
        if draft.architecture
        else (draft.model_name or "").startswith(_MLA_MODELS)
    )
    if draft.algorithm not in EAGLE_FAMILY or topk_of(draft) < 2 or not latent:
        return None
    if draft.get("attention-backend") != "flashinfer":
        return None
    return Rejection(
        f"{TOPK} {topk_of(draft)} on flashinfer with latent attention (MLA), where it verifies chains only."
        f" Set {TOPK} to 1 or take triton.",
        "Flashinfer MLA only supports topk=1",
        KILLED,
        Phase.GRAPH_CAPTURE,
    )


def tree_too_large(draft: Draft) -> Rejection | None:
    """More tokens to verify than the drafter proposes: topk + (steps - 1) topk^2 candidates and the root.

    Recorded from 0.5.23 on CPU: dies only when it first drafts, -9.
    """
    topk, steps, tokens = topk_of(draft), draft.get(STEPS), draft.get(DRAFT_TOKENS)
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


def tree_over_pages(draft: Draft) -> Rejection | None:
    """A tree over pages of several tokens needs a backend that can share the last page.

    Without a GPU no default is one of them; with one, the default is left to the server.
    """
    backend, page = draft.get("attention-backend", "intel_amx" if draft.on_cpu else None), draft.get("page-size", 1)
    if draft.algorithm not in EAGLE_FAMILY or page <= 1 or backend is None or topk_of(draft) < 2:
        return None
    if backend in PAGED_TREE_BACKENDS:
        return None
    return at_parse(
        f"{TOPK} {topk_of(draft)} with page-size {page} on {backend}. Set page-size or {TOPK} to 1, or take "
        f"{' or '.join(PAGED_TREE_BACKENDS)}.",
        f"ValueError: speculative_eagle_topk > 1 with page_size > 1 is only supported on "
        f"{PAGED_TREE_BACKENDS}; got attention_backend={backend!r}. "
        "Use page_size == 1 or one of those backends.",
    )


#: As SGLang comes to them.
EAGLE_REJECTIONS: tuple[Callable[[Draft], Rejection | None], ...] = (
    block_verification,
    adaptive_outside_its_steps,
    steps_missing,
    tree_on_trtllm_mha,
    rejection_sampling_on_chains,
    topk_missing,
    tree_over_pages,
)
#: What it dies of after its arguments are accepted, and what only we refuse.
EAGLE_DEATHS: tuple[Callable[[Draft], Rejection | None], ...] = (
    tree_on_flashinfer_mla,
    tree_too_large,
    draft_tokens_missing,
    drafter_missing,
)


def _plain_eagle(draft: Draft) -> bool:
    return draft.algorithm in EAGLE_FAMILY and not draft.get("speculative-adaptive")


def topk_of(draft: Draft) -> int:
    """Branches at each step; 1 is a chain."""
    return int(draft.get(TOPK, 1))
