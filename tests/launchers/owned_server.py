"""Servers that a test owns: small programs behind their guard, stopped at the end whatever happens."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from launchers import proc
from launchers.process import OwnedProcess


def until(condition: Callable[[], Any], deadline_s: float = 20.0) -> Any:
    """Wait for a condition; what it came to."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError("the condition did not come true in time")


def gone(pid: int) -> bool:
    return not proc.is_alive(pid)


@contextmanager
def start_owned(folder: Path, port: int) -> Iterator[Callable[..., OwnedProcess]]:
    """Gives a function that starts Python code with words and variables; `options` go to OwnedProcess."""
    with ExitStack() as started:
        count = iter(range(1000))

        def run(
            code: str,
            *words: str,
            log: Path | None = None,
            port: int = port,
            options: dict[str, Any] | None = None,
            **env: str,
        ) -> OwnedProcess:
            number = next(count)
            process = OwnedProcess(
                [sys.executable, "-c", code, *words],
                dict(os.environ) | env,
                log or folder / f"{number}.log",
                f"start-{os.getpid()}-{number}",
                port,
                grace_s=5.0,
                **(options or {}),
            )
            started.callback(process.stop, grace_s=0.0)
            return process

        yield run
