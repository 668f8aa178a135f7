"""A closed loop's window in whole waves: in a wave as many requests end as there are users. Pure.

Users that begin together and are answered alike end together, again and again: their rate is a periodic one, low while
prompts are read and high while tokens come. Cut at any other place it shows where it was cut. From one wave to the next
only the server's own unrest is left. Where nobody is in step a wave is as good a piece of time as any.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from orchestrator.benchmark.intervals import FEWEST_BATCHES, Interval, batch_means_interval, mean_interval

Window = tuple[float, float]

#: Fewer waves tell next to nothing of their own spread.
FEWEST_WAVES = 3
#: A window that opens when the last user begins its wave holds that wave but for what lies between first and last.
_WHOLE_SHARE = 0.95


def wave_edges(ends_s: Iterable[float], window_s: Window, users: int) -> list[float]:
    """Where the window's whole waves begin and end, the last edge being the window's last end of a request.

    `ends_s` are the times at which requests ended, in any order; those after the window's start, up to its end, count.
    Empty where there is no whole wave.
    """
    start_s, end_s = window_s
    edges = sorted(s for s in ends_s if start_s < s <= end_s)[::-users][::-1]
    if len(edges) < 2 or not all(a < b for a, b in pairwise(edges)):
        return []
    wave_s = (edges[-1] - edges[0]) / (len(edges) - 1)
    return [start_s, *edges] if edges[0] - start_s >= _WHOLE_SHARE * wave_s else edges


def wave_interval(rates: Sequence[float]) -> Interval | None:
    """Of the mean of the rates of successive waves; None for fewer than three."""
    if len(rates) < FEWEST_WAVES:
        return None
    # Few waves cannot tell whether they are alike; one lasts as long as a request, and most unrest less.
    return mean_interval(rates) if len(rates) < FEWEST_BATCHES else batch_means_interval(rates)
