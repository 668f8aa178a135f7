"""A quantity along the ladder as a chart, with its sentence and its table."""

from __future__ import annotations

import math

from orchestrator.report.page.chart import COLOURS, DASHES, SYMBOLS, Chart, DataTable, figure, numeral
from orchestrator.report.page.ladder import Ladder, Reached
from orchestrator.report.page.view import View


def ladder_chart(view: View, key: str, ladder: Ladder) -> Chart:
    """The ladder as a chart."""
    traces = []
    order = list(view.featured)
    for position, line in enumerate(ladder.lines):
        # A setting looks the same in every picture.
        style = order.index(line.trial)
        colour = COLOURS[style]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": line.label,
                "x": [ladder.shifted(position, point.place) for point in line.points],
                "y": [point.value for point in line.points],
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [point.high - point.value for point in line.points],
                    "arrayminus": [point.value - point.low for point in line.points],
                    "color": colour,
                    "thickness": 1.2,
                    "width": 4,
                },
                "customdata": [
                    [p.load.label, numeral(p.value), _span(p), p.starts, line.settings.replace(" ", "<br>")]
                    for p in line.points
                ],
                "hovertemplate": f"<b>{line.label}</b> at %{{customdata[0]}}: %{{customdata[1]}}<br>"
                "95 %: %{customdata[2]}, %{customdata[3]} start(s)<br>%{customdata[4]}<extra></extra>",
                "line": {"color": colour, "dash": DASHES[style], "width": 2},
                "marker": {"color": colour, "symbol": SYMBOLS[style] + ("-open" if line.afresh else ""), "size": 8},
            }
        )
    places = ladder.places
    x = {
        "title": {"text": ladder.x_title},
        "type": "log",
        "tickvals": places,
        "ticktext": [f"{place:g}" for place in places],
        "range": [math.log10(places[0] / 1.25), math.log10(places[-1] * 1.25)],
    }
    low, high = ladder.span
    y: dict[str, object] = {"title": {"text": ladder.y_title}, "range": [low, high], "zeroline": True}
    if ladder.logarithmic:
        y |= {"type": "log", "range": [math.log10(low), math.log10(high)]}
        y |= {"tickvals": ladder.marks, "ticktext": [f"{mark:,.10g}" for mark in ladder.marks]}
    else:
        y |= {"zerolinecolor": COLOURS[0], "zerolinewidth": 2}
    rows = [
        (line.label, p.load.label, numeral(p.value), _span(p), str(p.starts))
        for line in ladder.lines
        for p in line.points
    ]
    table = DataTable.of(("setting", "load", ladder.y_title, "95 % interval", "starts"), rows)
    return Chart(key, ladder.title, _text(ladder), figure(traces, x, y), table)


def _text(ladder: Ladder) -> str:
    parts = []
    for line in ladder.lines:
        ends = [line.points[0], line.points[-1]] if len(line.points) > 1 else [line.points[0]]
        parts.append(f"{line.label} " + " and ".join(f"{_figure(ladder, p)} at {p.load.label}" for p in ends))
    known = any(point.low < point.high for line in ladder.lines for point in line.points)
    bars = "Bars are 95 % intervals" if known else "There are no intervals"
    if not ladder.starts_known:
        bars += " within a start: what starts differ by was not measured" if known else ": nothing was started twice"
    return f"{ladder.y_title}: {'; '.join(parts)}. {bars}."


def _figure(ladder: Ladder, point: Reached) -> str:
    return numeral(point.value) if ladder.logarithmic else f"{point.value:+.1f}"


def _span(point: Reached) -> str:
    return "not known" if point.low == point.high else f"{numeral(point.low)} to {numeral(point.high)}"
