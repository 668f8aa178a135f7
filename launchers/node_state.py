"""Looking at the node: its GPUs, /dev/shm, disks, memory and limits. Changes nothing (Linux: /proc, statvfs)."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterable
from pathlib import Path

import psutil

from launchers.gpus import Gpu, gpus_now
from launchers.preflight import NodeState

_SHM = Path("/dev/shm")


def look_at_node(visible: str | None, folders: Iterable[Path]) -> NodeState:
    """The node now. `visible` is the server's CUDA_VISIBLE_DEVICES; None: no GPU concerns it."""
    gpus = shown_gpus(gpus_now(), visible) if visible else ()
    memory = psutil.virtual_memory()
    shm = _space(_SHM)
    return NodeState(
        gpus=gpus,
        commands={p.pid: name for gpu in gpus for p in gpu.processes if (name := _command(p.pid)) is not None},
        shm_bytes=shm[0] if shm else None,
        shm_free_bytes=shm[1] if shm else None,
        disk_free_bytes={str(folder): space[1] for folder in folders if (space := _space(folder)) is not None},
        memory_available_bytes=memory.available,
        memory_total_bytes=memory.total,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE),
        locked_bytes=resource.getrlimit(resource.RLIMIT_MEMLOCK),
    )


def shown_gpus(gpus: Iterable[Gpu], visible: str) -> tuple[Gpu, ...]:
    """Those that a value of CUDA_VISIBLE_DEVICES names, by number or by the beginning of their UUID, in its order."""
    words = [word.strip() for word in visible.split(",") if word.strip()]
    known = tuple(gpus)
    return tuple(
        gpu
        for word in words
        for gpu in known
        if (int(word) == gpu.index if word.isdecimal() else gpu.uuid.startswith(word))
    )


def _space(folder: Path) -> tuple[int, int] | None:
    """Bytes in all and free to us; of the nearest folder above where it is still to be made."""
    for place in (folder, *folder.absolute().parents):
        with contextlib.suppress(OSError):
            told = os.statvfs(place)
            return told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize
    return None


def _command(pid: int) -> str | None:
    """The name alone: arguments may hold secrets."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return None
