"""NCCL's protocol and algorithm two by two."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.report.page.chart import Chart, DataTable, cell, figure, numeral
from orchestrator.report.page.drawn import Drawn
from orchestrator.report.page.scale import note
from orchestrator.report.page.view import View

#: The NCCL variables of the heat map.
PROTOCOL, ALGORITHM = "NCCL_PROTO", "NCCL_ALGO"


def heat_chart(view: View, trials: Sequence[Drawn]) -> Chart | None:
    """The best score of each NCCL protocol with each algorithm; None unless both were searched."""
    both = [one for one in trials if PROTOCOL in one.params and ALGORITHM in one.params]
    protocols = sorted({cell(one.params[PROTOCOL]) for one in both}, key=_unset_first)
    algorithms = sorted({cell(one.params[ALGORITHM]) for one in both}, key=_unset_first)
    if len(protocols) < 2 or len(algorithms) < 2:
        return None
    top = max if view.objective.direction == "maximize" else min
    cells: dict[tuple[str, str], list[Drawn]] = {}
    for one in both:
        cells.setdefault((cell(one.params[ALGORITHM]), cell(one.params[PROTOCOL])), []).append(one)
    best = {key: top(group, key=lambda one: one.score) for key, group in cells.items()}
    z = [[best[a, p].score if (a, p) in best else None for p in protocols] for a in algorithms]
    words = [
        [
            f"{numeral(best[a, p].score)}<br>{len(cells[a, p])} tried" if (a, p) in best else "not tried"
            for p in protocols
        ]
        for a in algorithms
    ]
    # Against the page's own colours a number would be unreadable on some cell: each has the one that contrasts.
    scores = [one.score for one in best.values()]
    turn = min(scores) + 0.8 * (max(scores) - min(scores))
    notes = [
        note(column, row, "", yshift=0)
        | {
            "text": words[row][column],
            "font": {"size": 12, "color": "@heat-low" if (z[row][column] or 0) < turn else "@heat-high"},
            "bgcolor": "rgba(0,0,0,0)",
        }
        if z[row][column] is not None
        else note(column, row, words[row][column], yshift=0)
        for row in range(len(algorithms))
        for column in range(len(protocols))
    ]
    heat = {
        "type": "heatmap",
        "x": list(range(len(protocols))),
        "y": list(range(len(algorithms))),
        "z": z,
        "colorscale": "@heat",
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "hoverinfo": "skip",
    }
    key = top(best, key=lambda pair: best[pair].score)
    text = (
        f"{view.objective.metric} of each NCCL protocol with each algorithm: best with {PROTOCOL}={key[1]} and "
        f"{ALGORITHM}={key[0]}, {numeral(best[key].score)} (trial {best[key].trial}). A cell is its best setting, "
        "whatever else that setting had."
    )
    rows = [
        (a, p, numeral(best[a, p].score), str(len(cells[a, p])), str(best[a, p].trial))
        for a in algorithms
        for p in protocols
        if (a, p) in best
    ]
    x = {
        "title": {"text": PROTOCOL},
        "tickvals": list(range(len(protocols))),
        "ticktext": protocols,
        "showgrid": False,
        "zeroline": False,
    }
    y = {
        "title": {"text": ALGORITHM},
        "tickvals": list(range(len(algorithms))),
        "ticktext": algorithms,
        "showgrid": False,
        "zeroline": False,
    }
    table = DataTable.of((ALGORITHM, PROTOCOL, "best", "tried", "trial"), rows)
    fig = figure([heat], x, y, annotations=notes, showlegend=False)
    return Chart("nccl", "NCCL protocol and algorithm", text, fig, table, 120 + 74 * len(algorithms))


def _unset_first(text: str) -> tuple[bool, str]:
    return text != "unset", text
