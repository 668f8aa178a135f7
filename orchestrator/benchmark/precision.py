"""When a level has warmed up and when it has been measured long enough, told by a live count. Pure: told the time.

The count is that of the pieces of answers come so far, sampled on a timer: a stand-in for tokens, which are known
only once an answer is whole. The figures of a level are computed from its records afterwards.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from itertools import pairwise

from orchestrator.benchmark.intervals import FEWEST_BATCHES, batch_means_interval
from orchestrator.benchmark.waves import wave_interval

#: Pieces that a level's window is cut into at most.
MOST_BATCHES = 64
#: Between two looks the window grows by this factor: who looks often enough sees, once, what he wants to see.
_GROWTH = 1.25
_IN_A_ROW = 2
#: Or once, by so much.
_CLEAR = 0.5
#: Twice the fewest that say anything: the half width of few batches is itself half luck.
_BATCHES = 2 * FEWEST_BATCHES
#: Windows compared to tell whether a rate is stable, as a share of what has passed; and the shortest of them.
_WINDOW_SHARE, _WINDOW_MIN_S = 0.25, 0.1
#: Pieces fewer than that in a window tell no rate: a piece more or less is a tenth.
_PIECES_MIN = 10


def batches_of(count: float) -> int:
    """Into how many pieces a window of so many events is cut: four events each or more, a power of two to be halved."""
    return min(MOST_BATCHES, 1 << int(math.log2(max(1.0, count // 4))))


class Series:
    """How many pieces had come by when."""

    def __init__(self) -> None:
        self._at_s: list[float] = []
        self._pieces: list[float] = []

    def add(self, now_s: float, pieces: float) -> None:
        """A sample, later than those before."""
        self._at_s.append(now_s)
        self._pieces.append(pieces)

    def until(self, at_s: float) -> float:
        """Pieces by this time, linear between samples; at either end what the nearest sample says."""
        if not self._at_s:
            return 0.0
        after = bisect.bisect_right(self._at_s, at_s)
        if after == 0:
            return self._pieces[0]
        if after == len(self._at_s):
            return self._pieces[-1]
        start_s, end_s = self._at_s[after - 1], self._at_s[after]
        share = (at_s - start_s) / (end_s - start_s)
        return self._pieces[after - 1] + share * (self._pieces[after] - self._pieces[after - 1])

    def samples(self, start_s: float, end_s: float) -> int:
        """How many lie after the start, up to the end."""
        return bisect.bisect_right(self._at_s, end_s) - bisect.bisect_right(self._at_s, start_s)

    def half_width(self, start_s: float, end_s: float, edges_s: Sequence[float] = ()) -> float | None:
        """Half of the 95 % interval of the rate, as a share of it; None where too little came.

        By the means of equal pieces of the time, or of the waves between `edges_s`, whichever tells more: see
        `metrics.window_half_width`.
        """
        found = []
        # Within one sample's interval nothing is known.
        batches = min(batches_of(self.until(end_s) - self.until(start_s)), batches_of(2 * self.samples(start_s, end_s)))
        if batches >= _BATCHES and end_s > start_s:
            length_s = (end_s - start_s) / batches
            found.append(batch_means_interval(self.rates([start_s + n * length_s for n in range(batches + 1)])))
        if len(edges_s) > 1:
            found.append(wave_interval(self.rates(edges_s)))
        return min(((i.high - i.mean) / i.mean for i in found if i is not None and i.mean > 0), default=None)

    def rates(self, edges_s: Sequence[float]) -> list[float]:
        """Pieces per second from each edge to the next; the edges rise."""
        return [(self.until(b) - self.until(a)) / (b - a) for a, b in pairwise(edges_s)]


class Stability:
    """Tells whether the rate no longer changes: two successive windows agree, each a quarter of what has passed."""

    def __init__(self, tolerance: float, begun_s: float) -> None:
        """`tolerance` is a share of the larger rate."""
        self._tolerance = tolerance
        self._begun_s = begun_s
        self._next_s = 0.0

    def reached(self, series: Series, now_s: float, edges_s: Sequence[float] = ()) -> bool:
        """To be asked again and again; looks at growing intervals.

        `edges_s` are those of the waves so far: users in step have another rate in each part of a wave, so their
        windows are made of whole ones.
        """
        elapsed_s = now_s - self._begun_s
        window_s = _WINDOW_SHARE * elapsed_s
        if elapsed_s < self._next_s or window_s < _WINDOW_MIN_S:
            return False
        self._next_s = _GROWTH * elapsed_s
        return self._agree(series, now_s, window_s) or self._waves_agree(series, edges_s, window_s)

    def _agree(self, series: Series, now_s: float, window_s: float) -> bool:
        before, latest = series.rates([now_s - 2 * window_s, now_s - window_s, now_s])
        return self._alike(before, latest, window_s)

    def _waves_agree(self, series: Series, edges_s: Sequence[float], window_s: float) -> bool:
        for waves in range(1, (len(edges_s) + 1) // 2):
            start_s, middle_s, end_s = edges_s[-1 - 2 * waves], edges_s[-1 - waves], edges_s[-1]
            if min(middle_s - start_s, end_s - middle_s) >= window_s:
                before, latest = series.rates([start_s, middle_s, end_s])
                return self._alike(before, latest, window_s)
        return False

    def _alike(self, before: float, latest: float, window_s: float) -> bool:
        larger = max(before, latest)
        return larger * window_s >= _PIECES_MIN and abs(latest - before) <= self._tolerance * larger


class Precision:
    """Tells whether the rate of a window is known well enough to close it."""

    def __init__(self, half_width: float) -> None:
        """`half_width` is a share of the rate."""
        self._half_width = half_width
        self._next_s = 0.0
        self._in_a_row = 0

    def reached(self, series: Series, opened_s: float, now_s: float, edges_s: Sequence[float] = ()) -> bool:
        """To be asked again and again; looks at growing intervals, and wants to see the target met twice in a
        row, or once by half.

        To end at a target by looking is to end more often where luck made the spread small. So the intervals at the
        end hold the truth in 95 of 100 series of independent rates, in 88 where the rate keeps to itself for half a
        second (a tenth of the shortest window played), and in fewer where it is slower still: see the test. The figure
        of the level says its own half width, and the difference from start to start is for repeats to tell.
        """
        elapsed_s = now_s - opened_s
        if elapsed_s < self._next_s:
            return False
        self._next_s = _GROWTH * elapsed_s
        found = series.half_width(opened_s, now_s, edges_s)
        if found is None or found > self._half_width:
            self._in_a_row = 0
            return False
        self._in_a_row += 1
        return self._in_a_row >= _IN_A_ROW or found <= _CLEAR * self._half_width
