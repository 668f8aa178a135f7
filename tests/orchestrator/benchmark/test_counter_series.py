"""The server's counters over a level: read beside the load, parsed after it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

from orchestrator.benchmark.counter_series import CounterSeries
from orchestrator.benchmark.records import Reading


def pages(*texts: str | None) -> Iterator[str | None]:
    """Each in turn, the last one for ever."""
    return itertools.chain(texts, itertools.repeat(texts[-1]))


def test_pages_are_read_until_the_level_is_over_and_parsed_after() -> None:
    turn, enough, now = pages("sglang:a_total 1\n", None, "<html>", "sglang:a_total 3\n"), threading.Event(), 0.0
    asked = 0

    def page() -> str | None:
        nonlocal asked, now
        asked, now = asked + 1, now + 2.0
        if asked == 5:
            enough.set()
        return next(turn)

    with CounterSeries(page, lambda: now, period_s=0.001) as series:
        assert enough.wait(60)
    found = series.readings()
    # Stamped in the middle of the reading; a page that is none is left out.
    assert found[:2] == (Reading(1.0, {"a_total": 1.0}), Reading(7.0, {"a_total": 3.0}))


def test_a_page_that_does_not_come_holds_nobody_up() -> None:
    never = threading.Event()

    def page() -> str | None:
        never.wait(60)
        return None

    with CounterSeries(page) as series:
        pass
    assert series.readings() == ()
    never.set()
