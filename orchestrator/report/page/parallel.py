"""All settings beside each other: every one a line from parameter to parameter, from top to bottom to fit a phone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.report.page.chart import Chart, DataTable, cell, figure, numeral
from orchestrator.report.page.drawn import Drawn
from orchestrator.report.page.scale import key_of, note, short, values_of
from orchestrator.report.page.view import View
from orchestrator.search.space import Knob

#: Lines in so many shades, from the worst scores to the best.
_SHADES = 6
#: In place of the value of a parameter whose condition does not hold.
ABSENT = "–"


def parallel_chart(view: View, own: Sequence[Knob], trials: Sequence[Drawn]) -> Chart | None:
    """Every setting a line from parameter to parameter, from top to bottom so that it fits a phone."""
    shown = [knob for knob in own if len(values_of(knob, [one for one in trials if knob.name in one.params])) > 1]
    if len(trials) < 2 or len(shown) < 2:
        return None
    axes = [(knob.name, _axis(knob, trials)) for knob in shown]
    lowest, highest = min(one.score for one in trials), max(one.score for one in trials)
    sign = 1 if view.objective.direction == "maximize" else -1
    ranked = sorted(trials, key=lambda one: (sign * one.score, one.trial))
    traces: list[dict[str, Any]] = []
    for shade in range(_SHADES):
        group = ranked[shade * len(ranked) // _SHADES : (shade + 1) * len(ranked) // _SHADES]
        if group:
            traces.append(_lines(group, axes, lowest, highest, f"@s{shade}", shade == _SHADES - 1))
    annotations: list[dict[str, Any]] = []
    for row, (name, values) in enumerate([*axes, (str(view.objective.metric), [lowest, highest])]):
        annotations.append(note(0, -row, name, xanchor="left", yshift=16, bold=True))
        score = row == len(axes)
        for value in _ticks(values):
            place = _along(value, values) if not score else (value - lowest) / ((highest - lowest) or 1)
            label = numeral(value) if score else short(cell(value))
            annotations.append(note(place, -row, label, yshift=-12, xanchor=_anchor(place)))
    hidden = {"visible": False, "fixedrange": True}
    shapes = [
        {
            "type": "line",
            "x0": 0,
            "x1": 1,
            "y0": -row,
            "y1": -row,
            "line": {"color": "@grid", "width": 2},
            "layer": "below",
        }
        for row in range(len(axes) + 1)
    ]
    layout = {
        "annotations": annotations,
        "shapes": shapes,
        "showlegend": False,
        "margin": {"l": 16, "r": 16, "t": 24, "b": 8},
    }
    x = hidden | {"range": [-0.03, 1.03]}
    y = hidden | {"range": [-len(axes) - 0.4, 0.4]}
    best = ranked[-1]
    text = (
        f"{len(trials)} settings, each a line through its values down to its score, the best sixth in orange. The "
        f"best, trial {best.trial} ({numeral(best.score)}), took "
        f"{', '.join(f'{name} {cell(best.params[name])}' for name, _ in axes if name in best.params)}."
    )
    columns = ("trial", *(name for name, _ in axes), str(view.objective.metric))
    rows = [
        (str(one.trial), *(cell(one.params[n]) if n in one.params else "" for n, _ in axes), numeral(one.score))
        for one in ranked[::-1]
    ]
    height = 60 + 62 * (len(axes) + 1)
    return Chart(
        "parallel",
        "All settings beside each other",
        text,
        figure(traces, x, y, **layout),
        DataTable.of(columns, rows),
        height,
    )


def _lines(
    group: Sequence[Drawn],
    axes: Sequence[tuple[str, list[Any]]],
    lowest: float,
    highest: float,
    colour: str,
    best: bool,
) -> dict[str, Any]:
    x: list[float | None] = []
    y: list[float | None] = []
    for one in group:
        for row, (name, values) in enumerate(axes):
            x.append(_along(one.params.get(name, ABSENT), values))
            y.append(-row)
        x += [(one.score - lowest) / ((highest - lowest) or 1), None]
        y += [-len(axes), None]
    line = {"color": colour, "width": 2.4 if best else 1.2}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, "opacity": 0.8, "hoverinfo": "skip"}


def _anchor(place: float) -> str:
    return "left" if place < 0.05 else "right" if place > 0.95 else "center"


def _axis(knob: Knob, trials: Sequence[Drawn]) -> list[Any]:
    """The values, before them that of settings to which the parameter does not apply."""
    values = values_of(knob, [one for one in trials if knob.name in one.params])
    return [ABSENT, *values] if any(knob.name not in one.params for one in trials) else values


def _along(value: Any, values: Sequence[Any]) -> float:
    """Where a value stands between the first and the last of its axis, 0 to 1: evenly, by its rank."""
    keys = [key_of(one) for one in values]
    return keys.index(key_of(value)) / (len(values) - 1)


def _ticks(values: Sequence[Any]) -> list[Any]:
    """Few enough to be read: all of six, else the first, the middle and the last."""
    return list(values) if len(values) <= 6 else [values[0], values[len(values) // 2], values[-1]]
