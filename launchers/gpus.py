"""The GPUs of this machine, as NVIDIA's driver tells them."""

from __future__ import annotations

import csv
import shutil
import subprocess
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from launchers import proc

#: A cold driver that wakes eight GPUs takes tens of seconds; one that hangs shall not hang its caller.
_TOOL_TIMEOUT_S = 60.0
#: What the driver itself takes and gives back on its own, per GPU.
_SLACK_MIB = 64
_POLL_S = 0.5
#: A server's memory is given back by the kernel after its last process has gone; seconds for hundreds of GB.
RELEASE_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class GpuProcess:
    """A process that computes on a GPU."""

    #: As the driver sees it: inside a container it can be the host's pid, or the process is not shown at all.
    pid: int
    #: None where the driver does not tell.
    used_mib: int | None


@dataclass(frozen=True)
class Gpu:
    """One GPU at one moment."""

    index: int
    uuid: str
    name: str
    used_mib: int
    total_mib: int
    processes: tuple[GpuProcess, ...] = ()


def gpu_names() -> tuple[str, ...]:
    """The name of each GPU in the driver's order; empty where there is no driver or no GPU."""
    return tuple(row[0] for row in _table(_ask("--query-gpu=name")) if row)


def gpus_now() -> tuple[Gpu, ...]:
    """Memory and processes of each GPU; empty where there is no driver or no GPU.

    Takes a tenth of a second to seconds: on a node of eight, ask from a thread of its own.
    """
    told = _ask("--query-gpu=index,uuid,name,memory.used,memory.total")
    return read_gpus(told, _ask("--query-compute-apps=gpu_uuid,pid,used_memory") if told else "")


def read_gpus(gpus: str, processes: str) -> tuple[Gpu, ...]:
    """From the tool's two tables: index, uuid, name, MiB used, MiB in all; and uuid, pid, MiB used of each process.

    A line of another form (a message of the driver, a GPU that was lost) is left out.
    """
    found: dict[str, list[GpuProcess]] = {}
    for row in _table(processes):
        if len(row) == 3 and row[1].isdigit():
            # "[N/A]" and "[Insufficient Permissions]" stand for what it does not tell.
            used_mib = int(row[2]) if row[2].isdigit() else None
            found.setdefault(row[0], []).append(GpuProcess(int(row[1]), used_mib))
    return tuple(
        Gpu(int(row[0]), row[1], row[2], int(row[3]), int(row[4]), tuple(found.get(row[1], ())))
        for row in _table(gpus)
        if len(row) == 5 and all(row[column].isdigit() for column in (0, 3, 4))
    )


def unclaimed_mib(gpus: Iterable[Gpu], others: Collection[int]) -> dict[str, int]:
    """MiB in use of each GPU by its uuid, without what `others`, other programs by their pids, hold of it."""
    return {
        gpu.uuid: gpu.used_mib - sum(process.used_mib or 0 for process in gpu.processes if process.pid in others)
        for gpu in gpus
    }


def memory_left_mib(before: Mapping[str, int], now: Mapping[str, int]) -> int:
    """MiB of `unclaimed_mib` that there are now and were not before, over the GPUs that both know.

    A difference within the driver's own comings and goings is 0.
    """
    grown_mib = [now[uuid] - before[uuid] for uuid in before.keys() & now.keys()]
    return sum(mib for mib in grown_mib if mib > _SLACK_MIB)


class GpuBaseline:
    """What the GPUs hold before a server starts; read in a thread, since the tool takes longer than a fork.

    A process that the driver tells and nobody finds here may be ours under its number outside the container, so
    only those that live here are other programs.
    """

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self._reading = threading.Thread(target=self._read, name="gpus", daemon=True)
        self._reading.start()

    def _read(self) -> None:
        self._before = _unclaimed_now()

    def wait_left_mib(self) -> int | None:
        """Wait until the memory is back; what is not, in MiB. None where there are no GPUs to read.

        For a server whose processes have ended.
        """
        self._reading.join()
        end = time.monotonic() + RELEASE_TIMEOUT_S
        while self._before and (now := _unclaimed_now()):
            left_mib = memory_left_mib(self._before, now)
            if not left_mib or time.monotonic() > end:
                return left_mib
            time.sleep(_POLL_S)
        return None


def _unclaimed_now() -> dict[str, int]:
    gpus = gpus_now()
    pids = {process.pid for gpu in gpus for process in gpu.processes}
    return unclaimed_mib(gpus, set(filter(proc.is_alive, pids)))


def _ask(query: str) -> str:
    """The tool's answer as comma-separated values; empty where there is none."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    try:
        told = subprocess.run(
            [tool, query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=_TOOL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stdout if told.returncode == 0 else ""


def _table(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in row] for row in csv.reader(text.splitlines(), skipinitialspace=True)]
