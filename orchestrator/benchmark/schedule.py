"""When a closed-loop level sends requests, opens and closes its window, and gives up. Pure: told the time."""

from __future__ import annotations

from orchestrator.benchmark.records import RequestRecord
from orchestrator.workload import Level

#: Failures in a row after which a level is given up, for each user and at least.
_FAILURES_PER_USER, _FAILURES_MIN = 3, 8
#: Refusals alike, with no success before, that show the requests themselves are wrong.
_REFUSALS = 3
#: 4xx codes that say "later", not "wrong".
_PASSING_CODES = frozenset({408, 425, 429})
_BACKOFF_S, _BACKOFF_MAX_S = 0.05, 1.0


class Schedule:
    """Tells each user whether to send another request.

    Every user first sends its warm-up, then goes straight on, so the load never dips. The window opens
    when the last user is past its warm-up; the requests then in flight, one of every other user, are the
    first of the `requests_per_user` x concurrency that are measured. What finished earlier was warm-up,
    whoever sent it: a queue that serves users in turns cannot use the budget up before the load is full.
    The window closes when the first user finds nothing left. Inside it every user has a request in flight.
    """

    def __init__(self, level: Level, concurrency: int, now_s: float) -> None:
        self._level = level
        self._concurrency = concurrency
        self._begun_s = now_s
        self._in_warmup = concurrency
        self._issued = 0
        self.opened_s: float | None = None
        self.closed_s: float | None = None

    @property
    def planned(self) -> int:
        """Measured requests that the level sends at least, unless `max_s` ends it."""
        return self._level.requests_per_user * self._concurrency

    @property
    def window_s(self) -> tuple[float, float] | None:
        """The window of full concurrency, or None if it never opened, closed, or lasted."""
        if self.opened_s is None or self.closed_s is None or self.closed_s <= self.opened_s:
            return None
        return (self.opened_s, self.closed_s)

    def warm_up_again(self, sent: int, now_s: float) -> bool:
        """Whether a user that has sent `sent` warm-up requests sends another.

        The warm-up too ends after `max_s`, so that a slow server cannot hold a level for ever.
        """
        return sent < self._level.warmup_requests_per_user and (sent == 0 or now_s - self._begun_s < self._level.max_s)

    def leave_warmup(self, now_s: float) -> None:
        """A user is past its warm-up; call it once for each, before its first `take`."""
        self._in_warmup -= 1
        if self._in_warmup == 0:
            self.opened_s = now_s
            # Every other user has exactly one request in flight.
            self._issued = self._concurrency - 1

    def take(self, now_s: float) -> bool:
        """Whether a user past its warm-up starts a request now; once refused, always refused."""
        if self.closed_s is not None:
            return False
        if self._may_start(now_s):
            self._issued += 1
            return True
        self.closed_s = now_s
        return False

    def _may_start(self, now_s: float) -> bool:
        if self.opened_s is None:
            # Bounded by the warm-up of the others, which ends after max_s.
            return True
        elapsed_s = now_s - self.opened_s
        if elapsed_s >= self._level.max_s:
            return False
        return self._issued < self.planned or elapsed_s < self._level.min_s


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
