"""Which KV-cache slots belong to which token.

`req_to_token[row, position]` is the slot of a request's token; `req_pool_indices[b]` is the row of request b of the
batch. A slot is an index into every layer's key and value buffers. `pool_len` is the width of `req_to_token`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import torch


def _spans(
    req_pool_indices: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor
) -> Iterator[tuple[int, slice, slice]]:
    """For each request: its row, its positions [start, end), and where these lie in the batch's flat list."""
    at = 0
    for row, start, end in zip(req_pool_indices.tolist(), starts.tolist(), ends.tolist(), strict=True):
        length = max(0, end - start)
        yield row, slice(start, start + length), slice(at, at + length)
        at += length


def assign_req_to_token_pool_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Enter the slots of `out_cache_loc`, one request after the other, at positions [start, end) of each."""
    for row, positions, flat in _spans(req_pool_indices, start_offset, end_offset):
        req_to_token[row, positions] = out_cache_loc[flat].to(req_to_token.dtype)


def assign_extend_cache_locs_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Read into `out_cache_loc`, one request after the other, the slots at positions [start, end) of each."""
    for row, positions, flat in _spans(req_pool_indices, start_offset, end_offset):
        out_cache_loc[flat] = req_to_token[row, positions].to(out_cache_loc.dtype)


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    seq_lens: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Read into `out_cache_loc` the topk * num_steps slots that follow each request's tokens."""
    ends = seq_lens + topk * num_steps
    assign_extend_cache_locs_cpu(req_pool_indices, req_to_token, seq_lens, ends, out_cache_loc, pool_len)


def build_draft_decode_metadata_cpu(
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    topk: int,
    num_steps: int,
    pool_len: int,
) -> torch.Tensor:
    """A `req_to_token` in which each of a request's topk branches is a request of its own: [batch * topk, pool_len].

    A branch sees the request's tokens, then its own num_steps slots of the topk * num_steps that follow them.
    """
    branches = torch.zeros((len(req_pool_indices), topk, pool_len), dtype=req_to_token.dtype)
    for request, (row, length) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)):
        branches[request, :, :length] = req_to_token[row, :length]
        drafted = req_to_token[row, length : length + topk * num_steps]
        branches[request, :, length : length + num_steps] = drafted.view(topk, num_steps)
    return branches.view(-1, pool_len)


def fill_accept_out_cache_loc_cpu(
    accept_index: torch.Tensor, out_cache_loc: torch.Tensor, accept_out_cache_loc: torch.Tensor
) -> None:
    """The slots of the accepted tokens, without gaps; an `accept_index` of -1 is none."""
    accepted = accept_index.flatten()
    accepted = accepted[accepted >= 0].long()
    accept_out_cache_loc[: len(accepted)] = out_cache_loc[accepted]


def copy_all_layer_kv_cache_cpu(
    data_ptrs: torch.Tensor, strides: torch.Tensor, tgt_loc: torch.Tensor, src_loc: torch.Tensor
) -> None:
    """Copy slots `src_loc` to `tgt_loc` in every buffer, given by its address and the bytes of a slot.

    All sources are read before a target is written: the two may overlap.
    """
    sources, targets = src_loc.tolist(), tgt_loc.tolist()
    for base, size in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        rows = [ctypes.string_at(base + slot * size, size) for slot in sources]
        for slot, row in zip(targets, rows, strict=True):
            ctypes.memmove(base + slot * size, row, size)
