"""The guard: a small process between an owner and its server, which outlives neither.

It starts the server in a session of its own and holds one end of a pipe. A line on the pipe asks for a stop;
the pipe closing means the owner is dead (KILL included), which is the same request. Either way every member
of the server is stopped (`proc.members` says what that is), its shared memory and its private folder are
removed, and the guard tells what is left. What the server prints comes through the guard, which blots out
secrets before they reach the disk. It sleeps in between: nothing is polled. Run by path with only the standard
library, so that it starts in tens of milliseconds:

    python -I guard.py COMMAND...

The first line on the pipe is an `Order` in JSON, since a command line can be read by everyone. It prints one
JSON object a line: {"guard", "pid", "began"}, {"exit"}, {"stopped"}; {"failed"} where the command cannot be run,
and {"log_error"} once where the log can no longer be written. With `--reap` it starts nothing: the owner names
processes on the pipe, and when it closes, those that do not end by themselves are killed.
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
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    # Isolated and started by its path: its own package is found beside it, and no other of that name.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from launchers import private, proc
from launchers.ledger import Ledger, remove_files, watch_new_files
from launchers.log_pump import LogPump

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
#: Grace of a server whose owner died: nobody waits for a clean end, but requests get an answer.
ORPHAN_GRACE_S = 2.0
KILL_WAIT_S = 10.0
_POLL_S = 0.02
#: How often its members are noted while the server prints, and while files appear in shared memory; less often
#: where that takes long, so that it never takes more than a share of a core.
_PRINTED, _APPEARED = (1.0, 0.02), (0.05, 0.2)


def say(**message: object) -> None:
    """Tell the owner; a dead owner does not matter."""
    with contextlib.suppress(OSError):
        os.write(1, (json.dumps(message) + "\n").encode())


class Order(NamedTuple):
    """What an owner asks of a guard, beside the command."""

    log: str
    #: `NAME=value`, put into the server's environment.
    marker: str
    secrets: list[str]
    #: The start's private folder (`launchers.private`), which goes with the server; None for none.
    private: str | None


class Guard:
    """Owns one server from its start to the proof that it is gone."""

    def __init__(self, order: Order, command: list[str], owner: int | None) -> None:
        """`owner` is a pidfd. Raises OSError where the command cannot be run or the log not be written."""
        self._marker = order.marker.encode()
        self._private = None if order.private is None else Path(order.private)
        self._ledger = Ledger(None if self._private is None else private.ledger_of(self._private))
        self._noted_s = self._note_took_s = 0.0
        #: When to note next, although nothing happens until then.
        self._note_at_s: float | None = None
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._pump = LogPump(order.log, order.secrets, on_error=lambda text: say(log_error=text))
        self._wake = self._wake_on_child()
        self._inputs = {0, self._wake, self._pump.source}
        self._new_files = watch_new_files()
        if self._new_files is not None:
            self._inputs.add(self._new_files)
        self._owner = owner
        self._asked_s: float | None = None
        # The pipe alone would not do: a process that the owner forked holds its other end too.
        if owner is not None:
            self._inputs.add(owner)
        name, _, value = order.marker.partition("=")
        self.server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._pump.sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, name: value},
            # Without this the server would go on when the guard itself is killed.
            preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
        )
        os.close(self._pump.sink)
        self.exit_code: int | None = None
        seen = proc.see(self.server.pid)
        say(guard=os.getpid(), pid=self.server.pid, began=seen.began if seen else None)

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
        """Sleep until a child ends or prints, or the owner speaks or dies; None: as long as it takes."""
        self.reap()
        if self._note_at_s is not None:
            note_in_s = max(0.0, self._note_at_s - time.monotonic())
            limit_s = note_in_s if limit_s is None else min(limit_s, note_in_s)
        ready, _, _ = select.select(self._inputs, [], [], limit_s)
        if self._pump.source in ready:
            if not self._pump.carry():
                self._inputs.discard(self._pump.source)
            if time.monotonic() >= self._next_note_s(*_PRINTED):
                self.note()
        if self._new_files is not None and self._new_files in ready:
            os.read(self._new_files, 1 << 16)
            self._note_at_s = self._next_note_s(*_APPEARED)
        if self._note_at_s is not None and time.monotonic() >= self._note_at_s:
            self.note()
        if self._wake in ready:
            os.read(self._wake, 4096)
            self.reap()
        if 0 in ready:
            request = os.read(0, 256)
            self._ask(float(request.split()[-1]) if request else ORPHAN_GRACE_S)
            if not request:
                self._inputs.discard(0)
        if self._owner is not None and self._owner in ready:
            self._ask(ORPHAN_GRACE_S)
            self._inputs.discard(self._owner)

    def _ask(self, grace_s: float) -> None:
        """The shortest grace asked for counts: an owner may die while it waits for a stop."""
        self._asked_s = grace_s if self._asked_s is None else min(self._asked_s, grace_s)

    def note(self) -> None:
        """Write down who is there: a death takes with it what shows whose shared memory it was."""
        began_s = time.monotonic()
        seen = proc.see_all()
        self._ledger.note(seen[pid] for pid in proc.descendants(os.getpid(), seen))
        self._noted_s = time.monotonic()
        self._note_took_s = self._noted_s - began_s
        self._note_at_s = None

    def _next_note_s(self, every_s: float, share: float) -> float:
        return self._noted_s + max(every_s, self._note_took_s / share)

    def reap(self) -> None:
        """Note the server's exit code, which is told once, and collect other dead children.

        The server itself stays a zombie until the end: its pid, which names its group, cannot be used again.
        """
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        if self.exit_code is None:
            ended = os.waitid(os.P_PID, self.server.pid, flags)
            if ended is not None:
                self.exit_code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
                # Who hears of the end reads the log for its reason.
                self._pump.carry_all()
                say(exit=self.exit_code)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, flags)) and ended.si_pid != self.server.pid:
                os.waitpid(ended.si_pid, os.WNOHANG)

    def living(self) -> set[int]:
        """Living members. That there are none is believed when it was seen twice: a fork may slip by once."""
        for _ in range(2):
            self.reap()
            seen = proc.see_all()
            found = proc.members(self.server.pid, None, self._marker, os.getpid(), seen)
            if found:
                return found
            for process in seen.values():
                if process.parent == os.getpid() and process.pid != self.server.pid:
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(process.pid, os.WNOHANG)
        return set()

    def stop(self, grace_s: float) -> None:
        """TERM to the server, grace, KILL to every member until none is left; then its files, and the report."""
        began = time.monotonic()
        signals = []
        self.reap()
        self.note()
        if self.exit_code is None:
            signals.append("SIGTERM")
            proc.signal_all({self.server.pid}, signal.SIGTERM)
            # A stopped process gets TERM only once it goes on.
            proc.signal_all(self.living(), signal.SIGCONT)
            self._asked_s = grace_s
            while self.exit_code is None:
                left_s = began + self._asked_s - time.monotonic()
                if left_s <= 0:
                    break
                self.listen(left_s)
            self.note()
        end = time.monotonic() + KILL_WAIT_S
        left = self.living()
        while left and time.monotonic() < end:
            if "SIGKILL" not in signals:
                signals.append("SIGKILL")
            proc.signal_all(left, signal.SIGKILL)
            time.sleep(_POLL_S)
            left = self.living()
        self.reap()
        if not left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.server.pid, os.WNOHANG)
        took_s = time.monotonic() - began
        self._pump.finish()
        removed, shm_left = remove_files(self._ledger.files)
        if self._private is not None:
            private.remove_folder(self._private, keep_ledger=bool(left or shm_left))
        say(
            stopped={
                "exit_code": self.exit_code,
                "took_s": took_s,
                "signals": signals,
                "survivors": sorted(left),
                "shm_removed": sorted(removed),
                "shm_left": sorted(shm_left),
            }
        )


def reap_named() -> None:
    """Read `PID BEGAN` lines until the owner ends; then see to it that those processes end as well."""
    named: dict[int, int] = {}
    with os.fdopen(0, "r") as pipe:
        for line in pipe:
            pid, began = map(int, line.split())
            named[pid] = began
    opened = time.monotonic()
    while proc.still_living(named) and time.monotonic() < opened + ORPHAN_GRACE_S:
        time.sleep(_POLL_S)
    while (found := proc.still_living(named)) and time.monotonic() < opened + ORPHAN_GRACE_S + KILL_WAIT_S:
        proc.signal_all(found, signal.SIGKILL)
        time.sleep(_POLL_S)


def read_order() -> Order | None:
    """The first line on the pipe, byte for byte: a request may follow. None where the owner died before it."""
    with os.fdopen(0, "rb", buffering=0, closefd=False) as pipe:
        line = pipe.readline()
    return Order(**json.loads(line)) if line.endswith(b"\n") else None


def step_behind() -> int | None:
    """Go on in a child of this process, which only waits for it; a pidfd of the owner, None where there are none.

    A Ray worker that ends in order kills its direct children with KILL (seen in Ray 2.60, for `ray.kill` and for
    a dropped handle alike): it finds the one that waits, and the guard has its time.
    """
    owner = None
    with contextlib.suppress(OSError, AttributeError):
        owner = os.pidfd_open(os.getppid())
    if guard := os.fork():
        # The pipes' other ends have to close with the guard.
        os.close(0)
        os.close(1)
        os.waitpid(guard, 0)
        os._exit(0)
    return owner


def main() -> None:
    """Start what the command line names and guard it."""
    # Ray blocks INT in what it starts; the server shall not inherit that.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # The owner's terminal and group are none of the server's business. A handler, not SIG_IGN: the server
    # would inherit that and ignore TERM.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    if sys.argv[1:] == ["--reap"]:
        reap_named()
        return
    owner = step_behind()
    order = read_order()
    if order is None:
        return
    try:
        guard = Guard(order, sys.argv[1:], owner)
    except OSError as error:
        if order.private is not None:
            private.remove_folder(Path(order.private))
        say(failed=str(error))
        return
    guard.run()


if __name__ == "__main__":
    main()
