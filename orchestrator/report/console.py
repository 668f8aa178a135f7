"""The terminal is ours alone: everything else that the process or a library prints goes to a file."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console


def plain_console() -> Console:
    """A console on the real output, as wide as the terminal; lines stay whole where it is none."""
    return _console(sys.stdout.fileno())


@contextlib.contextmanager
def own_terminal(log: Path) -> Iterator[Console]:
    """A console on the real output, while file descriptors 1 and 2 write into `log`.

    Ray's and Tune's reports come from Python, from C++ and from other processes alike, so nothing less than
    the descriptors keeps them off the terminal.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    out, err = os.dup(1), os.dup(2)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield _console(out)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.close(out)
        os.close(err)


def _console(descriptor: int) -> Console:
    file = os.fdopen(os.dup(descriptor), "w", encoding="utf-8", errors="replace", buffering=1)
    terminal = os.isatty(descriptor)
    # A log has no width: a launch command is one line to paste there.
    return Console(file=file, force_terminal=terminal, width=None if terminal else 200, highlight=False)
