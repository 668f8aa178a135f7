"""Stand-in for SGLang's compiled kernels on a CPU: what SGLang 0.5.23's CPU engine calls, in plain torch.

sglang-kernel (Apache License 2.0, https://github.com/sgl-project/sglang) is that library; it has no CPU build on
PyPI. These modules follow its behaviour as SGLang 0.5.23 relies on it, found by reading the callers, and hold none of
its code. They loop over requests in Python: right for tiny models, slow for others. On x86-64 without AMX, SGLang
needs nothing else; a function it wants beyond these ends as an ImportError that names it.

The functions write into tensors that the caller made. Names and argument orders are the callers'.
"""

from . import attention  # noqa: F401 - registers the attention operators
from .slots import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
)
from .tokens import fill_bonus_tokens_cpu, rotate_input_ids_cpu
from .tree import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu

__version__ = "0.0.0+cpu.standin"

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]
