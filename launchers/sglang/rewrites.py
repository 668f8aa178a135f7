"""What SGLang 0.5.23 silently makes of flags, one function a rule, in its own order.

Read in arg_groups/parallel_hook.py, overrides.py and speculative_hook.py, and in speculative/adaptive_spec_params.py;
the log lines are the server's.
"""

from __future__ import annotations

from collections.abc import Callable

from launchers.sglang.verdict import Draft

EAGLE_FAMILY = frozenset({"EAGLE", "EAGLE3", "STANDALONE"})
#: The other names that SGLang knows; NEXTN is another name for EAGLE.
ALGORITHMS = EAGLE_FAMILY | {"NEXTN", "FROZEN_KV_MTP", "NGRAM", "DFLASH", "DSPARK", "UNO"}
STEPS = "speculative-num-steps"
TOPK = "speculative-eagle-topk"
DRAFT_TOKENS = "speculative-num-draft-tokens"
DRAFT_PATH = "speculative-draft-model-path"
MAX_RUNNING = "max-running-requests"
DFLASH_BLOCK = "speculative-dflash-block-size"
#: Tokens that DSPARK drafts; it verifies one more.
DSPARK_BLOCK = "speculative-dspark-block-size"

RESET_TO_48 = (
    "Max running requests is reset to 48 for speculative decoding. "
    "You can override this by explicitly setting --max-running-requests."
)
#: What SGLang starts with a tree (5, 4, 8) by itself; all others get a chain (3, 1, 4).
_TREE_ARCHITECTURES = ("LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM")
#: The same as the names of models begin, for where the architecture is not known.
_TREE_MODELS = ("llama-2", "llama-3", "meta-llama-3", "vicuna", "grok-1", "grok-2")
#: Algorithms that run beside mixed chunks (`supports_mixed_chunk`).
_WITH_MIXED_CHUNKS = frozenset({"EAGLE", "EAGLE3", "DFLASH", "DSPARK"})
#: All steps that adaptive speculation chooses from, unless a file names others.
ADAPTIVE_STEPS = (0, 1, 3, 5, 7)
#: Sizes of pages that a backend can work with; any other becomes 64. The phases in which it counts.
_PAGES: tuple[tuple[str, tuple[int, ...], tuple[str, ...]], ...] = (
    ("flashmla", (64,), ("", "decode-")),
    ("trtllm_mla", (32, 64), ("", "decode-")),
    ("cutedsl_mla", (32, 64), ("", "decode-", "prefill-")),
    ("trtllm_mha", (16, 32, 64, 128), ("", "decode-", "prefill-", "speculative-draft-")),
    ("hpc_ops", (64,), ("", "decode-", "prefill-")),
)


def attention_dp_spelling(draft: Draft) -> None:
    """The deprecated `dp-size N` with `enable-dp-attention` is `attn-dp-size N`."""
    if not draft.get("enable-dp-attention"):
        return
    if draft.attention_dp == 1:
        width = int(draft.get("dp-size", 1))
        draft.rewrite("dp-size", None)
        draft.rewrite("attn-dp-size", width if width > 1 else None)
    draft.rewrite("enable-dp-attention", None)


def one_backend(draft: Draft) -> None:
    """A backend that is named for both phases is the backend, whatever else was asked."""
    prefill = draft.get("prefill-attention-backend")
    if prefill is not None and prefill == draft.get("decode-attention-backend"):
        draft.rewrite("attention-backend", prefill)


def pages_of_backend(draft: Draft) -> None:
    """Some backends know few sizes of pages, and take 64 instead of any other."""
    for backend, sizes, phases in _PAGES:
        named = {draft.get(f"{phase}attention-backend") for phase in phases}
        if backend in named and draft.get("page-size") not in sizes:
            draft.rewrite("page-size", 64)


def algorithm_spelling(draft: Draft) -> None:
    """Names are upper-cased; NEXTN is EAGLE (speculative_hook.py)."""
    if draft.algorithm in ALGORITHMS:
        name = "EAGLE" if draft.algorithm == "NEXTN" else draft.algorithm
        draft.rewrite("speculative-algorithm", name)


def adaptive_steps(draft: Draft) -> None:
    """Adaptive steps draft chains of EAGLE; where they cannot, SGLang goes on with fixed ones."""
    if not draft.algorithm or not draft.get("speculative-adaptive"):
        return
    unfit = ("enable-multi-layer-eagle", "enable-two-batch-overlap", "enable-pdmux")
    if (
        draft.algorithm not in ("EAGLE", "EAGLE3")
        or draft.get(TOPK, 1) != 1
        or draft.attention_dp > 1
        or any(draft.get(name) for name in unfit)
    ):
        draft.rewrite("speculative-adaptive", None)
        return
    draft.rewrite(TOPK, 1)
    if draft.get(STEPS) is None and draft.get("speculative-adaptive-config") is None:
        draft.rewrite(STEPS, ADAPTIVE_STEPS[len(ADAPTIVE_STEPS) // 2])


def capped_at_48(draft: Draft) -> None:
    """Speculation runs at most 48 requests unless told otherwise."""
    if draft.algorithm in ALGORITHMS - {"UNO"} and draft.get(MAX_RUNNING) is None:
        draft.rewrite(MAX_RUNNING, 48, RESET_TO_48)


def no_mixed_chunks(draft: Draft) -> None:
    """Some algorithms exclude chunks of prefill in a decode batch; NGRAM says it in other words."""
    if draft.algorithm in ALGORITHMS - _WITH_MIXED_CHUNKS - {"NGRAM"}:
        line = (
            f"Mixed chunked prefill is disabled: {draft.algorithm} speculative decoding does not support it."
            if draft.algorithm in EAGLE_FAMILY
            else None
        )
        draft.rewrite("enable-mixed-chunk", None, line)


def chosen_tree(draft: Draft) -> None:
    """With none of steps, topk and draft tokens given, SGLang chooses them by the model's architecture."""
    if draft.algorithm not in EAGLE_FAMILY or draft.get("speculative-adaptive"):
        return
    if any(draft.get(name) is not None for name in (STEPS, TOPK, DRAFT_TOKENS)):
        return
    tree = False
    if draft.algorithm != "STANDALONE":
        if draft.architecture is None and draft.model_name is None:
            return
        tree = (
            draft.architecture in _TREE_ARCHITECTURES
            if draft.architecture
            else str(draft.model_name).startswith(_TREE_MODELS)
        )
    for name, value in zip((STEPS, TOPK, DRAFT_TOKENS), (5, 4, 8) if tree else (3, 1, 4), strict=True):
        draft.rewrite(name, value)


def chain_length(draft: Draft) -> None:
    """A chain has steps + 1 tokens, whatever was asked."""
    if draft.algorithm in EAGLE_FAMILY and draft.get(TOPK) == 1 and draft.get(STEPS) is not None:
        draft.rewrite(
            DRAFT_TOKENS,
            draft.get(STEPS) + 1,
            "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1",
        )


def ngram_defaults(draft: Draft) -> None:
    """NGRAM: topk is the breadth, 12 draft tokens, steps from both, no mixed chunks."""
    if draft.algorithm != "NGRAM":
        return
    draft.rewrite(
        "enable-mixed-chunk",
        None,
        "The mixed chunked prefill are disabled because of using ngram speculative decoding.",
    )
    draft.rewrite(TOPK, draft.get("speculative-ngram-max-bfs-breadth", 10))
    if draft.get(DRAFT_TOKENS) is None:
        line = (
            "speculative_num_draft_tokens is set to 12 by default for ngram speculative decoding. "
            "You can override this by explicitly setting --speculative-num-draft-tokens."
        )
        draft.rewrite(DRAFT_TOKENS, 12, line)
    if draft.get(STEPS) is None:
        draft.rewrite(STEPS, draft.get(DRAFT_TOKENS) // draft.get(TOPK))


def block_drafters(draft: Draft) -> None:
    """DFLASH and DSPARK draft a block in one step, and UNO does unless topk asks for a tree."""
    label = {"DFLASH": "DFLASH only supports", "DSPARK": "DSpark only supports"}.get(draft.algorithm or "")
    if label is None and (draft.algorithm != "UNO" or draft.get(TOPK, 1) > 1):
        return
    for flag in (STEPS, TOPK):
        asked, field = draft.get(flag), flag.replace("-", "_")
        line = None if label is None else f"{label} {field} == 1; overriding {field}={asked} to 1."
        draft.rewrite(flag, 1, None if asked is None else line or f"UNO uses {field}=1; overriding {asked}.")
    if draft.algorithm == "DFLASH":
        draft.rewrite(DRAFT_TOKENS, draft.get(DRAFT_TOKENS, draft.get(DFLASH_BLOCK)))
    elif draft.algorithm == "DSPARK" and draft.get(DRAFT_TOKENS) is None and draft.get(DSPARK_BLOCK) is not None:
        draft.rewrite(DRAFT_TOKENS, draft.get(DSPARK_BLOCK) + 1)


#: Later ones read what earlier ones set.
REWRITES: tuple[Callable[[Draft], None], ...] = (
    attention_dp_spelling,
    one_backend,
    pages_of_backend,
    algorithm_spelling,
    adaptive_steps,
    capped_at_48,
    no_mixed_chunks,
    chosen_tree,
    chain_length,
    ngram_defaults,
    block_drafters,
)
