"""Which GPUs a server sees: CUDA_VISIBLE_DEVICES, always given as an explicit list in the host's order. Pure."""

from __future__ import annotations

from collections.abc import Sequence

#: Written by batch systems for a job without GPUs, and by people for none; CUDA stops at what is no GPU.
_NONE = ("nodevfiles", "none", "void", "-1")


def visible_gpus(inherited: str | None, wanted: int, names: Sequence[str]) -> str:
    """The value for a server of `wanted` GPUs: the first of those that the host shows, in the host's order.

    `inherited` is the host's own value: unset (None) shows all of `names`, the machine's GPUs in the driver's
    order; empty shows none. Raises ValueError where a GPU is named twice, is not there, or too few are shown.
    """
    shown = [str(index) for index in range(len(names))] if inherited is None else _listed(inherited, len(names))
    if len(shown) < wanted:
        where = "the machine has" if inherited is None else f"CUDA_VISIBLE_DEVICES={inherited!r} shows"
        raise ValueError(
            f"{wanted} GPUs are asked for, {where} {len(shown)}: lower node.gpus, or show more of the machine's "
            f"{len(names)}"
        )
    return ",".join(shown[:wanted])


def _listed(text: str, count: int) -> list[str]:
    """The GPUs of a list, as they are written there."""
    if text.strip() == "" or text.strip().lower() in _NONE:
        return []
    listed = [word.strip() for word in text.split(",")]
    seen: set[str] = set()
    for word in listed:
        number = str(int(word)) if word.isdecimal() else word
        if number in seen:
            raise ValueError(f"CUDA_VISIBLE_DEVICES={text!r} names GPU {word} twice: CUDA then shows none of them")
        seen.add(number)
        if word.isdecimal() and int(word) >= count:
            raise ValueError(
                f"CUDA_VISIBLE_DEVICES={text!r} names GPU {word}, but this machine's are "
                f"{f'0 to {count - 1}' if count else 'none'}: CUDA would hide it and all behind it"
            )
        if not word.isdecimal() and not word.upper().startswith(("GPU-", "MIG-")):
            raise ValueError(
                f"CUDA_VISIBLE_DEVICES={text!r}: {word!r} is no GPU; write numbers or UUIDs (GPU-..., MIG-...) "
                "with commas between"
            )
    return listed
