"""What SGLang 0.5.23 makes of a configuration: refused with a reason, silently rewritten, or taken as it is.

Pure: told from flags and environment, before anything starts. What depends on more of the hardware or of a
model than `judge` is told is left to the server. The rules are in `rewrites`, `rejections` and `nccl_rules`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from launchers.sglang.nccl_rules import NCCL_REJECTIONS, canonical_nccl
from launchers.sglang.rejections import PIPELINE_SPECULATION, REJECTIONS, no_whole_number
from launchers.sglang.rewrites import REWRITES
from launchers.sglang.verdict import Draft, Rejection, Rewrite, Verdict

__all__ = ["ALIASES", "FLAG_VARIABLES", "Rejection", "Rewrite", "Verdict", "judge"]

#: The only variables that the rules on flags look at.
FLAG_VARIABLES = (PIPELINE_SPECULATION,)
_WHOLE = re.compile(r"-?(?:0|[1-9]\d*)")

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


def judge(
    flags: Mapping[str, Any], env: Mapping[str, str], *, nvlink: bool = False, architecture: str | None = None
) -> Verdict:
    """The verdict on flags (without dashes in front; None and False: left out) and environment.

    Give `model-path` among the flags: some rules know model families by name, and without it SGLang's own
    choice of draft steps is not filled in. `architecture` is better than a name where it is known: what the
    model's config.json names. `nvlink`: every pair of GPUs is joined by NVLink.
    A rejected configuration has a canonical form too, as far as it is understood.
    """
    named = {ALIASES.get(name, name): _plain(value) for name, value in flags.items()}
    draft = Draft(
        {name: value for name, value in named.items() if value is not None and value is not False},
        {name: str(value) for name, value in env.items()},
        nvlink=nvlink,
        architecture=architecture,
    )
    rejection = no_whole_number(draft)
    if rejection is None:
        for rewrite in REWRITES:
            rewrite(draft)
        rules = REJECTIONS + (NCCL_REJECTIONS if draft.nccl_ranks > 1 else ())
        rejection = next((found for rule in rules if (found := rule(draft)) is not None), None)
        canonical_nccl(draft)
    _drop_inert(draft)
    return Verdict(draft.flags, draft.env, tuple(draft.rewrites), rejection)


def _plain(value: Any) -> Any:
    """A whole number that is written as text is the same word on a command line."""
    return int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else value


def _drop_inert(draft: Draft) -> None:
    if draft.algorithm is None:
        for name in [name for name in draft.flags if name.startswith("speculative-")]:
            del draft.flags[name]
