"""The guard: a small process between an owner and its server, which outlives neither.

It starts the server in a session of its own and holds one end of a pipe. A line on the pipe asks for a stop;
the pipe closing means the owner is dead (KILL included), which is the same request. Either way the whole
group is stopped, what changed session or was reparented is found by a marker in its environment, and zombies
are reaped. Run by path with only the standard library, so that it starts in tens of milliseconds:

    python -I guard.py LOG_FILE MARKER=VALUE -- COMMAND...

It prints one JSON object a line: {"pid"}, {"exit"}, {"stopped"}. With `--reap` it starts nothing: the
owner names processes on the pipe, and when it closes, those that do not end by themselves are killed.
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

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
#: Grace of a server whose owner died: nobody waits for a clean end, but requests get an answer.
ORPHAN_GRACE_S = 2.0
KILL_WAIT_S = 10.0


def say(**message: object) -> None:
    """Tell the owner; a dead owner does not matter."""
    with contextlib.suppress(OSError):
        os.write(1, (json.dumps(message) + "\n").encode())


def state_of(pid: int) -> str | None:
    """The process's state letter, None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rsplit(b")", 1)[1].split()[0].decode()
    except (OSError, IndexError):
        return None


def group_of(pid: int) -> int | None:
    """The process's group, None when there is no such process."""
    try:
        return os.getpgid(pid)
    except OSError:
        return None


def members(group: int, marker: bytes) -> set[int]:
    """Living processes of the group or with the marker in their environment. A zombie is dead."""
    found = set()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        pid = int(name)
        ours = group_of(pid) == group
        if not ours:
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    ours = marker in file.read().split(b"\0")
            except OSError:
                continue
        if ours and state_of(pid) not in (None, "Z", "X"):
            found.add(pid)
    return found


def signal_all(pids: set[int], number: int) -> None:
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
        # Without this the server would go on when the guard itself is killed.
        die = ctypes.CDLL(None).prctl
        name, _, value = marker.partition("=")
        with open(log, "ab", buffering=0) as out:
            self.server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, name: value},
                preexec_fn=lambda: die(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
            )
        self.exit_code: int | None = None

    def reap(self) -> None:
        """Collect every dead child; the server's own exit code is told once."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.server.pid:
                self.exit_code = os.waitstatus_to_exitcode(status)
                self.server.returncode = self.exit_code
                say(exit=self.exit_code)

    def wait(self, limit_s: float) -> set[int]:
        """Living members after at most `limit_s` seconds; returns as soon as none is left."""
        deadline = time.monotonic() + limit_s
        while True:
            self.reap()
            left = members(self.server.pid, self.marker)
            if not left or time.monotonic() >= deadline:
                return left
            time.sleep(0.02)

    def stop(self, grace_s: float) -> None:
        """TERM to the server, grace, KILL to every member until none is left; then the report."""
        began = time.monotonic()
        signals = []
        left = self.wait(0)
        if self.server.pid in left:
            signals.append("SIGTERM")
            signal_all({self.server.pid}, signal.SIGTERM)
            # A stopped process gets TERM only once it goes on.
            signal_all(left, signal.SIGCONT)
            deadline = began + grace_s
            while self.server.pid in left and time.monotonic() < deadline:
                left = self.wait(min(0.05, max(0.0, deadline - time.monotonic())))
        end = time.monotonic() + KILL_WAIT_S
        while left and time.monotonic() < end:
            if "SIGKILL" not in signals:
                signals.append("SIGKILL")
            signal_all(left, signal.SIGKILL)
            left = self.wait(0.2)
        took_s = time.monotonic() - began
        report = {
            "exit_code": self.exit_code,
            "took_s": took_s,
            "signals": signals,
            "survivors": sorted(left),
        }
        say(stopped=report)

    def run(self) -> None:
        """Serve the pipe until a stop is asked or the owner is gone."""
        say(pid=self.server.pid)
        wake, wake_in = os.pipe()
        os.set_blocking(wake_in, False)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            self.reap()
            ready, _, _ = select.select([0, wake], [], [])
            if wake in ready:
                os.read(wake, 4096)
            if 0 in ready:
                request = os.read(0, 256)
                self.stop(float(request.split()[-1]) if request else ORPHAN_GRACE_S)
                return


def start_time(pid: int) -> str | None:
    """When the process began, in clock ticks since boot: with the pid it names one process for ever."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rsplit(b")", 1)[1].split()[19].decode()
    except (OSError, IndexError):
        return None


def reap_named() -> None:
    """Read `PID START_TIME` lines until the owner ends; then see to it that those processes end as well."""
    named: dict[int, str] = {}
    with os.fdopen(0, "r") as pipe:
        for line in pipe:
            pid, began = line.split()
            named[int(pid)] = began

    def left() -> set[int]:
        same = {pid for pid, began in named.items() if start_time(pid) == began}
        return {pid for pid in same if state_of(pid) not in (None, "Z", "X")}

    began = time.monotonic()
    while left() and time.monotonic() < began + ORPHAN_GRACE_S:
        time.sleep(0.05)
    while left() and time.monotonic() < began + ORPHAN_GRACE_S + KILL_WAIT_S:
        signal_all(left(), signal.SIGKILL)
        time.sleep(0.05)


def main() -> None:
    """Start what the command line names and guard it."""
    # Ray blocks INT in what it starts; the server shall not inherit that.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if sys.argv[1] == "--reap":
        reap_named()
        return
    split = sys.argv.index("--")
    log, marker = sys.argv[1:split]
    # The owner's terminal and group are none of the server's business. A handler, not SIG_IGN: the server
    # would inherit that and ignore TERM.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    try:
        guard = Guard(log, marker, sys.argv[split + 1 :])
    except OSError as error:
        say(failed=str(error))
        return
    guard.run()


if __name__ == "__main__":
    main()
