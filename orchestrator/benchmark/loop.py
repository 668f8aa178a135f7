"""The event loop that measurements run on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


def run(story: Coroutine[Any, Any, T]) -> T:
    """Like asyncio.run, on uvloop: it reads a socket for less than half of what asyncio's own loop takes."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(story)
