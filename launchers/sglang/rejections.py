"""What SGLang 0.5.23 refuses or dies of, one function a rule; each sees flags as the rewrites left them.

Read in arg_groups/speculative_hook.py, parallel_hook.py, attention_hook.py, validation_hook.py and
model_path_hook.py, or recorded from 0.5.23 on CPU. Here is what concerns every server or every algorithm;
`eagle_rejections` and `block_rejections` hold the rest.
"""

from __future__ import annotations

from collections.abc import Callable

from launchers.base import Phase
from launchers.sglang.block_rejections import BLOCK_REJECTIONS
from launchers.sglang.eagle_rejections import EAGLE_DEATHS, EAGLE_REJECTIONS, topk_of
from launchers.sglang.rewrites import ALGORITHMS
from launchers.sglang.verdict import Draft, Rejection, at_parse

#: Backends of deterministic inference (arg_groups/choices.py).
_DETERMINISTIC_BACKENDS = ("ascend", "fa3", "fa4", "flashinfer", "intel_xpu", "triton")
#: The variable that lets a pipeline speculate (environ.py).
PIPELINE_SPECULATION = "SGLANG_ENABLE_PP_SPEC"
#: Flags that rules calculate with.
_WHOLE_NUMBERS = (
    "tp-size",
    "pp-size",
    "dp-size",
    "attn-dp-size",
    "page-size",
    "chunked-prefill-size",
    "max-running-requests",
    "speculative-num-steps",
    "speculative-eagle-topk",
    "speculative-num-draft-tokens",
    "speculative-ngram-max-bfs-breadth",
    "speculative-dflash-block-size",
    "speculative-dspark-block-size",
    "speculative-draft-window-size",
    "speculative-draft-sink-size",
)


def no_whole_number(draft: Draft) -> Rejection | None:
    """argparse converts these; the other rules calculate with them, so that it comes before all of them."""
    for name in _WHOLE_NUMBERS:
        value = draft.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            text = "expected one argument" if value is True else f"invalid int value: {str(value)!r}"
            return Rejection(
                f"{name} {value}: this flag takes a whole number. Correct it.",
                f"launch_server.py: error: argument --{name}: {text}",
                exit_code=2,
                dies_in=Phase.SPAWNED,
            )
    return None


def unknown_algorithm(draft: Draft) -> Rejection | None:
    """Recorded from 0.5.23 on CPU: a ValueError, exit 1."""
    if draft.algorithm is None or draft.algorithm in ALGORITHMS:
        return None
    asked = draft.get("speculative-algorithm")
    return at_parse(
        f"speculative-algorithm {asked} is unknown to SGLang 0.5.23. Use one of {', '.join(sorted(ALGORITHMS))}.",
        f"ValueError: Unknown speculative algorithm name: {draft.algorithm}",
    )


def weight_cache_with_drafter(draft: Draft) -> Rejection | None:
    """The weight cache daemon does not hold the drafter's weights."""
    if draft.algorithm is None or draft.get("weight-cache-mode", "off") == "off":
        return None
    return at_parse(
        "weight-cache-mode does not go with speculation: it has no draft weights. Set one of them off.",
        "ValueError: --weight-cache-mode is not supported together with speculative decoding (--speculative-algorithm)",
    )


def two_kinds_of_dp(draft: Draft) -> Rejection | None:
    """Replicas and data-parallel attention exclude each other."""
    replicas = int(draft.get("dp-size", 1))
    if replicas == 1 or draft.attention_dp == 1:
        return None
    return at_parse(
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
    return at_parse(
        f"tp-size {ranks} is not divisible by attn-dp-size {draft.attention_dp}. Choose a divisor.",
        "AssertionError",
    )


def uneven_chunk(draft: Draft) -> Rejection | None:
    """A prefill chunk is whole pages."""
    asked, page = draft.get("chunked-prefill-size"), draft.get("page-size")
    if asked is None or page is None or draft.get("disaggregation-mode") == "decode":
        return None
    # Each attention group gets its share (parallel_hook.py).
    chunk = asked // draft.attention_dp
    if chunk <= 0 or chunk % page == 0:
        return None
    share = f" (attn-dp-size {draft.attention_dp} makes it {chunk})" if draft.attention_dp > 1 else ""
    return at_parse(
        f"chunked-prefill-size {asked}{share} is not divisible by page-size {page}. Choose a multiple.",
        "AssertionError: chunked_prefill_size must be divisible by page_size",
    )


def attention_dp_unsupported(draft: Draft) -> Rejection | None:
    """STANDALONE and NGRAM have no data-parallel attention."""
    if draft.attention_dp == 1 or draft.algorithm not in ("STANDALONE", "NGRAM"):
        return None
    text = f"Currently {draft.algorithm.lower()} speculative decoding does not support dp attention."
    return at_parse(
        f"{draft.algorithm} does not go with attn-dp-size {draft.attention_dp}. Set it to 1 or use EAGLE3.",
        f"ValueError: {text}",
    )


def flex_attention_with_drafter(draft: Draft) -> Rejection | None:
    """Flex attention cannot verify drafts (attention_hook.py)."""
    if draft.algorithm is None or draft.get("attention-backend") != "flex_attention":
        return None
    return at_parse(
        "The attention backend flex_attention does not go with speculation. Take another one.",
        "AssertionError: Speculative decoding is currently not supported with Flex Attention backend",
    )


def backend_not_deterministic(draft: Draft) -> Rejection | None:
    """Deterministic inference runs on few backends; without one named, SGLang takes one of them."""
    # One that is named for both phases replaces it only afterwards; on a CPU a default is named before.
    asked = next((r.asked for r in draft.rewrites if r.flag == "attention-backend"), draft.get("attention-backend"))
    backend = asked or ("intel_amx" if draft.on_cpu else None)
    if not draft.get("enable-deterministic-inference") or backend in (None, *_DETERMINISTIC_BACKENDS):
        return None
    return at_parse(
        f"enable-deterministic-inference does not run on {backend}. Take one of {', '.join(_DETERMINISTIC_BACKENDS)}.",
        f"ValueError: Currently only {list(_DETERMINISTIC_BACKENDS)} attention backends are supported for "
        f"deterministic inference, but you explicitly specified '{backend}'.",
    )


def pipeline_with_drafter(draft: Draft) -> Rejection | None:
    """Pipelines speculate on a prefill node, or with EAGLE where SGLANG_ENABLE_PP_SPEC allows it."""
    # Those that draft a block have rules of their own.
    if draft.algorithm in (None, "UNO", "DFLASH", "DSPARK") or draft.get("pp-size", 1) == 1:
        return None
    allowed = draft.env.get(PIPELINE_SPECULATION, "").lower() in ("1", "true", "yes", "y")
    if draft.algorithm != "EAGLE" or draft.get("enable-multi-layer-eagle"):
        text = "Pipeline parallelism currently only supports EAGLE (non-multi-layer) speculative decoding"
    elif not allowed and draft.get("disaggregation-mode", "null") != "prefill":
        text = "PP + speculative decoding (MTP) is only supported on prefill nodes (disaggregation-mode=prefill)"
    elif allowed and draft.get("speculative-adaptive"):
        text = "SGLANG_ENABLE_PP_SPEC is not compatible with --speculative-adaptive"
    elif allowed and draft.attention_dp > 1:
        text = "SGLANG_ENABLE_PP_SPEC is not compatible with attention DP (--attn-dp-size)"
    else:
        return None
    return at_parse(
        f"pp-size {draft.get('pp-size')} with {draft.algorithm}: {text}. Set pp-size to 1.", f"AssertionError: {text}"
    )


def ngram_over_pages(draft: Draft) -> Rejection | None:
    """NGRAM verifies a tree over pages of several tokens on flashinfer only."""
    backend, page = draft.get("attention-backend", "intel_amx" if draft.on_cpu else None), draft.get("page-size", 1)
    if draft.algorithm != "NGRAM" or page <= 1 or topk_of(draft) < 2 or backend in (None, "flashinfer"):
        return None
    return at_parse(
        f"NGRAM with page-size {page} on {backend}. Set page-size to 1 or take flashinfer.",
        f"ValueError: speculative_eagle_topk({topk_of(draft)}) > 1 with page_size({page}) > 1 is unstable "
        "and produces incorrect results for paged attention backends. "
        "This combination is only supported for the 'flashinfer' backend.",
    )


def draft_window(draft: Draft) -> Rejection | None:
    """A drafter's attention window is positive, and only a window has a sink."""
    window, sink = draft.get("speculative-draft-window-size"), draft.get("speculative-draft-sink-size")
    if window is not None and window <= 0:
        text = f"--speculative-draft-window-size must be positive, got {window}."
    elif sink is not None and sink < 0:
        text = f"--speculative-draft-sink-size must be non-negative, got {sink}."
    elif sink is not None and window is None:
        text = "--speculative-draft-sink-size requires --speculative-draft-window-size."
    else:
        return None
    return at_parse(f"{text} Correct it.", f"ValueError: {text}")


#: As SGLang comes to them; the first one wins.
REJECTIONS: tuple[Callable[[Draft], Rejection | None], ...] = (
    backend_not_deterministic,
    flex_attention_with_drafter,
    two_kinds_of_dp,
    uneven_attention_dp,
    unknown_algorithm,
    draft_window,
    attention_dp_unsupported,
    ngram_over_pages,
    *BLOCK_REJECTIONS,
    *EAGLE_REJECTIONS,
    weight_cache_with_drafter,
    pipeline_with_drafter,
    uneven_chunk,
    *EAGLE_DEATHS,
)
