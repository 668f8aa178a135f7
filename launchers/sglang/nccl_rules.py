"""What goes wrong with NCCL settings that can be told without the hardware, and their canonical form.

NCCL 2.30 on one node, under SGLang 0.5.23. Nothing of it applies to a server of one rank.
"""

from __future__ import annotations

from collections.abc import Callable

from launchers.base import Phase
from launchers.sglang.nccl import (
    ALGORITHMS,
    P2P_LEVELS,
    PROTOCOLS,
    Selection,
    canonical_selection,
    parse_selection,
    usable,
)
from launchers.sglang.verdict import KILLED, Draft, Rejection

#: What a tensor-parallel server of SGLang calls.
_CALLED = {"allreduce": "AllReduce", "allgather": "AllGather", "broadcast": "Broadcast"}
_SELECTIONS = (("NCCL_ALGO", ALGORITHMS), ("NCCL_PROTO", PROTOCOLS))
#: The only flags that are looked at here.
NCCL_FLAGS = ("tp-size", "pp-size", "enable-nccl-nvls", "enable-symm-mem", "enable-deterministic-inference")
#: Old and new name of the same bound.
_RENAMED = {"NCCL_MIN_NCHANNELS": "NCCL_MIN_CTAS", "NCCL_MAX_NCHANNELS": "NCCL_MAX_CTAS"}
#: Overwritten by --enable-deterministic-inference with tp > 1 (SGLang 0.5.23, attention_hook.py).
DETERMINISTIC = ("NCCL_ALGO", *_RENAMED, *_RENAMED.values())


def _selection(draft: Draft, variable: str) -> Selection:
    known = dict(_SELECTIONS)[variable]
    return parse_selection(draft.env.get(variable) or ",".join(known), known)


def unreadable(draft: Draft) -> Rejection | None:
    """A list that NCCL cannot parse ends the start when its communicator is made."""
    for variable, known in _SELECTIONS:
        text = draft.env.get(variable)
        if not text:
            continue
        try:
            parse_selection(text, known)
        except ValueError as error:
            return Rejection(
                f"{variable}={text}: NCCL cannot read it ({error}). Write names out of "
                f"{', '.join(known.values())}, or a list such as 'ring,tree;allreduce:tree'.",
                f"NCCL error: invalid usage: {error}",
                KILLED,
                Phase.DISTRIBUTED_INIT,
            )
    return None


def unserved_collective(draft: Draft) -> Rejection | None:
    """NCCL has no fallback: a collective without an allowed algorithm fails when it is first called."""
    if not (draft.env.get("NCCL_ALGO") or draft.env.get("NCCL_PROTO")):
        return None
    algorithms, protocols = _selection(draft, "NCCL_ALGO"), _selection(draft, "NCCL_PROTO")
    for collective, called in _CALLED.items():
        if usable(collective, algorithms, protocols, _nvls(draft)):
            continue
        settings = " ".join(f"{v}={draft.env[v]}" for v, _ in _SELECTIONS if draft.env.get(v))
        return Rejection(
            f"{settings} leaves no algorithm for {collective}: NCCL does not fall back to the ring and "
            "fails at the first such call (Tree serves only all-reduce; NVLS, Collnet and PAT need Simple; NVLS "
            "needs enable-nccl-nvls). Name the collective, as in 'allreduce:tree', so that the others keep theirs.",
            f"No algorithm/protocol available for function {called}",
            KILLED,
            Phase.GRAPH_CAPTURE,
        )
    return None


def ll128_off_nvlink(draft: Draft) -> Rejection | None:
    """LL128 relies on 128-byte stores arriving whole, which only NVLink promises."""
    text = draft.env.get("NCCL_PROTO")
    if draft.nvlink or not text or not forces_ll128(text):
        return None
    return Rejection(
        f"NCCL_PROTO={text} forces LL128, which can corrupt data silently where GPUs are not joined by "
        "NVLink. Use LL or Simple, or '^LL128' to leave the choice to NCCL.",
        ours=True,
    )


def forces_ll128(protocols: str) -> bool:
    """Whether a value of NCCL_PROTO allows LL128 by name or by what it leaves, for all-reduces; False if unreadable."""
    try:
        return "ll128" in parse_selection(protocols, PROTOCOLS)["allreduce"]
    except ValueError:
        return False


NCCL_REJECTIONS: tuple[Callable[[Draft], Rejection | None], ...] = (
    unreadable,
    unserved_collective,
    ll128_off_nvlink,
)


def _nvls(draft: Draft) -> bool:
    # SGLang sets NCCL_NVLS_ENABLE=0 unless it is set, or either flag forces 1
    forced = draft.get("enable-nccl-nvls") or draft.get("enable-symm-mem")
    return bool(forced) or draft.env.get("NCCL_NVLS_ENABLE", "0") != "0"


def canonical_nccl(draft: Draft) -> None:
    """Spell equal NCCL settings alike and drop those that SGLang overwrites or sets by itself."""
    env = draft.env
    if draft.get("enable-deterministic-inference") and draft.nccl_ranks > 1:
        for name in DETERMINISTIC:
            env.pop(name, None)
    for variable, known in _SELECTIONS:
        if env.get(variable):
            env[variable] = canonical_selection(env[variable], known)
    for old, new in _RENAMED.items():
        if old in env and new not in env:
            env[new] = env.pop(old)
    level = env.get("NCCL_P2P_LEVEL", "").upper()
    if level in P2P_LEVELS:
        env["NCCL_P2P_LEVEL"] = level
    symmetric, nvls = draft.get("enable-symm-mem"), draft.get("enable-nccl-nvls")
    # forced by the flag, or equal to what SGLang sets when nothing is asked
    if symmetric or env.get("NCCL_CUMEM_ENABLE") == "0":
        env.pop("NCCL_CUMEM_ENABLE", None)
    if symmetric or nvls or env.get("NCCL_NVLS_ENABLE") == "0":
        env.pop("NCCL_NVLS_ENABLE", None)
