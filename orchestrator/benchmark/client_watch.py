"""Whether the load generator itself is the limit: what it used of a core, and how late its event loop ran."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

from orchestrator.benchmark.distribution import distribution

_TICK_S = 0.02
#: Fewer ticks than this have no 99th percentile, and CPU time over less than this is chance.
_TICKS_MIN, _WINDOW_MIN_S = 50, 1.0


class ClientWatch:
    """Watches this process while a window is open. Its clocks are its own: the level's may be a test's."""

    def __init__(
        self,
        cpu_clock: Callable[[], float] = time.process_time,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._cpu_clock = cpu_clock
        self._clock = clock
        self._sleep = sleep
        #: When the next tick is due.
        self._due_s = math.inf
        self._late_s: list[float] = []
        self._from: tuple[float, float] | None = None
        self._to: tuple[float, float] | None = None

    def follow(self, opened: bool, closed: bool) -> None:
        """To be told again and again whether the window has opened, and closed."""
        if opened and self._from is None:
            self._from = (self._cpu_clock(), self._clock())
        if closed and self._to is None:
            self._to = (self._cpu_clock(), self._clock())
            # A stall that lasts to the end of the window is one as well.
            self._see(self._to[1])

    async def run(self) -> None:
        """Notes how much later than asked a timer of the event loop fires, until it is cancelled."""
        while True:
            self._due_s = self._clock() + _TICK_S
            await self._sleep(_TICK_S)
            if self._to is None:
                # A timer of milliseconds may fire a little early: that is in time.
                self._see(max(self._clock(), self._due_s))

    def _see(self, now_s: float) -> None:
        """Each tick due in the window by now is as late as it is, those that a stall swallowed too: else a stall would
        count once, however long it was (coordinated omission).
        """
        ticks = math.floor((now_s - self._due_s) / _TICK_S) + 1 if now_s >= self._due_s else 0
        due_s = [self._due_s + n * _TICK_S for n in range(ticks)]
        self._due_s += ticks * _TICK_S
        if self._from is not None:
            self._late_s += [now_s - due for due in due_s if due >= self._from[1]]

    @property
    def cpu_share(self) -> float | None:
        """CPU seconds of the whole process per second of the window: 1 is a core. None for less than a second."""
        if self._from is None or self._to is None:
            return None
        cpu_s, wall_s = (to - since for since, to in zip(self._from, self._to, strict=True))
        return cpu_s / wall_s if wall_s >= _WINDOW_MIN_S else None

    @property
    def lag_ms(self) -> float | None:
        """The 99th percentile of the lateness; None for fewer than 50 ticks."""
        spread = distribution(self._late_s) if len(self._late_s) >= _TICKS_MIN else None
        return spread.p99 * 1000 if spread else None
