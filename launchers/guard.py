"""The guard: a small process between an owner and its server, which outlives neither.

It starts the server in a session of its own and holds one end of a pipe. A line on the pipe asks for a stop;
the pipe closing means the owner is dead (KILL included), which is the same request. Either way every member
of the server is stopped (`members` says what that is) and the guard tells what is left. It sleeps in between:
nothing is polled. Run by path with only the standard library, so that it starts in tens of milliseconds:

    python -I guard.py LOG_FILE MARKER=VALUE -- COMMAND...

It prints one JSON object a line: {"pid", "began"}, {"exit"}, {"stopped"}. With `--reap` it starts nothing:
the owner names processes on the pipe, and when it closes, those that do not end by themselves are killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import NamedTuple

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
#: Grace of a server whose owner died: nobody waits for a clean end, but requests get an answer.
ORPHAN_GRACE_S = 2.0
KILL_WAIT_S = 10.0
_POLL_S = 0.02


def say(**message: object) -> None:
    """Tell the owner; a dead owner does not matter."""
    with contextlib.suppress(OSError):
        os.write(1, (json.dumps(message) + "\n").encode())


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


class Guard:
    """Owns one server from its start to the proof that it is gone."""

    def __init__(self, log: str, marker: str, command: list[str]) -> None:
        self.marker = marker.encode()
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._inputs = [0, self._wake_on_child()]
        self._asked_s: float | None = None
        # The pipe alone would not do: a process that the owner forked holds its other end too.
        with contextlib.suppress(OSError, AttributeError):
            self._inputs.append(os.pidfd_open(os.getppid()))
        name, _, value = marker.partition("=")
        with open(log, "ab", buffering=0) as out:
            self.server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, name: value},
                # Without this the server would go on when the guard itself is killed.
                preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
            )
        self.exit_code: int | None = None
        seen = see(self.server.pid)
        say(pid=self.server.pid, began=seen.began if seen else None)

    @staticmethod
    def _wake_on_child() -> int:
        wake, wake_in = os.pipe()
        os.set_blocking(wake_in, False)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        return wake

    def run(self) -> None:
        """Sleep until a stop is asked or the owner is gone, and stop the server."""
        while self._asked_s is None:
            self.listen(None)
        self.stop(self._asked_s)

    def listen(self, limit_s: float | None) -> None:
        """Sleep until a child ends or the owner speaks or dies; None: as long as it takes."""
        self.reap()
        pipe, wake, *owner = self._inputs
        ready, _, _ = select.select([fd for fd in self._inputs if fd >= 0], [], [], limit_s)
        if wake in ready:
            os.read(wake, 4096)
            self.reap()
        if pipe in ready:
            request = os.read(pipe, 256)
            self._ask(float(request.split()[-1]) if request else ORPHAN_GRACE_S)
            if not request:
                self._inputs[0] = -1
        if owner and owner[0] in ready:
            self._ask(ORPHAN_GRACE_S)
            del self._inputs[2]

    def _ask(self, grace_s: float) -> None:
        """The shortest grace asked for counts: an owner may die while it waits for a stop."""
        self._asked_s = grace_s if self._asked_s is None else min(self._asked_s, grace_s)

    def reap(self) -> None:
        """Note the server's exit code, which is told once, and collect other dead children.

        The server itself stays a zombie until the end: its pid, which names its group, cannot be used again.
        """
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        if self.exit_code is None:
            ended = os.waitid(os.P_PID, self.server.pid, flags)
            if ended is not None:
                self.exit_code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
                say(exit=self.exit_code)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, flags)) and ended.si_pid != self.server.pid:
                os.waitpid(ended.si_pid, os.WNOHANG)

    def living(self) -> set[int]:
        """Living members. That there are none is believed when it was seen twice: a fork may slip by once."""
        for _ in range(2):
            self.reap()
            seen = see_all()
            found = members(self.server.pid, None, self.marker, os.getpid(), seen)
            if found:
                return found
            for process in seen.values():
                if process.parent == os.getpid() and process.pid != self.server.pid:
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(process.pid, os.WNOHANG)
        return set()

    def stop(self, grace_s: float) -> None:
        """TERM to the server, grace, KILL to every member until none is left; then the report."""
        began = time.monotonic()
        signals = []
        self.reap()
        if self.exit_code is None:
            signals.append("SIGTERM")
            signal_all({self.server.pid}, signal.SIGTERM)
            # A stopped process gets TERM only once it goes on.
            signal_all(self.living(), signal.SIGCONT)
            self._asked_s = grace_s
            while self.exit_code is None:
                left_s = began + self._asked_s - time.monotonic()
                if left_s <= 0:
                    break
                self.listen(left_s)
        end = time.monotonic() + KILL_WAIT_S
        left = self.living()
        while left and time.monotonic() < end:
            if "SIGKILL" not in signals:
                signals.append("SIGKILL")
            signal_all(left, signal.SIGKILL)
            time.sleep(_POLL_S)
            left = self.living()
        self.reap()
        if not left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.server.pid, os.WNOHANG)
        took_s = time.monotonic() - began
        say(
            stopped={
                "exit_code": self.exit_code,
                "took_s": took_s,
                "signals": signals,
                "survivors": sorted(left),
            }
        )


def reap_named() -> None:
    """Read `PID BEGAN` lines until the owner ends; then see to it that those processes end as well."""
    named: dict[int, int] = {}
    with os.fdopen(0, "r") as pipe:
        for line in pipe:
            pid, began = map(int, line.split())
            named[pid] = began

    def left() -> set[int]:
        seen = filter(None, map(see, named))
        return {process.pid for process in seen if process.alive and process.began == named[process.pid]}

    opened = time.monotonic()
    while left() and time.monotonic() < opened + ORPHAN_GRACE_S:
        time.sleep(_POLL_S)
    while (found := left()) and time.monotonic() < opened + ORPHAN_GRACE_S + KILL_WAIT_S:
        signal_all(found, signal.SIGKILL)
        time.sleep(_POLL_S)


def main() -> None:
    """Start what the command line names and guard it."""
    # Ray blocks INT in what it starts; the server shall not inherit that.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # The owner's terminal and group are none of the server's business. A handler, not SIG_IGN: the server
    # would inherit that and ignore TERM.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    if sys.argv[1] == "--reap":
        reap_named()
        return
    split = sys.argv.index("--")
    log, marker = sys.argv[1:split]
    try:
        guard = Guard(log, marker, sys.argv[split + 1 :])
    except OSError as error:
        say(failed=str(error))
        return
    guard.run()


if __name__ == "__main__":
    main()
