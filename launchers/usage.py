"""What the processes of a start use, as /proc and the GPUs' driver tell it (proc_pid_stat(5), proc_pid_io(5))."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable

from launchers.gpus import gpus_now
from launchers.movement import Look, Usage

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_ASK_GPUS_S = 10.0


class Looker:
    """Looks at the processes of a start, and at the memory of the machine's GPUs. A context manager.

    The GPUs are asked now and then in a thread: the driver's tool takes seconds, and hangs with its driver.
    """

    def __init__(self, members: Callable[[], Iterable[int]], gpus: bool) -> None:
        """`members` tells the processes; without `gpus` no driver is asked."""
        self._members = members
        self._gpu_mib: dict[int, int] = {}
        self._over = threading.Event()
        if gpus:
            threading.Thread(target=self._ask_gpus, name="gpu memory", daemon=True).start()

    def __call__(self) -> Look:
        """What there is now."""
        return Look(usage_of(self._members()), self._gpu_mib)

    def __enter__(self) -> Looker:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _ask_gpus(self) -> None:
        while not self._over.is_set():
            # A driver that did not answer has not changed anything.
            self._gpu_mib = {gpu.index: gpu.used_mib for gpu in gpus_now()} or self._gpu_mib
            self._over.wait(_ASK_GPUS_S)


def usage_of(pids: Iterable[int]) -> dict[int, Usage]:
    """By pid; a process that has ended meanwhile is left out."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError, IndexError):
            found[pid] = _usage(pid)
    return found


def _usage(pid: int) -> Usage:
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The name, in brackets, may hold anything: fields are counted from behind it, the state being number 3.
        fields = file.read().rsplit(b")", 1)[1].split()

    def field(number: int) -> int:
        return int(fields[number - 3])

    return Usage(
        cpu_s=(field(14) + field(15)) / _TICKS_PER_S,
        read_bytes=_read_bytes(pid),
        pages_fetched=field(12),
        resident_bytes=field(24) * _PAGE_BYTES,
    )


def _read_bytes(pid: int) -> int | None:
    """Read by calls, also where the page cache had it, and from disks for mapped files; None without permission."""
    told = {}
    try:
        with open(f"/proc/{pid}/io") as file:
            for line in file:
                name, _, value = line.partition(":")
                told[name] = int(value)
    except OSError:
        return None
    return told["rchar"] + told["read_bytes"]
