"""A chart as data: what plotly draws, and the sentence and the table that say the same.

Colours are names that begin with `@`; the page gives each its value in the light and in the dark scheme.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: The series' colours in order, after Okabe and Ito for the colour-blind, each with a symbol and a dash.
COLOURS = ("@c0", "@c1", "@c2", "@c3", "@c4", "@c5")
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "star")
DASHES = ("dash", "solid", "dot", "dashdot", "longdash", "longdashdot")
#: Of many points, as many stand in the table below a chart; files have them all.
MOST_ROWS = 60

Figure = Mapping[str, Any]
_NUMBER = re.compile(r"[+-]?[0-9][0-9,]*(\.[0-9]+)?( %)?")


@dataclass(frozen=True, slots=True)
class DataTable:
    """The figures of a chart as text."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    #: What is left out, and where it stands; None for a whole table.
    rest: str | None = None

    @property
    def numeric(self) -> tuple[bool, ...]:
        """By column, whether it holds numbers only."""
        return tuple(
            all(_NUMBER.fullmatch(row[place]) for row in self.rows if row[place]) for place in range(len(self.columns))
        )

    @classmethod
    def of(cls, columns: Sequence[str], rows: Sequence[Sequence[str]], where: str = "measurements.arrow") -> DataTable:
        """The first rows; `where` has the others."""
        rest = None
        if len(rows) > MOST_ROWS:
            rest = f"The first {MOST_ROWS} of {len(rows):,} rows; {where} has them all."
        return cls(tuple(columns), tuple(tuple(row) for row in rows[:MOST_ROWS]), rest)


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture of the page."""

    key: str
    title: str
    #: The picture in a sentence or two: its text alternative.
    text: str
    #: plotly's `data` and `layout`.
    figure: Figure
    table: DataTable
    #: CSS pixels.
    height: int = 380


def figure(traces: Sequence[Mapping[str, Any]], x: Mapping[str, Any], y: Mapping[str, Any], **layout: Any) -> Figure:
    """A figure with one pair of axes."""
    return {"data": list(traces), "layout": {"xaxis": dict(x), "yaxis": dict(y), **layout}}


def cell(value: object) -> str:
    """A value of a setting as text."""
    return "unset" if value is None else str(value)


def numeral(value: float | None, digits: int = 4) -> str:
    """A number with about so many digits, an empty text for none."""
    if value is None:
        return ""
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    whole = len(f"{abs(value):.0f}") if abs(value) >= 1 else 1
    return f"{value:,.{max(0, digits - whole)}f}"
