"""The processes of this machine as /proc shows them, and which of them belong to a server.

Of the standard library only: the guard uses it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Seen(NamedTuple):
    """A process as /proc/PID/stat shows it (proc_pid_stat(5))."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    threads: int
    #: Clock ticks since boot. With the pid it names one process for ever; a pid alone is used again.
    began: int

    @property
    def alive(self) -> bool:
        """A zombie is dead, unless only its main thread has ended."""
        return self.state not in "ZXx" or (self.state == "Z" and self.threads > 1)


def see(pid: int) -> Seen | None:
    """The process, None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            words = file.read(4096).rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return None
    parent, group, session = map(int, words[1:4])
    return Seen(pid, words[0].decode(), parent, group, session, int(words[17]), int(words[19]))


def see_all() -> dict[int, Seen]:
    """Every process of the machine by its pid, the dead ones too."""
    seen = (see(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in seen if process is not None}


def is_alive(pid: int) -> bool:
    """Whether the process lives; a zombie does not."""
    process = see(pid)
    return process is not None and process.alive


def still_living(processes: Mapping[int, int]) -> set[int]:
    """Which of these live, given when each began by its pid; a later process with the same pid is another one."""
    seen = filter(None, map(see, processes))
    return {process.pid for process in seen if process.alive and process.began == processes[process.pid]}


def has_marker(pid: int, marker: bytes) -> bool:
    """Whether `NAME=value` is in the environment that the process was started with, as far as one may see."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return marker in file.read().split(b"\0")
    except OSError:
        return False


def members(
    server: int, began: int | None, marker: bytes, guard: int | None, seen: dict[int, Seen] | None = None
) -> set[int]:
    """Living processes of a server, found in four ways, since each one alone has a hole.

    Its group and its session (a child can leave both); the guard's descendants, which orphans stay as long
    as the guard lives, being the subreaper; and the marker in the environment (which a process that writes a
    long title destroys: SGLang's schedulers and Ray's agents do). `began` tells the server's own group from
    one of a later process with the same pid.
    """
    seen = see_all() if seen is None else seen
    leader = seen.get(server)
    reused = leader is not None and began is not None and leader.began != began
    found = set() if guard is None else descendants(guard, seen)
    for process in seen.values():
        if process.pid in found or process.pid in (guard, os.getpid()):
            continue
        same = not reused and server in (process.pid, process.group, process.session)
        if process.alive and (same or has_marker(process.pid, marker)):
            found.add(process.pid)
    return {pid for pid in found if seen[pid].alive}


def descendants(root: int, seen: dict[int, Seen]) -> set[int]:
    """Children of the process and theirs, dead ones too."""
    children: dict[int, list[int]] = {}
    for process in seen.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    queue = [root]
    while queue:
        for pid in children.get(queue.pop(), []):
            if pid not in found:
                found.add(pid)
                queue.append(pid)
    return found


def signal_all(pids: Iterable[int], number: int) -> None:
    """Signal each; one that is gone already is no error."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)
