"""Whether a start still moves. Pure: what was seen of it goes in with the time, how long it has stood still comes out.

A load of 547 GB, a kernel compiler or the conversion of weights may print nothing for half an hour, and a rank
that waits for a dead one prints nothing for ever. What tells them apart is what their processes do. Any of these
is movement: a line in the log (a further weight file has one), something read from a disk, a page of a mapped file
fetched, memory taken on the host, taken or given back on a GPU, a process that came or went.

CPU time is the exception. Compilers and converters show nothing else for a while, but so do ranks that spin in
NCCL at 100 % because one of them is gone. So CPU time alone keeps a start alive, four times as long as standing
still may take (40 minutes by default); not at all during the distributed init, where nothing computes; and without
a limit of its own where the server has said that it compiles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from launchers.base import Phase, StartProgress

#: How much longer than stillness CPU time alone may last.
CPU_ALONE = 4.0
#: One process at less than this share of a core idles: heartbeats and timers take about 0.5 %.
_BUSY_CORES = 0.05
#: Changes that count, so that no timer or allocator's breath does: bytes read, memory on the host, on a GPU.
_READ_BYTES = _RESIDENT_BYTES = 1 << 20
_PAGES_FETCHED = 16
_GPU_MIB = 2
#: Time between two looks beyond this was not watched (the watcher itself was stopped), and proves nothing.
_WATCHED_S = 60.0


@dataclass(frozen=True)
class Usage:
    """What one process has used since it began, but for the memory, which it holds now."""

    cpu_s: float
    #: From disks and files; None where the kernel does not say.
    read_bytes: int | None
    #: Pages of mapped files that had to be read from a disk.
    pages_fetched: int
    resident_bytes: int


@dataclass(frozen=True)
class Look:
    """A start's processes and GPUs at one instant."""

    processes: Mapping[int, Usage]
    #: Used memory by GPU; empty where there is none, or none can be asked.
    gpu_mib: Mapping[int, int] = field(default_factory=dict)


class Movement:
    """Feed it what is seen, at any pace; it tells for how long nothing has moved. `now_s` is of one clock."""

    def __init__(self, now_s: float) -> None:
        self._seen_s = now_s
        #: Watched seconds without any movement, and without any but CPU time.
        self.still_s = 0.0
        self.only_cpu_s = 0.0
        #: What moved last, other than the CPU.
        self.last = "its start"
        self._lines = 0
        self._mark = Look({})
        self._before: Look | None = None
        self._before_s = now_s

    def tick(self, lines: int, now_s: float) -> None:
        """Time goes on. `lines` is how many the server has written of its own accord."""
        passed_s = min(max(0.0, now_s - self._seen_s), _WATCHED_S)
        self._seen_s = now_s
        self.still_s += passed_s
        self.only_cpu_s += passed_s
        if lines > self._lines:
            self._lines = lines
            self._moved("its log")

    def look(self, look: Look, now_s: float) -> None:
        """What its processes have used by now; to be called after `tick`."""
        what = _change(self._mark, look)
        if what:
            self._moved(what)
            self._mark = look
        before, self._before = self._before, look
        passed_s, self._before_s = now_s - self._before_s, now_s
        if before is not None and passed_s > 0 and _busiest_s(before, look) / passed_s >= _BUSY_CORES:
            self.still_s = 0.0

    def _moved(self, what: str) -> None:
        self.still_s = self.only_cpu_s = 0.0
        self.last = what

    def stalled(self, progress: StartProgress, limit_s: float) -> str | None:
        """What has not moved for how long, once that is longer than `limit_s` allows; None while it moves."""
        if self.still_s >= limit_s:
            return (
                f"nothing moved for {self.still_s:.0f} s: no log line, disk read, CPU time or change of memory; "
                f"last was {self.last}"
            )
        if self.only_cpu_s >= limit_s * _cpu_alone(progress):
            return (
                f"nothing but CPU time moved for {self.only_cpu_s:.0f} s, as when ranks wait for each other for "
                f"ever; last was {self.last}"
            )
        return None


def _cpu_alone(progress: StartProgress) -> float:
    """How many times the limit CPU time alone may last."""
    if progress.note is not None:
        return math.inf
    return 1.0 if progress.phase is Phase.DISTRIBUTED_INIT else CPU_ALONE


def _change(mark: Look, now: Look) -> str | None:
    """What is different enough from the mark to be movement."""
    if mark.processes.keys() != now.processes.keys():
        return "its processes"
    pairs = [(mark.processes[pid], usage) for pid, usage in now.processes.items()]
    if sum((new.read_bytes or 0) - (old.read_bytes or 0) for old, new in pairs) >= _READ_BYTES:
        return "disk reads"
    if sum(new.pages_fetched - old.pages_fetched for old, new in pairs) >= _PAGES_FETCHED:
        return "disk reads"
    # Growth alone: a kernel short of memory takes pages away from a process that does nothing.
    if any(new.resident_bytes - old.resident_bytes >= _RESIDENT_BYTES for old, new in pairs):
        return "memory"
    gpus = mark.gpu_mib.keys() | now.gpu_mib.keys()
    if any(abs(now.gpu_mib.get(gpu, 0) - mark.gpu_mib.get(gpu, 0)) >= _GPU_MIB for gpu in gpus):
        return "GPU memory"
    return None


def _busiest_s(before: Look, now: Look) -> float:
    """CPU seconds of the process that used most."""
    used = (new.cpu_s - before.processes[pid].cpu_s for pid, new in now.processes.items() if pid in before.processes)
    return max(used, default=0.0)
