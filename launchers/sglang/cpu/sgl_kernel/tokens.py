"""Token ids that move between a verify step and the next draft."""

from __future__ import annotations

import torch


def fill_bonus_tokens_cpu(
    accept_tokens: torch.Tensor, accept_lens: torch.Tensor, bonus_tokens: torch.Tensor, accept_stride: int
) -> None:
    """The last accepted token of each request; `accept_tokens` holds `accept_stride` places a request."""
    rows = accept_tokens.reshape(len(accept_lens), accept_stride)
    last = rows.gather(1, accept_lens.long().unsqueeze(1) - 1).squeeze(1)
    bonus_tokens[: len(accept_lens)] = last.to(bonus_tokens.dtype)


def rotate_input_ids_cpu(
    input_ids: torch.Tensor,
    extend_start_loc: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    topk_index: torch.Tensor,
    select_index: torch.Tensor | None = None,
) -> None:
    """Shift each request's ids left by one and put its new token at the end, or at `select_index` where given."""
    new_tokens = topk_index.flatten().to(input_ids.dtype)
    for request, (start, length) in enumerate(zip(extend_start_loc.tolist(), extend_seq_lens.tolist(), strict=True)):
        if length <= 0:
            continue
        end = start + length
        input_ids[start : end - 1] = input_ids[start + 1 : end].clone()
        input_ids[end - 1 if select_index is None else int(select_index[request])] = new_tokens[request]
