"""What the node shows when a server has ended: what a log alone cannot tell. None where it is unknown."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from launchers.gpus import Gpu, gpus_now
from launchers.proc import has_marker

#: A GPU that holds more than this beyond what its processes are known to hold has a holder who is not shown.
_UNEXPLAINED_MIB = 2048
_SHM = "/dev/shm"


@dataclass(frozen=True)
class GpuHolder:
    """Someone who holds memory of a GPU."""

    #: None where a container does not show it.
    pid: int | None
    #: Whether it carries the study's marker; None where that cannot be seen.
    ours: bool | None


@dataclass(frozen=True)
class NodeFacts:
    """The node after a server's end; the server's own processes are left out."""

    gpu_holders: tuple[GpuHolder, ...] | None = None
    #: Free bytes of /dev/shm.
    shm_free_bytes: int | None = None
    #: Processes that the kernel has killed for want of memory since the start.
    oom_kills: int | None = None


UNKNOWN = NodeFacts()


class FactsReader:
    """Made before a server starts, called once it has ended: some facts are what came since."""

    def __init__(self, study_marker: str, *, gpus: bool) -> None:
        """`study_marker` as `NAME=value`; without `gpus` no driver is asked."""
        self._marker = study_marker.encode()
        self._gpus = gpus
        self._oom_kills = _oom_kills()

    def __call__(self, own: Collection[int]) -> NodeFacts:
        """The facts now; `own` are the processes of the server itself."""
        seen = gpus_now() if self._gpus else ()
        before, now = self._oom_kills, _oom_kills()
        return NodeFacts(
            holders(seen, own, self._is_ours) if seen else None,
            _shm_free_bytes(),
            None if before is None or now is None else now - before,
        )

    def _is_ours(self, pid: int) -> bool | None:
        # In a container the driver tells the host's pids.
        return has_marker(pid, self._marker) if Path(f"/proc/{pid}").exists() else None


def holders(gpus: Iterable[Gpu], own: Collection[int], is_ours: Callable[[int], bool | None]) -> tuple[GpuHolder, ...]:
    """Who else than the pids `own` holds memory of these GPUs, by pid; one without a pid for memory of no known one."""
    found: dict[int | None, bool | None] = {}
    for gpu in gpus:
        known_mib = sum(process.used_mib or 0 for process in gpu.processes)
        told = all(process.used_mib is not None for process in gpu.processes)
        if told and gpu.used_mib - known_mib > _UNEXPLAINED_MIB:
            found[None] = None
        found |= {process.pid: is_ours(process.pid) for process in gpu.processes if process.pid not in own}
    return tuple(GpuHolder(pid, found[pid]) for pid in sorted(found, key=lambda pid: (pid is None, pid)))


def _oom_kills() -> int | None:
    """Processes killed by the kernel for want of memory since the machine started (proc_vmstat(5))."""
    with contextlib.suppress(OSError, ValueError), open("/proc/vmstat") as file:
        for line in file:
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return None


def _shm_free_bytes() -> int | None:
    with contextlib.suppress(OSError):
        status = os.statvfs(_SHM)
        return status.f_bavail * status.f_frsize
    return None
