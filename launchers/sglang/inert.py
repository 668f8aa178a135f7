"""Knobs of a search space that cannot act on this machine, told before anything starts. Pure.

Facts of NCCL 2.30 and SGLang 0.5.23; see `nccl_rules`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from launchers.sglang.nccl_rules import DETERMINISTIC, forces_ll128
from launchers.sglang.rules import ALIASES

#: Every value that a setting may get in a sweep; more than one makes it a knob.
Values = Mapping[str, Sequence[Any]]

_SELECTIONS = ("NCCL_ALGO", "NCCL_PROTO")


def inert_knobs(flags: Values, env: Values, *, nvlink: bool | None) -> list[str]:
    """One sentence for each knob, or group of them, that changes nothing or is refused; empty where all act.

    `nvlink`: whether every pair of the GPUs is joined by NVLink; None where that is not known.
    """
    flags = {ALIASES.get(name, name): values for name, values in flags.items()}
    knobs = [name for name in env if name.startswith("NCCL_") and _is_knob(env[name])]
    if _most(flags, "tp-size") * _most(flags, "pp-size") == 1:
        if not knobs:
            return []
        return [
            f"{_named(knobs)}: the server has one rank (tp-size x pp-size is 1) and uses no NCCL. Take "
            f"{'it' if len(knobs) == 1 else 'them'} out of the space."
        ]
    found = []
    between_nodes = [name for name in knobs if name.startswith(("NCCL_IB_", "NCCL_NET"))]
    if between_nodes and _most(flags, "nnodes") == 1:
        found.append(f"{_named(between_nodes)}: only nodes talk to each other that way, and the server has one.")
    if _always(flags, "enable-deterministic-inference"):
        overwritten = [name for name in knobs if name in DETERMINISTIC]
        if overwritten:
            found.append(f"{_named(overwritten)}: enable-deterministic-inference overwrites what is set.")
    selecting = [name for name in knobs if name in _SELECTIONS]
    if nvlink:
        if selecting and not _always(flags, "disable-custom-all-reduce"):
            found.append(
                f"{_named(selecting)}: with NVLink, SGLang's custom all-reduce serves most of decode and NCCL what "
                "is left, so little may change; disable-custom-all-reduce would leave all to NCCL."
            )
        return found
    refused = [str(value) for value in env.get("NCCL_PROTO", ()) if value is not None and forces_ll128(str(value))]
    if refused:
        path = "whether they are is not known" if nvlink is None else "these are joined by PCIe"
        found.append(
            f"NCCL_PROTO={', '.join(refused)} is refused and never started: LL128 is safe only between GPUs that "
            f"are joined by NVLink, and {path}."
        )
    if nvlink is False:
        if "NCCL_NVLS_ENABLE" in knobs:
            found.append("NCCL_NVLS_ENABLE: NVLink SHARP needs NVLink, and these GPUs are joined by PCIe.")
        ipc = any(str(value) == "1" for value in env.get("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", ()))
        if _is_knob(flags.get("disable-custom-all-reduce", ())) and _least(flags, "tp-size") > 2 and not ipc:
            found.append(
                "disable-custom-all-reduce: on more than two GPUs that are joined by PCIe only, SGLang has it off "
                "by itself."
            )
    return found


def _is_knob(values: Sequence[Any]) -> bool:
    return len({str(value) for value in values}) > 1


def _named(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'does' if len(names) == 1 else 'do'} nothing here" if names else ""


def _numbers(flags: Values, name: str) -> list[int]:
    return [int(value) for value in flags.get(name, ()) if str(value).isdecimal()] or [1]


def _most(flags: Values, name: str) -> int:
    return max(_numbers(flags, name))


def _least(flags: Values, name: str) -> int:
    return min(_numbers(flags, name))


def _always(flags: Values, name: str) -> bool:
    values = flags.get(name, ())
    return bool(values) and all(value is True for value in values)
