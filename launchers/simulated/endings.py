"""How the server ends when something is wrong: SGLang's last lines and exit codes, recorded from 0.5.23."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import NoReturn

from launchers.simulated.log import Log

_SCHEDULER = "sglang/srt/managers/scheduler.py"


def refuse(log: Log, error_text: str, exit_code: int) -> NoReturn:
    """A configuration that does not survive the resolution of its arguments."""
    pid = os.getpid()
    log.line(f"kill_process_tree called: parent_pid={pid}, include_parent=False, pid={pid}")
    log.raw(
        "Traceback (most recent call last):\n"
        '  File "sglang/launch_server.py", line 29, in run_server\n'
        "    server_args.resolve_once()\n"
        f"{error_text}\n"
    )
    sys.exit(exit_code)


def scheduler_exception(log: Log, error_text: str, *, starting: bool, settle_s: float = 0.0) -> None:
    """The lines of a scheduler that raised and of the parent that heard of it.

    While starting, every rank says so; afterwards the parent waits `settle_s` before it ends the tree.
    """
    where = "__init__" if starting else "run_event_loop"
    text = (
        "Scheduler hit an exception: Traceback (most recent call last):\n"
        f'  File "{_SCHEDULER}", line {6362 if starting else 6368}, in run_scheduler_process\n'
        f'  File "{_SCHEDULER}", in {where}\n'
        f"{error_text}\n"
    )
    log.every_rank(text) if starting else log.first_rank(text)
    pid = os.getpid()
    if starting:
        log.line("Received sigquit from a child process. It usually means the child failed.")
    else:
        log.line("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        log.line("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.")
        time.sleep(settle_s)
    log.line(f"kill_process_tree called: parent_pid={pid}, include_parent=True, pid={pid}")


def end_by_signal(number: signal.Signals) -> NoReturn:
    """End this process by a signal's own action, so that its parent sees exactly that."""
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(number, signal.SIG_DFL) if number is not signal.SIGKILL else None
    os.kill(os.getpid(), number)
    while True:  # the signal is on its way
        time.sleep(1)


def end(exit_code: int) -> NoReturn:
    """End at once, without clean-up, with an exit code as a parent sees it (negative: that signal)."""
    if exit_code < 0:
        end_by_signal(signal.Signals(-exit_code))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)
