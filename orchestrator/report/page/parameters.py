"""What mattered: the parameters' importance, and the score against each of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import median
from typing import Any

from orchestrator.report.page.chart import COLOURS, Chart, DataTable, cell, figure, numeral
from orchestrator.report.page.drawn import Drawn, Importance
from orchestrator.report.page.scale import key_of, short, values_of
from orchestrator.report.page.view import View
from orchestrator.search.space import Knob

#: Points of one value lie beside each other, by a part of the way to the next value.
_SIDEWAYS = 0.16
#: So many points lie on each other.
_MANY = 200


def importance_chart(found: Importance | None, view: View) -> Chart | None:
    """The shares as bars."""
    if found is None:
        return None
    names = [name for name, _ in found.shares]
    shares = [100 * share for _, share in found.shares]
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": shares[::-1],
        "y": names[::-1],
        "text": [f"{share:.0f} %" for share in shares[::-1]],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": COLOURS[0]},
        "hovertemplate": "%{y}: %{x:.1f} %<extra></extra>",
    }
    first = ", ".join(f"{n} {s:.0f} %" for n, s in zip(names[:3], shares[:3], strict=True))
    text = (
        f"Which parameters decide whether a setting is among the best {100 * found.quantile:.0f} % of {found.trials} "
        f"by {view.objective.metric}: {first}. "
        "By Optuna's PED-ANOVA; with few trials it is a hint, not a measurement."
    )
    rows = [(name, f"{share:.1f} %") for name, share in zip(names, shares, strict=True)]
    x = {"title": {"text": "share of the importance, %"}, "range": [0, 1.3 * max(shares)]}
    y = {"ticksuffix": " ", "showgrid": False}
    height = 120 + 26 * len(rows)
    table = DataTable.of(("parameter", "share"), rows)
    return Chart("importance", "Importance of the parameters", text, figure([bars], x, y), table, height)


def slice_charts(view: View, own: Sequence[Knob], trials: Sequence[Drawn]) -> list[Chart]:
    """The score against each parameter, in the order given; those that took one value are left out."""
    return [chart for knob in own if (chart := _slice(view, knob, trials)) is not None]


def _slice(view: View, knob: Knob, trials: Sequence[Drawn]) -> Chart | None:
    mine = [one for one in trials if knob.name in one.params]
    values = values_of(knob, mine)
    if len(values) < 2:
        return None
    places = {key_of(value): place for place, value in enumerate(values)}
    listed = knob.parameter.choices is not None
    # The same study, the same picture.
    chance = random.Random(knob.name)
    x = [
        places[key_of(one.params[knob.name])] + chance.uniform(-_SIDEWAYS, _SIDEWAYS)
        if listed
        else one.params[knob.name]
        for one in mine
    ]
    traces: list[dict[str, Any]] = []
    best = view.answer.best
    for name, chosen, colour, symbol in (
        ("settings tried", [one.trial != best for one in mine], "@muted", "circle"),
        ("best", [one.trial == best for one in mine], COLOURS[1], "star"),
    ):
        points = [(at, one) for at, one, is_chosen in zip(x, mine, chosen, strict=True) if is_chosen]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [at for at, _ in points],
                "y": [one.score for _, one in points],
                "customdata": [[one.trial, cell(one.params[knob.name])] for _, one in points],
                "hovertemplate": "trial %{customdata[0]}, %{customdata[1]}: %{y:,.1f}<extra></extra>",
                "marker": {
                    "color": colour,
                    "symbol": symbol,
                    "size": 7 if name != "best" else 12,
                    "opacity": 0.75 if len(mine) < _MANY else 0.3,
                },
            }
        )
    groups = [
        (value, [one.score for one in mine if key_of(one.params[knob.name]) == key_of(value)]) for value in values
    ]
    if listed:
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "median",
                "x": [places[key_of(value)] for value, scores in groups if scores],
                "y": [median(scores) for _, scores in groups if scores],
                "hovertemplate": "median %{y:,.1f}<extra></extra>",
                "marker": {"color": COLOURS[0], "symbol": "line-ew-open", "size": 26, "line": {"width": 3}},
            }
        )
    axis: dict[str, Any] = {"title": {"text": ""}, "zeroline": False}
    if listed:
        # Of a long name with a colon each part has a line.
        words = [word if len(word) < 10 else word.replace(":", ":<br>") for word in (short(cell(v)) for v in values)]
        axis |= {
            "tickvals": list(range(len(values))),
            "ticktext": words,
            "tickfont": {"size": 11, "color": "@soft"},
            "tickangle": 0 if sum(map(len, words)) < 48 else "auto",
            "range": [-0.5, len(values) - 0.5],
            "showgrid": False,
        }
    elif knob.parameter.log:
        axis["type"] = "log"
    layout: dict[str, Any] = {"showlegend": False, "margin": {"l": 50, "r": 10, "t": 8, "b": 30}}
    base = view.score.value(0, view.objective.metric.load)
    if base is not None:
        layout["shapes"] = [_level(base.value)]
    measured = [(value, scores) for value, scores in groups if scores]
    top = max if view.objective.direction == "maximize" else min
    text = f"{view.objective.metric} by {knob.name}, median: " + ", ".join(
        f"{cell(value)} {numeral(median(scores))} ({len(scores)})" for value, scores in measured[:8]
    )
    rows = [(cell(v), str(len(s)), numeral(median(s)), numeral(top(s))) for v, s in measured]
    table = DataTable.of(("value", "trials", "median", "best"), rows)
    y = {"title": {"text": ""}, "rangemode": "tozero"}
    return Chart(f"slice-{knob.name}", knob.name, f"{text}.", figure(traces, axis, y, **layout), table, 220)


def _level(value: float) -> dict[str, Any]:
    """The baseline's score as a line across."""
    line = {"color": COLOURS[0], "width": 1.5, "dash": "dash"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": value, "y1": value, "line": line}
