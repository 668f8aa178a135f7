"""What ends the waiting for a ready server's answers."""

from __future__ import annotations

from launchers.base import ServerHandle
from launchers.errors import Stalled
from orchestrator.benchmark.load import Progress
from orchestrator.board import Stop
from orchestrator.pulse import Pulse


class Attention:
    """An order to stop now, the server's end, or that it hangs; to be asked while requests are open."""

    def __init__(self, server: ServerHandle, pulse: Pulse, when: str) -> None:
        """`when` is what the requests are, for the error: "under 8 users"."""
        self._server = server
        self._pulse = pulse
        self._watch = server.watch(when)
        self._stalled: Stalled | None = None

    def progress(self, progress: Progress) -> None:
        """How far a level is."""
        self._watch.heard(progress.pieces)
        self._pulse.progress(progress)

    def over(self) -> bool:
        """Whether there is nothing to wait for any more."""
        self._stalled = self._stalled or self._watch.stalled()
        return self._stalled is not None or self._pulse.stop is Stop.NOW or not self._server.alive()

    def check(self) -> None:
        """Raise that the server hangs, where it does."""
        if self._stalled is not None:
            raise self._stalled
