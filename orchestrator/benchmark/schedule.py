"""When a level sends requests, opens and closes its window, and gives up. Pure: told the time."""

from __future__ import annotations

import math
from typing import Literal

from orchestrator.benchmark.precision import Precision, Series, Stability
from orchestrator.benchmark.records import RequestRecord
from orchestrator.workload import Level

#: What ended a level's window: its fixed number of requests, the precision reached, one of the limits, or that no
#: prompt was left that had not been sent.
Ending = Literal["requests", "precise", "max_requests", "max_s", "prompts"]

#: Failures in a row after which a level is given up, for each user and at least.
_FAILURES_PER_USER, _FAILURES_MIN = 3, 8
#: Refusals alike, with no success before, that show the requests themselves are wrong.
_REFUSALS = 3
#: 4xx codes that say "later", not "wrong".
_PASSING_CODES = frozenset({408, 425, 429})
#: An open loop's number in flight settles within so many times what an answer takes, and is known after so many: at
#: three quarters of what a server can do its mean then lies within a tenth of that of an hour, at nine tenths a fifth.
_SETTLING, _LASTING = 5, 10
_BACKOFF_S, _BACKOFF_MAX_S = 0.05, 1.0


class Schedule:
    """What the two kinds of load have in common: a warm-up, then a window."""

    def __init__(self, level: Level, now_s: float) -> None:
        self._level = level
        self.begun_s = now_s
        self.opened_s: float | None = None
        self.closed_s: float | None = None
        #: Whether the rate was stable when the window opened; None where that was not asked.
        self.stable: bool | None = None
        self.ended_by: Ending | None = None

    @property
    def window_s(self) -> tuple[float, float] | None:
        """The window, or None if it never opened, closed, or lasted."""
        if self.opened_s is None or self.closed_s is None or self.closed_s <= self.opened_s:
            return None
        return (self.opened_s, self.closed_s)

    def warmup(self, request: RequestRecord) -> bool:
        """Whether a request is not measured."""
        raise NotImplementedError

    def look(self, now_s: float, pieces: float) -> None:
        """To be told on a timer how many pieces of answers have come by now."""
        raise NotImplementedError

    def half_width(self, now_s: float) -> float | None:
        """Half of the 95 % interval of the window's rate by now, as a share of it; None where it is not known."""
        return None


class ClosedSchedule(Schedule):
    """Tells each user whether to send another request.

    Every user first sends its warm-up, then goes straight on, so the load never dips. The window opens when the last
    user is past its warm-up and the rate is stable; the requests then in flight, one of every user, are the first of
    the `requests_per_user` x concurrency that are measured. What finished earlier was warm-up, whoever sent it: a
    queue that serves users in turns cannot use the budget up before the load is full. The window closes when the first
    user finds nothing left. Inside it every user has a request in flight.
    """

    def __init__(self, level: Level, concurrency: int, now_s: float) -> None:
        super().__init__(level, now_s)
        self._concurrency = concurrency
        self._in_warmup = concurrency
        self._issued = 0
        self._series = Series()
        #: When users past their warm-up were answered, every so many of them: where waves begin and end.
        self._edges_s: list[float] = []
        self._answers = 0
        tolerance, half_width = level.warmup_tolerance, level.half_width
        self._stability = None if tolerance is None else Stability(tolerance, now_s)
        self._precision = None if half_width is None else Precision(half_width)
        self._precise = False

    @property
    def planned(self) -> int:
        """Measured requests that the level sends at least, unless `max_s` ends it."""
        return self._level.requests_per_user * self._concurrency

    def warmup(self, request: RequestRecord) -> bool:
        return self.opened_s is not None and request.finished_s <= self.opened_s

    def warm_up_again(self, sent: int, now_s: float) -> bool:
        """Whether a user that has sent `sent` warm-up requests sends another.

        The warm-up too ends after `max_s`, so that a slow server cannot hold a level for ever.
        """
        return sent < self._level.warmup_requests_per_user and (sent == 0 or now_s - self.begun_s < self._level.max_s)

    def leave_warmup(self, now_s: float) -> None:
        """A user is past its warm-up; call it once for each, before its first `take`."""
        self._in_warmup -= 1
        if self._in_warmup == 0 and self._stability is None:
            # Every other user has exactly one request in flight.
            self._open(now_s, self._concurrency - 1)

    def look(self, now_s: float, pieces: float) -> None:
        self._series.add(now_s, pieces)
        if self.opened_s is None:
            if self._in_warmup == 0 and self._stability is not None:
                self.stable = self._stability.reached(self._series, now_s, self._edges_s)
                if self.stable or now_s - self.begun_s >= self._level.max_s:
                    self._open(now_s, self._concurrency)
        elif self.closed_s is None and self._precision is not None and self._may_end(now_s):
            self._precise = self._precise or self._precision.reached(self._series, self.opened_s, now_s, self._edges_s)

    def half_width(self, now_s: float) -> float | None:
        if self.opened_s is None:
            return None
        until_s = now_s if self.closed_s is None else self.closed_s
        return self._series.half_width(self.opened_s, until_s, self._edges_s)

    def _open(self, now_s: float, in_flight: int) -> None:
        self.opened_s = now_s
        self._issued = in_flight
        self._edges_s, self._answers = [], 0

    def take(self, now_s: float, left: bool = True) -> bool:
        """Whether a user past its warm-up starts a request now; once refused, always refused. `left`: whether there is
        a prompt for it.
        """
        if self.closed_s is not None:
            return False
        if self._answers % self._concurrency == 0 and (not self._edges_s or now_s > self._edges_s[-1]):
            self._edges_s.append(now_s)
        self._answers += 1
        # Before the window opens bounded by the warm-up, which ends after max_s.
        self.ended_by = None if self.opened_s is None else self._ending(now_s, now_s - self.opened_s)
        if self.ended_by is None and not left:
            self.ended_by = "prompts"
        if self.ended_by is None:
            self._issued += 1
            return True
        self.closed_s = now_s
        return False

    def _ending(self, now_s: float, elapsed_s: float) -> Ending | None:
        if elapsed_s >= self._level.max_s:
            return "max_s"
        if not self._may_end(now_s):
            return None
        if self._precision is None:
            return "requests"
        if self._precise:
            return "precise"
        most = self._level.max_requests_per_user
        return "max_requests" if most is not None and self._issued >= most * self._concurrency else None

    def _may_end(self, now_s: float) -> bool:
        """Whether the minimum is reached, in requests and in time."""
        assert self.opened_s is not None
        return self._issued >= self.planned and now_s - self.opened_s >= self._level.min_s


class OpenSchedule(Schedule):
    """Tells whether the next arrival is sent, and which of them are measured.

    The warm-up lasts as long as `warmup_requests_per_user` answers take, by the first one, and then, unless
    `warmup_tolerance` is null, until it is five times as long as the latest answers take: the first one met an empty
    server, and the number in flight settles with the time that an answer takes. Of a server that cannot keep up it
    never does. Measured are the requests whose turn comes inside the window, which ends with the last of them: after
    `min_requests` and `min_s` and, unless `half_width` is null, ten times what an answer takes, or after `max_s`. Its
    throughput is what is offered, so how well that is known does not end it.
    """

    def __init__(self, level: Level, now_s: float) -> None:
        super().__init__(level, now_s)
        self._took_s: list[float] = []
        self._taken = 0
        self._last_s = now_s

    @property
    def planned(self) -> int:
        """Measured requests that the level sends at least, unless `max_s` ends it."""
        return self._level.min_requests

    def warmup(self, request: RequestRecord) -> bool:
        sent_s = request.started_s if request.targeted_s is None else request.targeted_s
        return self.opened_s is None or sent_s < self.opened_s

    def answered(self, took_s: float) -> None:
        """An answer was whole after so long."""
        self._took_s.append(took_s)

    def look(self, now_s: float, pieces: float) -> None:
        if self.opened_s is not None:
            return
        elapsed_s = now_s - self.begun_s
        warm = self._warm(elapsed_s)
        if warm or elapsed_s >= self._level.max_s:
            self.opened_s = self._last_s = now_s
            self.stable = warm if self._level.warmup_tolerance is not None else None

    def _warm(self, elapsed_s: float) -> bool:
        answers = self._level.warmup_requests_per_user
        if not answers:
            return True
        if not self._took_s or elapsed_s < answers * self._took_s[0]:
            return False
        return self._level.warmup_tolerance is None or elapsed_s >= _SETTLING * self._latest_s

    @property
    def _least_s(self) -> float:
        return max(self._level.min_s, 0.0 if self._level.half_width is None else _LASTING * self._latest_s)

    @property
    def _latest_s(self) -> float:
        """What an answer takes, by the latest quarter of them."""
        latest = self._took_s[-max(1, len(self._took_s) // 4) :]
        return math.fsum(latest) / len(latest) if latest else 0.0

    def ends_before(self, targeted_s: float) -> bool:
        """Whether the window will be over before this turn, which need not be waited for."""
        return self.opened_s is not None and targeted_s - self.opened_s >= self._level.max_s

    def take(self, targeted_s: float, left: bool = True) -> bool:
        """Whether the request whose turn comes at `targeted_s` is sent; once refused, always refused. `left`: whether
        there is a prompt for it.
        """
        if self.closed_s is not None:
            return False
        warming = self.opened_s is None or targeted_s < self.opened_s
        if warming and left:
            return True
        elapsed_s = 0.0 if warming or self.opened_s is None else targeted_s - self.opened_s
        if elapsed_s >= self._level.max_s:
            self.ended_by = "max_s"
        elif self._taken >= self.planned and elapsed_s >= self._least_s:
            self.ended_by = "requests"
        elif not left:
            self.ended_by = "prompts"
        if self.ended_by is not None:
            self.closed_s = self._last_s
            return False
        self._taken += 1
        self._last_s = targeted_s
        return True


class FailureWatch:
    """Decides from the records, in the order of their completion, when to give a level up."""

    def __init__(self, concurrency: int) -> None:
        self._limit = max(_FAILURES_MIN, _FAILURES_PER_USER * concurrency)
        self._any_success = False
        self._in_a_row: list[RequestRecord] = []

    def see(self, record: RequestRecord) -> str | None:
        """Why the level is given up, once it is; None to go on."""
        if record.error_kind == "cancelled":
            return None
        if record.succeeded:
            self._any_success = True
            self._in_a_row.clear()
            return None
        self._in_a_row.append(record)
        failures = len(self._in_a_row)
        codes = {r.error_code for r in self._in_a_row}
        if not self._any_success and failures >= _REFUSALS and len(codes) == 1:
            code = codes.pop()
            if code is not None and 400 <= code < 500 and code not in _PASSING_CODES:
                return f"every request is refused alike, the workload does not fit this server: {record.error}"
        if failures >= self._limit:
            return f"{failures} requests in a row failed, the last one so: {record.error}"
        return None


def backoff_s(failures_in_a_row: int) -> float:
    """Pause of a user after so many failures in a row; none after the first, to keep the load up."""
    if failures_in_a_row <= 1:
        return 0.0
    return min(_BACKOFF_MAX_S, _BACKOFF_S * 2.0 ** min(failures_in_a_row - 2, 10))
