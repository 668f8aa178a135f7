"""The event loop that measurements run on."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


def run(story: Coroutine[Any, Any, T]) -> T:
    """Like asyncio.run, on uvloop: it reads a socket for less than half of what asyncio's own loop takes.

    Meanwhile the garbage collector leaves alone what was there before: to go through all that Ray and others have
    loaded takes tens of milliseconds, in which no event is stamped. And the task does not keep the result: to restore
    SIGINT's handler, which knows the task, the signal module has that written out (CPython 3.11, `_int_to_enum`), all
    stamps of a level among it.
    """
    told: list[T] = []

    async def main() -> None:
        told.append(await story)

    gc.freeze()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
        return told[0]
    finally:
        gc.unfreeze()
