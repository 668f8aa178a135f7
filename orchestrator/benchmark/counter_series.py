"""The server's counters once a second while a level runs: read by a thread, parsed when the level is over."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from types import TracebackType

from orchestrator.benchmark.counters import parse_metrics
from orchestrator.benchmark.records import Reading

#: The text of /metrics; None where it is not to be had. Blocking.
Page = Callable[[], str | None]

_PERIOD_S = 1.0


class CounterSeries:
    """A thread that reads pages and keeps their text, since parsing one takes the event loop's CPU. A context manager.

    `clock` is the load generator's, so that the readings stand beside its requests.
    """

    def __init__(self, page: Page, clock: Callable[[], float] = time.monotonic, period_s: float = _PERIOD_S) -> None:
        self._page = page
        self._clock = clock
        self._period_s = period_s
        self._over = threading.Event()
        self._pages: list[tuple[float, str]] = []
        self._thread = threading.Thread(target=self._read, name="counters", daemon=True)

    def __enter__(self) -> CounterSeries:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A page that is being read is not waited for.
        self._over.set()

    def _read(self) -> None:
        while not self._over.is_set():
            asked_s = self._clock()
            text = self._page()
            if text is not None:
                self._pages.append(((asked_s + self._clock()) / 2, text))
            self._over.wait(self._period_s)

    def readings(self) -> tuple[Reading, ...]:
        """What was read so far; a page of another format is left out."""
        found = []
        for t_s, text in list(self._pages):
            with contextlib.suppress(ValueError):
                found.append(Reading(t_s, parse_metrics(text)))
        return tuple(found)
