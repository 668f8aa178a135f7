"""What SGLang 0.5.23 makes of a configuration: refused with a reason, silently rewritten, or taken as it is.

Pure: told from flags and environment alone, before anything starts. What depends on the hardware or on a
model's files is left to the server. The rules are in `rewrites`, `rejections` and `nccl_rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launchers.sglang.nccl_rules import NCCL_REJECTIONS, canonical_nccl
from launchers.sglang.rejections import REJECTIONS
from launchers.sglang.rewrites import REWRITES
from launchers.sglang.verdict import Draft, Rejection, Rewrite, Verdict

__all__ = ["ALIASES", "Rejection", "Rewrite", "Verdict", "judge"]

#: Second names of flags (fields/*.py); `tp` works as argparse's abbreviation.
ALIASES = {
    "model": "model-path",
    "tp": "tp-size",
    "tensor-parallel-size": "tp-size",
    "pipeline-parallel-size": "pp-size",
    "data-parallel-size": "dp-size",
    "attention-data-parallel-size": "attn-dp-size",
    "expert-parallel-size": "ep-size",
    "ep": "ep-size",
    "speculative-draft-model": "speculative-draft-model-path",
}


def judge(flags: Mapping[str, Any], env: Mapping[str, str], *, nvlink: bool = False) -> Verdict:
    """The verdict on flags (without dashes in front; None and False: left out) and environment.

    Give `model-path` among the flags: two rules know model families by name, and without it SGLang's own
    choice of draft steps is not filled in. `nvlink`: every pair of GPUs is joined by NVLink.
    A rejected configuration has a canonical form too, as far as it is understood.
    """
    named = {ALIASES.get(name, name): value for name, value in flags.items()}
    draft = Draft(
        {name: value for name, value in named.items() if value is not None and value is not False},
        {name: str(value) for name, value in env.items()},
        nvlink=nvlink,
    )
    for rewrite in REWRITES:
        rewrite(draft)
    rejections = REJECTIONS + (NCCL_REJECTIONS if draft.nccl_ranks > 1 else ())
    found = (rejection for rule in rejections if (rejection := rule(draft)) is not None)
    rejection = next(found, None)
    _drop_inert(draft)
    canonical_nccl(draft)
    return Verdict(draft.flags, draft.env, tuple(draft.rewrites), rejection)


def _drop_inert(draft: Draft) -> None:
    if draft.algorithm is None:
        for name in [name for name in draft.flags if name.startswith("speculative-")]:
            del draft.flags[name]
