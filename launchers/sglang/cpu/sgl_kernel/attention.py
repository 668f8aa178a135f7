"""The two operators behind SGLang's `intel_amx` attention backend: the one that drafts and verifies on a CPU.

Both read keys and values from the cache by slot (see `sgl_kernel.slots`); queries are [token, head, head_dim], caches
[slot, KV head, head_dim]. Arithmetic is float32. Scales of a quantized cache, encoders, sliding windows and attention
sinks are not covered; the latter three raise NotImplementedError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_CACHES = "Tensor(b!) k_cache, Tensor(c!) v_cache, float k_scale, float v_scale"
_REQUESTS = "Tensor req_to_token, Tensor req_pool_indices, Tensor seq_lens"
_MODEL = "float sm_scale, float logit_cap, bool is_cross_attn, int sliding_window, Tensor? encoder_lens, Tensor? sinks"

_LIBRARY = torch.library.Library("sgl_kernel", "FRAGMENT")
_LIBRARY.define(
    f"decode_attention_cpu(Tensor query, {_CACHES}, Tensor(a!) output, Tensor? key, Tensor? value, Tensor loc, "
    f"Tensor attn_logits, {_REQUESTS}, {_MODEL}) -> ()"
)
_LIBRARY.define(
    f"extend_attention_cpu(Tensor query, Tensor? key, Tensor? value, Tensor(a!) output, {_CACHES}, {_REQUESTS}, "
    f"Tensor extend_seq_lens, Tensor extend_start_loc, int max_len_extend, {_MODEL}, Tensor? tree_mask, "
    "bool is_causal) -> ()"
)


def _attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    visible: torch.Tensor | None,
    scale: float,
    logit_cap: float,
) -> torch.Tensor:
    """Attention of n queries over m tokens; `visible` [n, m] hides tokens. Each KV head serves a group of heads."""
    tokens, heads, width = query.shape
    kv_heads = keys.shape[1]
    grouped = query.float().view(tokens, kv_heads, heads // kv_heads, width).permute(1, 2, 0, 3)
    logits = grouped @ keys.float().permute(1, 2, 0).unsqueeze(1) * scale
    if logit_cap > 0:
        logits = logit_cap * torch.tanh(logits / logit_cap)
    if visible is not None:
        logits = logits.masked_fill(~visible, float("-inf"))
    weighted = logits.softmax(-1) @ values.float().transpose(0, 1).unsqueeze(1)
    return weighted.permute(2, 0, 1, 3).reshape(tokens, heads, -1)


def _refuse_uncovered(is_cross_attn: bool, sliding_window: int, sinks: torch.Tensor | None) -> None:
    wanted = [
        name
        for name, asked in (
            ("cross attention", is_cross_attn),
            # The backend passes window + 1, and -1 + 1 for no window.
            ("a sliding window", sliding_window > 0),
            ("attention sinks", sinks is not None),
        )
        if asked
    ]
    if wanted:
        raise NotImplementedError(
            f"the CPU stand-in of sgl_kernel has no {' and no '.join(wanted)}: take another model"
        )


def _decode(
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k_scale: float,
    v_scale: float,
    output: torch.Tensor,
    key: torch.Tensor | None,
    value: torch.Tensor | None,
    loc: torch.Tensor,
    attn_logits: torch.Tensor,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window: int,
    encoder_lens: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> None:
    """One query a request over all its tokens; `key` and `value`, where given, are first stored at slots `loc`."""
    _refuse_uncovered(is_cross_attn, sliding_window, sinks)
    for cache, new in ((k_cache, key), (v_cache, value)):
        if new is not None:
            cache[loc] = new.view(-1, *cache.shape[1:]).to(cache.dtype)
    for request, (row, length) in enumerate(_rows(req_pool_indices, seq_lens)):
        slots = req_to_token[row, :length].long()
        one = slice(request, request + 1)
        output[one] = _attend(query[one], k_cache[slots], v_cache[slots], None, sm_scale, logit_cap)


def _extend(
    query: torch.Tensor,
    key: torch.Tensor | None,
    value: torch.Tensor | None,
    output: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k_scale: float,
    v_scale: float,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    extend_start_loc: torch.Tensor,
    max_len_extend: int,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window: int,
    encoder_lens: torch.Tensor | None,
    sinks: torch.Tensor | None,
    tree_mask: torch.Tensor | None,
    is_causal: bool,
) -> None:
    """The last n tokens of each request over all its tokens; their keys and values are in the cache already.

    Among these n, a token sees those that its row of `tree_mask` (flat, n x n a request) says, or those before it.
    """
    _refuse_uncovered(is_cross_attn, sliding_window, sinks)
    mask_at = 0
    for row, length, new, start in _rows(req_pool_indices, seq_lens, extend_seq_lens, extend_start_loc):
        if new == 0:
            continue
        visible = torch.ones(new, length, dtype=torch.bool)
        if tree_mask is not None:
            visible[:, length - new :] = tree_mask.flatten()[mask_at : mask_at + new * new].view(new, new)
            mask_at += new * new
        elif is_causal:
            visible = visible.tril(length - new)
        slots = req_to_token[row, :length].long()
        span = slice(start, start + new)
        output[span] = _attend(query[span], k_cache[slots], v_cache[slots], visible, sm_scale, logit_cap)


def _rows(*columns: torch.Tensor) -> Sequence[tuple[Any, ...]]:
    return list(zip(*(column.tolist() for column in columns), strict=True))


_LIBRARY.impl("decode_attention_cpu", _decode, "CPU")
_LIBRARY.impl("extend_attention_cpu", _extend, "CPU")
