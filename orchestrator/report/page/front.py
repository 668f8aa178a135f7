"""The front: what a user gets against what a GPU gives, every measured level a point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.report.page.chart import COLOURS, Chart, DataTable, figure, numeral
from orchestrator.report.page.view import View


@dataclass(frozen=True, slots=True)
class Point:
    """One level of one trial."""

    trial: int
    concurrency: int
    per_user: float
    #: tok/s per GPU, or of the server where it has none.
    given: float
    on_front: bool
    settings: str


@dataclass(frozen=True, slots=True)
class Front:
    """The points, and the names of the axes."""

    points: tuple[Point, ...]
    per_gpu: bool
    unit: str
    best: int | None
    simulated: bool

    @property
    def edge(self) -> list[Point]:
        """Those that no other dominates, from the fastest for a user on."""
        return sorted((p for p in self.points if p.on_front), key=lambda p: (-p.per_user, p.given))

    @property
    def x_title(self) -> str:
        """Of the axis."""
        return f"{self.unit} per user"

    @property
    def y_title(self) -> str:
        """Of the axis."""
        return f"{self.unit} per GPU" if self.per_gpu else self.unit

    def kinds(self) -> list[tuple[str, Sequence[Point]]]:
        """The points in groups that are drawn alike, each with its name."""
        front = self.edge
        groups = [
            ("other settings", [p for p in self.points if not p.on_front and p.trial not in (0, self.best)]),
            ("baseline", [p for p in self.points if p.trial == 0]),
            ("on the front", [p for p in front if p.trial not in (0, self.best)]),
        ]
        if self.best:
            groups.append((f"trial {self.best} (best)", [p for p in self.points if p.trial == self.best]))
        return [(name, points) for name, points in groups if points]


def front_of(view: View) -> Front | None:
    """None where no level can be shown."""
    points = [
        Point(
            point.row.trial.trial,
            point.concurrency,
            point.tokens_per_s_per_user,
            point.tokens_per_s if point.tokens_per_s_per_gpu is None else point.tokens_per_s_per_gpu,
            point.on_front,
            view.settings(point.row.trial.trial),
        )
        for point in view.kept.results.frontier
    ]
    if not points:
        return None
    per_gpu = all(point.tokens_per_s_per_gpu is not None for point in view.kept.results.frontier)
    return Front(tuple(points), per_gpu, view.unit, view.answer.best, view.simulated)


#: Of more points the names would lie on each other.
_MOST_NAMED = 8
_STYLE = {
    "other settings": ("@muted", "circle", 7),
    "baseline": (COLOURS[0], "square", 9),
    "on the front": (COLOURS[2], "diamond", 9),
}


def front_chart(view: View, front: Front) -> Chart:
    """The front as a chart."""
    edge = front.edge
    named = len(edge) <= _MOST_NAMED
    right = max(p.per_user for p in front.points)
    mark = "simulated" if front.simulated else "measured"
    traces: list[dict[str, object]] = [
        {
            "type": "scatter",
            "mode": "lines+text" if named else "lines",
            "name": "the front",
            "x": [p.per_user for p in edge],
            "y": [p.given for p in edge],
            "line": {"color": "@ink", "width": 1, "dash": "dot", "shape": "linear"},
            # Away from the mark.
            "text": [f"\u00a0\u00a0{view.name(p.trial)}, C={p.concurrency}" for p in edge] if named else [],
            "textposition": "top right",
            "textfont": {"size": 11, "color": "@soft"},
            "cliponaxis": False,
            "hoverinfo": "skip",
        }
    ]
    for name, points in front.kinds():
        colour, symbol, size = _STYLE.get(name, (COLOURS[1], "star", 12))
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"{name} ({mark})",
                "x": [p.per_user for p in points],
                "y": [p.given for p in points],
                "customdata": [[view.name(p.trial), p.concurrency, _wrapped(p.settings)] for p in points],
                "hovertemplate": "<b>%{customdata[0]}</b> at C=%{customdata[1]}, "
                + mark
                + "<br>%{x:,.1f} per user, %{y:,.1f}<br>%{customdata[2]}<extra></extra>",
                # Hollow: simulated.
                "marker": {"color": colour, "size": size, "symbol": f"{symbol}-open" if front.simulated else symbol}
                | {"line": {"width": 2 if front.simulated else 0}},
            }
        )
    first, last = edge[0], edge[-1]
    text = (
        f"{len(edge)} of {len(front.points)} {mark} levels are on the front: from {numeral(first.per_user)} "
        f"{front.x_title} ({view.name(first.trial)} at C={first.concurrency}) to {numeral(last.given)} {front.y_title} "
        f"({view.name(last.trial)} at C={last.concurrency})."
    )
    if front.simulated:
        text += " Every point is simulated, which its hollow mark says."
    rows = [
        (view.name(p.trial), str(p.concurrency), numeral(p.per_user), numeral(p.given), _yes(p.on_front), p.settings)
        for p in sorted(front.points, key=lambda p: (not p.on_front, p.trial, p.concurrency))
    ]
    columns = ("setting", "concurrency", front.x_title, front.y_title, "on the front", "settings")
    x = {"title": {"text": front.x_title}, "range": [0, (1.16 if named else 1.05) * right]}
    y = {"title": {"text": front.y_title}, "rangemode": "tozero"}
    table = DataTable.of(columns, rows, "frontier.arrow")
    return Chart("front", "What a user gets against what the hardware gives", text, figure(traces, x, y), table, 460)


def _yes(value: bool) -> str:
    return "yes" if value else ""


def _wrapped(settings: str) -> str:
    """One setting a line."""
    return settings.replace(" ", "<br>")
