"""What SGLang 0.5.23 silently makes of flags, one function a rule, in its own order.

Read in arg_groups/speculative_hook.py and parallel_hook.py; the log lines are the server's.
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

RESET_TO_48 = (
    "Max running requests is reset to 48 for speculative decoding. "
    "You can override this by explicitly setting --max-running-requests."
)
#: Model families that SGLang starts with a tree (5, 4, 8) by itself; all others get a chain (3, 1, 4).
_TREE_MODELS = ("llama-2", "llama-3", "meta-llama-3", "vicuna", "grok-1", "grok-2")


def attention_dp_spelling(draft: Draft) -> None:
    """The deprecated `dp-size N` with `enable-dp-attention` is `attn-dp-size N`."""
    if not draft.get("enable-dp-attention"):
        return
    if draft.attention_dp == 1:
        width = int(draft.get("dp-size", 1))
        draft.rewrite("dp-size", None)
        draft.rewrite("attn-dp-size", width if width > 1 else None)
    draft.rewrite("enable-dp-attention", None)


def algorithm_spelling(draft: Draft) -> None:
    """Names are upper-cased; NEXTN is EAGLE (speculative_hook.py)."""
    if draft.algorithm in ALGORITHMS:
        name = "EAGLE" if draft.algorithm == "NEXTN" else draft.algorithm
        draft.rewrite("speculative-algorithm", name)


def adaptive_topk(draft: Draft) -> None:
    """Adaptive steps draft chains."""
    if draft.algorithm and draft.get("speculative-adaptive") and draft.get(TOPK) is None:
        draft.rewrite(TOPK, 1)


def capped_at_48(draft: Draft) -> None:
    """Speculation runs at most 48 requests unless told otherwise."""
    if draft.algorithm in ALGORITHMS - {"UNO"} and draft.get(MAX_RUNNING) is None:
        draft.rewrite(MAX_RUNNING, 48, RESET_TO_48)


def chosen_tree(draft: Draft) -> None:
    """With none of steps, topk and draft tokens given, SGLang chooses them by the model's architecture."""
    if draft.algorithm not in EAGLE_FAMILY or draft.get("speculative-adaptive"):
        return
    if any(draft.get(name) is not None for name in (STEPS, TOPK, DRAFT_TOKENS)):
        return
    model = draft.model_name
    if model is None and draft.algorithm != "STANDALONE":
        return
    tree = draft.algorithm != "STANDALONE" and bool(model) and str(model).startswith(_TREE_MODELS)
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
    """DFLASH, DSPARK and UNO draft a block in one step."""
    label = {"DFLASH": "DFLASH only supports", "DSPARK": "DSpark only supports"}.get(draft.algorithm or "")
    if label is None and draft.algorithm != "UNO":
        return
    for flag in (STEPS, TOPK):
        asked, field = draft.get(flag), flag.replace("-", "_")
        line = None if label is None else f"{label} {field} == 1; overriding {field}={asked} to 1."
        draft.rewrite(flag, 1, None if asked is None else line or f"UNO uses {field}=1; overriding {asked}.")


#: Later ones read what earlier ones set.
REWRITES: tuple[Callable[[Draft], None], ...] = (
    attention_dp_spelling,
    algorithm_spelling,
    adaptive_topk,
    capped_at_48,
    chosen_tree,
    chain_length,
    ngram_defaults,
    block_drafters,
)
