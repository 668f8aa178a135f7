"""Throughput, gain and time per token along the ladder, for the baseline, the winner and a few others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.analysis.confirmation import Confirmation
from orchestrator.analysis.noise import Value
from orchestrator.analysis.objectives import parse_objective
from orchestrator.analysis.settings_at import Along, along
from orchestrator.benchmark.intervals import Interval
from orchestrator.offered_load import Load
from orchestrator.report.page.view import View

#: Lines stand so much beside each other (a factor, the axis being logarithmic) that intervals are told apart.
_APART = 1.03


@dataclass(frozen=True, slots=True)
class Reached:
    """A setting's value at one load, with its 95 % interval; ends equal to it where nothing is known of its spread."""

    load: Load
    value: float
    low: float
    high: float
    starts: int

    @property
    def place(self) -> float:
        """On the axis."""
        return float(self.load.concurrency if self.load.concurrency is not None else self.load.request_rate or 0.0)


@dataclass(frozen=True, slots=True)
class Line:
    """One setting along the ladder."""

    trial: int
    #: `trial 11 (winner)`.
    label: str
    settings: str
    points: tuple[Reached, ...]
    #: Of a confirmation's rounds, not of the search.
    afresh: bool = False


@dataclass(frozen=True, slots=True)
class Ladder:
    """One quantity along the ladder."""

    title: str
    y_title: str
    x_title: str
    lines: tuple[Line, ...]
    #: Of a quantity that spans decades; a gain in percent does not.
    logarithmic: bool = True
    #: Whether the intervals hold what starts of one setting differ by.
    starts_known: bool = True

    @property
    def places(self) -> list[float]:
        """The loads."""
        return sorted({point.place for line in self.lines for point in line.points})

    @property
    def span(self) -> tuple[float, float]:
        """The ends of the axis: by the values, since an interval of two starts may be a hundred times as wide."""
        values = [point.value for line in self.lines for point in line.points]
        low, high = min(values), max(values)
        if self.logarithmic:
            return low / 1.4, high * 1.4
        ends = [end for line in self.lines for point in line.points for end in (point.low, point.high)]
        room = max(10.0, 0.25 * (high - low))
        most = max(20.0, 0.8 * (high - low))
        return max(low - most, min(low - room, min(ends))), min(high + most, max(high + room, max(ends)))

    @property
    def marks(self) -> list[float]:
        """Round numbers of a logarithmic axis: 1, 2 and 5 of each decade, of many decades 1 alone."""
        low, high = self.span
        steps = (1, 2, 5) if high / low < 2000 else (1,)
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        return [mark for decade in decades for step in steps if low <= (mark := step * 10.0**decade) <= high]

    def shifted(self, position: int, place: float) -> float:
        """Where the points of the line at `position` are drawn."""
        return float(place * _APART ** (position - (len(self.lines) - 1) / 2))


def ladders_of(view: View) -> dict[str, Ladder]:
    """The pictures along the ladder, by key, those that the study has something for."""
    made = {"gain": _gain(view), "throughput": _throughput(view), "tpot": _token_time(view)}
    return {key: ladder for key, ladder in made.items() if ladder is not None}


def _throughput(view: View) -> Ladder | None:
    """Output tokens per second along the ladder."""
    return _ladder(view, "output_tokens_per_s", "Throughput along the ladder", view.unit)


def _token_time(view: View) -> Ladder | None:
    """Time per output token along the ladder."""
    return _ladder(view, "tpot_ms.mean", "Time per output token along the ladder", f"{view.prefix}TPOT, ms (mean)")


def _gain(view: View) -> Ladder | None:
    """Throughput against the baseline's, in percent; None where there is nothing beside it."""
    loads, found = _along(view, "output_tokens_per_s")

    def ratio(trial: int, load: Load) -> Interval | None:
        return None if trial == 0 else _in_percent(found.ratio(trial, 0, load))

    def afresh(proof: Confirmation, trial: int, load: Load) -> Interval | None:
        return None if trial == 0 else _in_percent(proof.ratio)

    y_title = f"{view.prefix}tok/s against the baseline, %"
    title = "Gain over the baseline along the ladder"
    return _lines(view, loads, found, ratio, afresh, title, y_title, logarithmic=False)


def _in_percent(ratio: Interval | None) -> Interval | None:
    return None if ratio is None else Interval(*(100 * (end - 1) for end in (ratio.mean, ratio.low, ratio.high)))


def _ladder(view: View, metric: str, title: str, unit: str) -> Ladder | None:
    loads, found = _along(view, metric)

    def afresh(proof: Confirmation, trial: int, load: Load) -> Interval | None:
        return found.spread(Value(proof.value if trial else proof.baseline, None, proof.rounds), load)

    return _lines(view, loads, found, found.interval, afresh, title, unit, logarithmic=True)


def _along(view: View, metric: str) -> tuple[list[Load], Along]:
    closed = [load for load in view.config.workload.ladder if load.closed]
    loads = closed or list(view.config.workload.ladder)
    objective = parse_objective(f"{metric}@{loads[0].text}")
    own = view.objective.metric
    if (own.name, own.stat) == (objective.metric.name, objective.metric.stat) and not set(loads) - set(
        view.score.ladder
    ):
        return loads, view.score
    return loads, along(view.rows, objective, loads)


def _lines(
    view: View,
    loads: list[Load],
    found: Along,
    interval: Callable[[int, Load], Interval | None],
    afresh: Callable[[Confirmation, int, Load], Interval | None],
    title: str,
    y_title: str,
    *,
    logarithmic: bool,
) -> Ladder | None:
    lines = []
    for trial, why in view.featured.items():
        points = []
        for load in loads:
            value, reached = found.value(trial, load), interval(trial, load)
            if value is not None and reached is not None:
                points.append(Reached(load, reached.mean, reached.low, reached.high, value.starts))
        if points:
            label = "baseline" if trial == 0 else f"trial {trial} ({why})"
            lines.append(Line(trial, label, view.settings(trial), tuple(points)))
    if lines:
        lines += _afresh(view, loads, found, afresh)
    x_title = "concurrency (users)" if loads[0].closed else "requests per second"
    known = any(found.floors[load] is not None for load in loads)
    return Ladder(title, y_title, x_title, tuple(lines), logarithmic, known) if lines else None


def _afresh(
    view: View, loads: list[Load], found: Along, interval: Callable[[Confirmation, int, Load], Interval | None]
) -> list[Line]:
    """What the confirmation's starts gave, of the finalists and of the baseline in the same rounds."""
    points: dict[int, dict[Load, Reached]] = {}
    for (trial, load), proof in sorted(found.fresh.items()):
        for of in (0, trial) if load in loads and trial in view.featured else ():
            reached = interval(proof, of, load)
            if reached is not None:
                point = Reached(load, reached.mean, reached.low, reached.high, proof.rounds)
                points.setdefault(of, {}).setdefault(load, point)
    return [
        Line(trial, f"{view.name(trial)} in fresh starts", view.settings(trial), tuple(own.values()), afresh=True)
        for trial, own in sorted(points.items())
    ]
