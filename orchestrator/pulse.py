"""A node's sign of life: what it does, told to the board again and again, and whether it shall stop."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator
from typing import Any

import ray

from launchers.base import Phase, StartProgress
from orchestrator.benchmark.load import Progress
from orchestrator.board import Stop
from orchestrator.node_status import NodeStatus, StartStatus
from orchestrator.offered_load import Load

_BEAT_S = 0.25


class Pulse:
    """A thread that tells the board what the node does, and knows from it whether to stop."""

    def __init__(self, board: Any, node: str) -> None:
        self._board = board
        self._node = node
        self._status: NodeStatus | None = None
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ended = False
        self._spawned_at = self._phase_at = time.monotonic()
        self.stop = Stop.NO
        threading.Thread(target=self._beat, name="pulse", daemon=True).start()

    @property
    def phase(self) -> str:
        """The phase that was entered last."""
        return self._status.phase if self._status else ""

    @contextlib.contextmanager
    def of(self, ordinal: int) -> Iterator[Pulse]:
        """While a trial runs."""
        self._status = NodeStatus(self._node, ordinal, str(Phase.SPAWNED))
        try:
            yield self
        finally:
            with self._lock:
                self._status = None
                with contextlib.suppress(ray.exceptions.RayError):
                    ray.get(self._board.leave.remote(self._node))

    def enter(self, phase: str, load: Load | None = None) -> None:
        """A phase begins; the board knows at once."""
        if self._status:
            self._status = NodeStatus(self._node, self._status.ordinal, phase, load)
            self._wake.set()

    def starting(self, progress: StartProgress) -> None:
        """How far the start is; `spawned` begins one."""
        if self._status:
            now = time.monotonic()
            if progress.phase is Phase.SPAWNED:
                self._spawned_at = now
            if progress.phase is Phase.SPAWNED or progress.phase != self._status.phase:
                self._phase_at = now
                self._wake.set()
            start = StartStatus(progress)
            self._status = NodeStatus(self._node, self._status.ordinal, str(progress.phase), start=start)

    def progress(self, progress: Progress) -> None:
        """How far the level is."""
        if self._status:
            self._status = dataclasses.replace(
                self._status,
                done=progress.done,
                total=progress.total,
                output_tokens_per_s=progress.output_tokens_per_s,
                half_width=progress.half_width,
            )

    def end(self) -> None:
        """No further beat."""
        self._ended = True
        self._wake.set()

    def _beat(self) -> None:
        while not self._ended:
            with self._lock:
                status = self._status
                if status is not None:
                    with contextlib.suppress(ray.exceptions.RayError):
                        self.stop = ray.get(self._board.beat.remote(self._timed(status)))
            self._wake.wait(_BEAT_S)
            self._wake.clear()

    def _timed(self, status: NodeStatus) -> NodeStatus:
        """The status with the seconds that its start has taken by now."""
        if status.start is None:
            return status
        now = time.monotonic()
        start = dataclasses.replace(
            status.start, elapsed_s=now - self._spawned_at, phase_elapsed_s=now - self._phase_at
        )
        return dataclasses.replace(status, start=start)
