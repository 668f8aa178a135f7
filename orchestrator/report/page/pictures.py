"""The main pictures as PNG, drawn by matplotlib from the same data as the page's: no browser is needed."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any

import matplotlib
from matplotlib.ticker import NullLocator

from orchestrator.report.page.contents import Contents
from orchestrator.report.page.drawn import Importance
from orchestrator.report.page.front import Front
from orchestrator.report.page.ladder import Ladder

_COLOURS = ("#0067a8", "#c44900", "#00805f", "#a1467e", "#7a5c00", "#5a50b5")
_MARKERS = ("s", "o", "D", "^", "P", "v")
_DASHES = ("--", "-", ":", "-.", (0, (6, 2)), (0, (6, 2, 1, 2)))
_MUTED, _INK, _GRID = "#8a939e", "#16191d", "#dde1e6"
_DPI = 150
_WIDE = (8.6, 5.0)


def pictures(contents: Contents) -> dict[str, bytes]:
    """PNG by name, those that the study has something for."""
    view = contents.view
    title = view.config.study + (" (simulated)" if view.simulated else "")
    found: dict[str, bytes] = {}
    front = contents.front
    if front is not None:
        found["front"] = _drawn(lambda axes: _front(axes, front), f"{title}: a user's speed against the hardware's")
    for name, ladder in contents.ladders.items():
        words = f"{title}: {ladder.title[0].lower()}{ladder.title[1:]}"
        found[name] = _drawn(functools.partial(_ladder, ladder=ladder, order=list(view.featured)), words)
    if contents.importance is not None:
        important = contents.importance
        found["importance"] = _drawn(lambda axes: _importance(axes, important), f"{title}: what mattered", fitted=True)
    return found


def _drawn(draw: Callable[[Any], None], title: str, *, fitted: bool = False) -> bytes:
    # Not pyplot, whose state is the process's: the sweep has threads.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # A dollar sign in a setting is no formula.
    style: Any = {"font.size": 10, "axes.edgecolor": _GRID, "axes.labelcolor": "#4a525c", "text.parse_math": False}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=_WIDE, dpi=_DPI, layout="constrained" if fitted else None)
        if not fitted:
            # Names on the axes are short: what fitting them costs, half of the drawing, is saved.
            figure.subplots_adjust(left=0.085, right=0.985, top=0.925, bottom=0.105)
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=_GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.set_title(title, loc="left", color=_INK, fontsize=12, fontweight="bold", wrap=True)
        draw(axes)
        file = io.BytesIO()
        figure.savefig(file, format="png")
    return file.getvalue()


def _front(axes: Any, front: Front) -> None:
    edge = front.edge
    axes.plot([p.per_user for p in edge], [p.given for p in edge], ":", color=_INK, linewidth=1, zorder=2)
    styles = {
        "other settings": (_MUTED, "o", 26),
        "baseline": (_COLOURS[0], "s", 44),
        "on the front": (_COLOURS[2], "D", 40),
    }
    for name, points in front.kinds():
        colour, marker, size = styles.get(name, (_COLOURS[1], "*", 110))
        # Hollow: simulated.
        face = "none" if front.simulated else colour
        label = f"{name} ({'simulated' if front.simulated else 'measured'})"
        x, y = [p.per_user for p in points], [p.given for p in points]
        axes.scatter(
            x, y, s=size, marker=marker, edgecolors=colour, facecolors=face, linewidths=1.4, label=label, zorder=3
        )
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(front.x_title)
    axes.set_ylabel(front.y_title)
    axes.legend(frameon=False, fontsize=9)


def _ladder(axes: Any, ladder: Ladder, order: list[int]) -> None:
    places = ladder.places
    for position, line in enumerate(ladder.lines):
        style = order.index(line.trial)
        x = [ladder.shifted(position, p.place) for p in line.points]
        y = [p.value for p in line.points]
        spread = [[p.value - p.low for p in line.points], [p.high - p.value for p in line.points]]
        axes.errorbar(
            x,
            y,
            yerr=spread,
            color=_COLOURS[style],
            linestyle=_DASHES[style],
            marker=_MARKERS[style],
            markerfacecolor="none" if line.afresh else None,
            capsize=3,
            elinewidth=1,
            label=line.label,
        )
    axes.set_xscale("log")
    axes.set_xlim(places[0] / 1.25, places[-1] * 1.25)
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.set_ylim(*ladder.span)
    if ladder.logarithmic:
        axes.set_yscale("log")
        axes.set_yticks(ladder.marks)
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.axhline(0, color=_COLOURS[0], linewidth=1.6)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.set_xlabel(ladder.x_title)
    axes.set_ylabel(ladder.y_title)
    axes.legend(frameon=False, fontsize=9)


def _importance(axes: Any, found: Importance) -> None:
    names = [name for name, _ in found.shares][::-1]
    shares = [100 * share for _, share in found.shares][::-1]
    bars = axes.barh(names, shares, color=_COLOURS[0])
    axes.bar_label(bars, [f"{share:.0f} %" for share in shares], padding=4, fontsize=9)
    axes.set_xlim(0, 1.15 * max(shares))
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("share of the importance, %")
