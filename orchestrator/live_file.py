"""`live.json` in the study's folder: where the sweep stands, written while it runs, for whoever looks from outside."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from orchestrator import lock
from orchestrator.report.snapshot import Snapshot
from orchestrator.results.files import partial_path

#: Raised where a reader of the version before would misread the file.
VERSION = 1
#: Between two writes; and after how many seconds without one something is wrong.
WRITE_S, LATE_S = 2.0, 15.0

#: What the sweep says of itself. One that was killed has said `running`.
State = Literal["running", "finished", "interrupted", "failed"]


def live_path(root: Path) -> Path:
    """Where it stands in a study's folder."""
    return root / "live.json"


@dataclass(frozen=True)
class LiveState:
    """What the file holds."""

    state: State
    #: Why it ended; None while it runs.
    reason: str | None
    #: The command that continues the study.
    command: str
    #: Who wrote it, see `lock.owner_of_this_process`.
    owner: Mapping[str, Any]
    #: Seconds since the epoch.
    written_at: float
    snapshot: Snapshot | None

    def alive(self, now: float) -> bool:
        """Whether its sweep still runs."""
        return self.state == "running" and lock.alive({**self.owner, "renewed": self.written_at}, now)


class LiveFile:
    """Writes it, at most every two seconds. A write that fails never stops the sweep: it is told once."""

    def __init__(
        self,
        path: Path,
        owner: Mapping[str, Any],
        command: str,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._owner = owner
        self._command = command
        self._say = say
        self._clock = clock
        self._written_at = 0.0
        self._snapshot: Snapshot | None = None
        self._lock = threading.Lock()
        self._failed = False
        self._running = False

    def update(self, snapshot: Snapshot) -> None:
        """Keep the snapshot, unless the file is younger than two seconds."""
        self._snapshot = snapshot
        if not 0 <= self._clock() - self._written_at < WRITE_S:
            self._write("running", None)

    def begin(self, snapshot: Snapshot | None = None) -> None:
        """The run has begun; before, nothing is written, since another sweep's file may lie there."""
        self._running = True
        self._snapshot = snapshot
        self._write("running", None)

    def end(self, state: State, reason: str, snapshot: Snapshot | None = None) -> None:
        """The run is over; nothing where it never began."""
        self._snapshot = snapshot or self._snapshot
        self._write(state, reason)
        self._running = False

    def _write(self, state: State, reason: str | None) -> None:
        with self._lock:
            if not self._running:
                return
            self._written_at = self._clock()
            data = {
                "version": VERSION,
                "state": state,
                "reason": reason,
                "command": self._command,
                "owner": dict(self._owner),
                "written_at": self._written_at,
                "snapshot": None if self._snapshot is None else self._snapshot.as_data(),
            }
            partial = partial_path(self._path)
            try:
                # Not made durable: after a power cut nobody wants it.
                partial.write_text(json.dumps(data), encoding="utf-8")
                os.replace(partial, self._path)
            except OSError as error:
                if not self._failed:
                    self._failed = True
                    self._say(f"warning: {self._path} cannot be written, so orchestrator.status is blind: {error}")


def read_live(path: Path) -> LiveState | None:
    """What the file holds; None where there is none, or none that this version understands."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] != VERSION:
            return None
        snapshot = data["snapshot"]
        return LiveState(
            state=data["state"],
            reason=data["reason"],
            command=data["command"],
            owner=data["owner"],
            written_at=float(data["written_at"]),
            snapshot=None if snapshot is None else Snapshot.from_data(snapshot),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
