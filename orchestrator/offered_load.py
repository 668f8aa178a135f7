"""What a level offers the server: so many users in a closed loop, or so many requests a second. Pure."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass

#: Rates are told apart to a thousandth of a request per second, so that each has one text and one file name.
_DECIMALS = 3
_STEM = re.compile(r"(?:c(?P<users>[0-9]{4,})|r(?P<rate>[0-9]{4,}\.[0-9]{3}))(?:-(?P<repeat>[0-9]+))?")
_TEXT = re.compile(r"(?P<users>[0-9]+)|(?P<rate>[0-9]+(?:\.[0-9]+)?)rps")


@functools.total_ordering
@dataclass(frozen=True, slots=True)
class Load:
    """A closed loop of `concurrency` users, or an open one of `request_rate` requests per second.

    It is the key of a level: closed loops come before open ones, each by its size, a repeat after what it repeats.
    Raises ValueError for both or neither, and for a size that is none.
    """

    concurrency: int | None = None
    #: Requests per second.
    request_rate: float | None = None
    #: Above 0 for a further measurement of the same load in the same start.
    repeat: int = 0

    def __post_init__(self) -> None:
        if (self.concurrency is None) == (self.request_rate is None):
            raise ValueError("a load has a concurrency or a request rate: one of them")
        if self.concurrency is not None and self.concurrency < 1:
            raise ValueError(f"{self.concurrency}: a concurrency is 1 or more")
        if self.request_rate is not None:
            rate = self.request_rate
            if not math.isfinite(rate) or rate <= 0:
                raise ValueError(f"{rate}: a request rate is above 0 requests per second")
            if round(rate, _DECIMALS) != rate:
                raise ValueError(f"{rate}: a request rate has at most {_DECIMALS} decimals")
        if self.repeat < 0:
            raise ValueError(f"{self.repeat}: the first measurement of a load is repeat 0")

    @classmethod
    def parse(cls, text: str) -> Load:
        """The load that `text` tells: `128`, `2.5rps`. Raises ValueError."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no load; write 128 for users, 2.5rps for requests per second")
        return cls(int(match["users"])) if match["users"] else cls(request_rate=float(match["rate"]))

    @classmethod
    def from_stem(cls, stem: str) -> Load | None:
        """The load of a file's `stem`; None where it names none."""
        match = _STEM.fullmatch(stem)
        if match is None:
            return None
        repeat = int(match["repeat"] or 0)
        return cls(int(match["users"]), None, repeat) if match["users"] else cls(None, float(match["rate"]), repeat)

    @property
    def closed(self) -> bool:
        """Whether each user waits for the answer before it sends again."""
        return self.concurrency is not None

    @property
    def first(self) -> Load:
        """The same load as it is measured first."""
        return Load(self.concurrency, self.request_rate)

    @property
    def text(self) -> str:
        """`128`, `2.5rps`: as a metric has it after the @. The repeat is not told."""
        return str(self.concurrency) if self.request_rate is None else f"{_plain(self.request_rate)}rps"

    @property
    def label(self) -> str:
        """For a person: `C=8`, `2.5 req/s`; a second measurement is `C=8 again`, a third `C=8 (3)`."""
        name = f"C={self.concurrency}" if self.request_rate is None else f"{_plain(self.request_rate)} req/s"
        return name + ("" if not self.repeat else " again" if self.repeat == 1 else f" ({self.repeat + 1})")

    @property
    def when(self) -> str:
        """While it is offered, in a sentence: `under 8 users`, `at 2.5 req/s`."""
        return f"under {self.concurrency} users" if self.request_rate is None else f"at {self.label}"

    @property
    def stem(self) -> str:
        """For a file's name: `c0008`, `r0002.500`, a repeat `c0008-1`."""
        name = f"c{self.concurrency:04d}" if self.request_rate is None else f"r{self.request_rate:08.{_DECIMALS}f}"
        return name + (f"-{self.repeat}" if self.repeat else "")

    def __lt__(self, other: Load) -> bool:
        return self._order < other._order

    @property
    def _order(self) -> tuple[bool, float, int]:
        size = self.concurrency if self.request_rate is None else self.request_rate
        return (not self.closed, size or 0.0, self.repeat)


def _plain(rate: float) -> str:
    return f"{rate:.{_DECIMALS}f}".rstrip("0").rstrip(".")
