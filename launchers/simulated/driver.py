"""Runs the engine in real time on an event loop: every step is due one step length after the one before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from launchers.simulated.engine import Engine
from launchers.simulated.request import Finish, Request

#: A step that is later than this starts a new schedule instead of being caught up.
RESYNC_S = 0.25


class Driver:
    """Owns the engine's time. Steps are due at absolute times, so that late timers do not add up."""

    def __init__(
        self,
        engine: Engine,
        clock: Callable[[], float],
        before_step: Callable[[Engine], bool] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.engine = engine
        self.clock = clock
        #: Asked before every step; False stops stepping for good (a hang).
        self._before_step = before_step
        self._sleep = sleep
        self._work = asyncio.Event()
        #: Steps that were later than RESYNC_S.
        self.resyncs = 0
        #: Longest lateness of a step.
        self.max_late_s = 0.0
        self.hung = asyncio.Event()

    def submit(self, request: Request) -> None:
        """Queue a request."""
        self.engine.submit(request)
        self._work.set()

    def abort(self, request: Request) -> None:
        """Stop a request; one that was waiting is told at once."""
        self.engine.abort(request)
        if request.finish is Finish.ABORT and request.on_tokens is not None:
            request.on_tokens(request, 0)
        self._work.set()

    async def run(self) -> None:
        """Step until cancelled."""
        engine, clock = self.engine, self.clock
        due_s = clock()
        while True:
            if self._before_step is not None and not self._before_step(engine):
                self.hung.set()
                await asyncio.Event().wait()
            step = engine.plan(due_s)
            if step is None:
                self._work.clear()
                if not engine.busy:
                    await self._work.wait()
                else:
                    # requests wait for KV that no running request will free
                    await self._sleep(0.001)
                due_s = clock()
                continue
            due_s += step.duration_s
            # 0 lets connections be served even when the engine is behind
            await self._sleep(max(0.0, due_s - clock()))
            late_s = clock() - due_s
            if late_s > self.max_late_s:
                self.max_late_s = late_s
            if late_s > RESYNC_S:
                self.resyncs += 1
                due_s += late_s
            engine.finish(step, due_s)
