"""A snapshot as lines of text: the same in the live view and in `orchestrator.status`.

Each line is one row of the terminal, so the height is known beforehand and nothing jumps.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from orchestrator.report.snapshot import FindingView, NodeView, Score, Snapshot

#: Columns of the progress bar, at most and at least.
_BAR, _BAR_MIN = 40, 10
_GAP = 2
#: Columns that a node's name may take, and what a node does altogether.
_NODE, _NODES = 18, 110
#: Below this width only what tells the nodes of a cluster apart is kept of their names.
_NARROW = 76
#: What a view of bounded height shows: settings of the running trials, so many of the front, so many findings; the
#: first that fits.
_PLANS = (
    *((True, front, found) for front, found in ((99, 99), (8, 8), (5, 6), (4, 4), (3, 3), (3, 2), (3, 1))),
    *((False, front, found) for front, found in ((3, 1), (3, 0), (1, 0), (0, 0))),
)
#: Lines of one finding in a view of bounded height.
_FINDING_LINES = 3


@dataclass(frozen=True)
class SnapshotView:
    """Rich's renderable of a snapshot."""

    snapshot: Snapshot
    #: Lines above: whether the sweep runs.
    head: tuple[Text, ...] = ()
    #: The line below: what the keys do.
    foot: Text | None = None
    #: Whether it has to fit the terminal's height.
    bounded: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # The last row stays free for the cursor.
        height = max(1, console.size.height - 1) if self.bounded else None
        lines = view(self.snapshot, options.max_width, height, self.head, self.foot)
        yield Text("\n", no_wrap=True, overflow="ellipsis").join(lines)


def view(
    snapshot: Snapshot, width: int, height: int | None, head: Sequence[Text] = (), foot: Text | None = None
) -> list[Text]:
    """The lines, none wider than `width`, no more than `height` (None: as many as it takes)."""
    top = [*(line for text in head for line in _wrapped(text, width)), *_summary(snapshot, width)]
    bottom = [] if foot is None else [Text(), foot]
    room = None if height is None else height - len(top) - len(bottom)
    most = None if height is None else _FINDING_LINES
    front, findings = _front(snapshot, width), _findings(snapshot.results.findings, width, most)
    body: list[Text] = []
    for with_settings, front_rows, found in _PLANS:
        nodes = _nodes(snapshot.nodes, width, with_settings)
        told = [line for lines in findings[:found] for line in lines]
        body = [
            *_block("", nodes, 0),
            *_block("", front[: 1 + front_rows], len(front) - 1 - front_rows),
            *_block("findings so far", told, len(findings) - found),
        ]
        if room is None or len(body) <= room:
            break
    else:
        # Next to no room: what the nodes do, without titles and blank lines.
        bottom = bottom[1:]
        body = _nodes(snapshot.nodes, width, False)[1 : 1 + max(0, (height or 0) - len(top) - len(bottom))]
    lines = [*top, *body, *bottom]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines if height is None else lines[:height]


def _wrapped(text: Text, width: int) -> list[Text]:
    """The text on as many lines as it takes."""
    return [Text(line, style=text.style) for line in textwrap.wrap(text.plain, width) or [""]]


def _block(title: str, lines: list[Text], left_out: int) -> list[Text]:
    """A blank line, a title where there is one, the lines, and how many were left out; nothing where there are none."""
    if len(lines) < (1 if title else 2):
        return []
    more = [Text(f"  and {left_out} more", style="dim")] if left_out > 0 else []
    return [Text(), *([Text(title, style="dim")] if title else []), *lines, *more]


def _summary(snapshot: Snapshot, width: int) -> list[Text]:
    """How far, since when and until when, and the best."""
    name = Text.assemble(("SIMULATED ", "bold yellow") if snapshot.simulated else "", (snapshot.study, "bold"))
    count = f"{snapshot.done} of {snapshot.planned} trials"
    columns = min(_BAR, width - name.cell_len - cell_len(count) - 2 * _GAP)
    if columns >= _BAR_MIN:
        filled = round(columns * min(1.0, snapshot.done / max(1, snapshot.planned)))
        name = Text.assemble(name, "  ", ("━" * filled, "green"), ("━" * (columns - filled), "bright_black"))
    score = snapshot.results.score
    best = best_text(score)
    return [
        Text.assemble(name, f"  {count}"),
        Text(time_text(snapshot)),
        Text(best if cell_len(best) <= width else short_metric(best), style="dim" if score.best is None else "bold"),
    ]


def time_text(snapshot: Snapshot) -> str:
    """`2:10, about 11:20 left · 0.04 node-hours, about 0.19 left`."""
    time = "" if snapshot.elapsed_s is None else f"{clock(snapshot.elapsed_s)}"
    time += "" if snapshot.left_s is None else f", about {clock(snapshot.left_s)} left"
    hours = f"{_hours(snapshot.node_hours)} node-hours"
    hours += "" if snapshot.node_hours_left is None else f", about {_hours(snapshot.node_hours_left)} left"
    return f"{time} · {hours}" if time else hours


def _hours(hours: float) -> str:
    return f"{hours:.2f}" if hours < 10 else f"{hours:,.1f}"


def best_text(score: Score) -> str:
    """The best score so far against the baseline's."""
    if score.best is None:
        return f"no {score.metric} yet"
    text = f"best {score.metric} {score.best:,.1f}"
    if score.best_trial == 0:
        starts = f", over {score.baseline_starts} starts" if (score.baseline_starts or 1) > 1 else ""
        return f"{text} (the baseline{starts}{'; none is confirmed better' if score.confirmed else ''})"
    gain = "" if score.gain is None else f", {100 * score.gain:+.1f} % on the baseline"
    end = " in fresh starts, confirmed" if score.confirmed else ": a tie" if score.verdict == "tie" else ""
    return f"{text} (trial {score.best_trial}{gain}{end})"


def short_metric(text: str) -> str:
    """The throughput by its unit."""
    return text.replace("output_tokens_per_s@", "tok/s@")


def _nodes(nodes: Sequence[NodeView], width: int, with_settings: bool) -> list[Text]:
    """A title; of each node a line of what it does and one of what it does it with."""
    if not nodes:
        return []
    width = min(width, _NODES)
    names = [_node_name(node.node, width) for node in nodes]
    told = [(f"{node.trial} {node.role}", so_far(node)) for node in nodes]
    rows = [("node", "trial", "so far"), *((name, *rest) for name, rest in zip(names, told, strict=True))]
    first, second, last = (max(cell_len(row[column]) for row in rows) for column in range(3))
    widths = (min(first, _NODE), second, max(0, width - min(first, _NODE) - second - last - 3 * _GAP), last)
    lines = [_columns(("node", "trial", "doing", "so far"), widths, "dim")]
    for (name, trial, rate), node in zip(rows[1:], nodes, strict=True):
        lines.append(_columns((name, trial, doing(node, widths[2]), rate), widths, "cyan"))
        lines += [Text(f"  {node.settings}", style="dim")] if with_settings else []
    return lines


def _node_name(name: str, width: int) -> str:
    """Without its domain; where there is little room, what tells two nodes of a host apart."""
    host, slash, rest = name.partition("/")
    return rest if slash and width < _NARROW else f"{host.partition('.')[0]}{slash}{rest}"


def _columns(cells: Sequence[str], widths: Sequence[int], style: str) -> Text:
    """Cells beside each other, the last one to the right; each as wide as it is said."""
    parts = []
    for number, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        if cell_len(cell) > width:
            cell = set_cell_size(cell, max(0, width - 1)) + "…" if width else ""
        pad = " " * (width - cell_len(cell))
        parts.append(pad + cell if number == len(cells) - 1 else cell + pad)
    return Text((" " * _GAP).join(parts).rstrip(), style=style)


def doing(node: NodeView, width: int | None = None) -> str:
    """The phase, and the level or how far the weights are: `measuring C=32`, `loading weights 45 % (72/160)`.

    Where `width` columns are too few for all of it, what tells most is kept.
    """
    if node.level is not None:
        texts = [f"{node.phase} {node.level}", node.level]
    elif node.shards:
        done, total = node.shards
        share = f"{100 * done // max(1, total)} %"
        texts = [
            f"{node.phase} {share} ({done}/{total})",
            f"{node.phase} {share}",
            f"{node.phase.split()[-1]} {share}",
            share,
        ]
    else:
        texts = [node.phase]
    if node.note:
        texts.insert(0, f"{texts[0]} ({node.note})")
    return next((text for text in texts if width is None or cell_len(text) <= width), texts[-1])


def so_far(node: NodeView) -> str:
    """Of a level `41/96  1,204 ±3.1 % tok/s`, of a start `2:10 of about 6:11`."""
    if node.elapsed_s is not None:
        return clock(node.elapsed_s) + ("" if node.about_s is None else f" of about {clock(node.about_s)}")
    parts = [f"{node.requests_done}/{node.requests_planned}"] if node.requests_planned else []
    if node.output_tokens_per_s:
        within = "" if node.half_width is None else f" ±{100 * node.half_width:.1f} %"
        parts.append(f"{node.output_tokens_per_s:,.0f}{within} tok/s")
    return "  ".join(parts)


def _front(snapshot: Snapshot, width: int) -> list[Text]:
    """A title and a line for each trial of the front."""
    now = snapshot.results
    rows = [("front so far", *map(short_metric, now.objectives), "settings")]
    for point in now.front:
        name = f"{point.trial} baseline" if point.role == "baseline" else str(point.trial)
        rows.append((name, *(f"{point.values[metric]:,.1f}" for metric in now.objectives), point.settings))
    sizes = [max(cell_len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = []
    for number, (name, *values, settings) in enumerate(rows):
        cells = [name.ljust(sizes[0]), *(value.rjust(size) for value, size in zip(values, sizes[1:], strict=True))]
        line = Text((" " * _GAP).join(cells), style="" if number else "dim")
        lines.append(line.append(f"{' ' * _GAP}{settings}", style="dim"))
    return lines


def _findings(findings: Sequence[FindingView], width: int, most: int | None) -> list[list[Text]]:
    """Each finding on lines of its own, the new ones first; at most so many lines of each."""
    found = []
    for finding in sorted(findings, key=lambda finding: not finding.new):
        text = f"{'+ new: ' if finding.new else '- '}{finding.text}"
        lines = [Text(line) for line in textwrap.wrap(text, max(20, width - 2), subsequent_indent="  ")]
        if most is not None and len(lines) > most:
            lines = lines[:most]
            lines[-1] = Text(f"{lines[-1].plain[: width - 2].rstrip(' .,')} …")
        if finding.new:
            lines[0].stylize("bold green", 0, len("+ new:"))
        found.append(lines)
    return found


def clock(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss."""
    whole = int(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
