"""One driver a study: a lock on the study's folder that dies with its owner."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import psutil

from orchestrator.results.files import StoreError

#: An owner on another host that has not renewed its claim for so long is gone.
STALE_AFTER_S = 60.0


class StudyBusy(RuntimeError):
    """Another driver runs the study; the text names it."""


def owner_of_this_process(run_id: str) -> dict[str, Any]:
    """Who this process is, for the lock and for the study's storage."""
    return {
        "run": run_id,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": psutil.Process().create_time(),
        "renewed": time.time(),
    }


def alive(owner: Mapping[str, Any], now: float) -> bool:
    """Whether an owner still runs: by pid and start time on this host, by its last renewal elsewhere."""
    if owner.get("released"):
        return False
    if owner["host"] != socket.gethostname():
        return bool(now - owner["renewed"] < STALE_AFTER_S)
    try:
        process = psutil.Process(owner["pid"])
        # A pid comes back; its start time does not.
        return abs(process.create_time() - owner["started"]) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def describe(owner: Mapping[str, Any]) -> str:
    """The owner in words."""
    return f"process {owner.get('pid')} on {owner.get('host')}"


@contextlib.contextmanager
def study_lock(path: Path, owner: Mapping[str, Any]) -> Iterator[None]:
    """Hold the lock. The kernel frees it when its owner dies, however that happens.

    Raises StudyBusy, and StoreError where the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot lock {path}: {error.strerror or error}. Choose another --results") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StudyBusy(_busy(file)) from None
        except OSError as error:
            raise StoreError(
                f"cannot lock {path}: {error.strerror or error}. Choose --results on a file system with locks"
            ) from error
        if not _same_file(file, path):
            raise StudyBusy("another sweep has just moved this study aside: run the same command again")
        file.truncate(0)
        file.write(json.dumps(owner))
        file.flush()
        yield


def _busy(file: TextIO) -> str:
    file.seek(0)
    try:
        owner = json.loads(file.read())
    except ValueError:
        return "another sweep has just started this study"
    return f"another sweep runs this study: {describe(owner)}. Wait for it, or stop it with Ctrl-C there"


def _same_file(file: TextIO, path: Path) -> bool:
    """Whether the path still names the file: `--fresh` of another sweep may have moved it in between."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
