"""Whether a ready server hangs under its requests: nothing comes back, and nothing of it moves.

SGLang's own watchdog (`--watchdog-timeout`, 300 s by default) ends a scheduler that spins in one batch. It cannot end
one that was frozen, one that waits in the kernel, or a front end that no longer forwards; a client then waits until
its requests time out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from launchers.base import Phase, StartProgress
from launchers.dialect import StartReader
from launchers.errors import Stalled
from launchers.movement import Look, Movement
from launchers.watch import LogFollower

#: Nobody looks at the processes before this long a silence: a level that runs costs nothing.
_SILENT_S = 5.0
_LOOK_S = 2.0
#: Of the log, for its last line.
_TAIL_BYTES = 4096


class ServingWatch:
    """To be asked again and again while a server has requests open.

    Its limit for CPU time alone is four times that of stillness (see `launchers.movement`): 360 s by default, more
    than SGLang's watchdog takes.
    """

    def __init__(
        self,
        look: Callable[[], Look],
        log: Path,
        reader: StartReader,
        limit_s: float,
        clock: Callable[[], float],
        when: str = "",
    ) -> None:
        """`look` tells what the server's processes have used by now; `limit_s` is how long nothing may move.

        `when` it is watched is told with what is found.
        """
        self._look = look
        size = log.stat().st_size if log.exists() else 0
        self._log = LogFollower(log, skip=max(0, size - _TAIL_BYTES))
        self._reader = reader
        self._limit_s = limit_s
        self._clock = clock
        self._when = when
        self._answered = 0
        self._heard_s = self._looked_s = clock()
        self._movement = Movement(self._heard_s)

    def heard(self, answered: int) -> None:
        """How many pieces of answers have come by now."""
        if answered > self._answered:
            self._answered = answered
            self._heard_s = self._clock()
            self._movement = Movement(self._heard_s)

    def stalled(self) -> Stalled | None:
        """What has not moved for how long, once that is too long."""
        now = self._clock()
        if now - self._heard_s < _SILENT_S:
            self._movement.tick(0, now)
            return None
        self._reader.feed(self._log.new_text())
        self._movement.tick(self._reader.lines, now)
        if now - self._looked_s >= _LOOK_S:
            self._looked_s = now
            self._movement.look(self._look(), now)
        still = self._movement.stalled(StartProgress(Phase.READY), self._limit_s)
        if still is None:
            return None
        return Stalled(
            f"{self._when} it has answered nothing for {now - self._heard_s:.0f} s, and {still}; its last line: "
            f"{self._reader.last_line!r}",
            phase=Phase.READY,
            hint="its log tells what it did last; if it waits for something slow outside of this machine, raise "
            "launcher.hang_s",
        )
