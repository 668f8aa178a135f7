"""What a person sees while the sweep runs: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from orchestrator.offered_load import Load
from orchestrator.report.snapshot import Snapshot
from orchestrator.report.view import SnapshotView, clock, doing, so_far

#: A start that stays in one phase is told of again after this.
_AGAIN_S = 60.0

#: What Ctrl-C does now, by how often it was pressed.
_KEYS = (
    ("Ctrl-C: finish the level, then stop. Twice: stop now", "dim"),
    ("stopping after this level. Ctrl-C again: stop now", "bold red"),
    ("stopping now: the servers are taken down", "bold red"),
)


class Display(Protocol):
    """Observes the sweep."""

    def update(self, snapshot: Snapshot) -> None:
        """Called about twice a second."""

    def say(self, text: str) -> None:
        """One line that stays."""

    def close(self) -> None:
        """Nothing follows."""


def make_display(console: Console) -> Display:
    """Live on a terminal, lines elsewhere."""
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


class LiveDisplay:
    """A view that is redrawn in place, below the lines that stay."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._live.start()

    def update(self, snapshot: Snapshot) -> None:
        self._live.update(SnapshotView(snapshot, foot=keys(snapshot.stopping)))

    def say(self, text: str) -> None:
        self._live.console.print(text, markup=False)

    def close(self) -> None:
        # The last frame would be drawn once more before it is wiped.
        self._live.update(Text())
        self._live.stop()


class PlainDisplay:
    """A line for each change of phase, and each minute of a start, so that a log tells the story without noise."""

    def __init__(self, console: Console) -> None:
        self._console = console
        #: What was told last of each node, and when.
        self._told: dict[str, tuple[tuple[int, str, str | None], float]] = {}
        self._found: set[str] = set()

    def update(self, snapshot: Snapshot) -> None:
        for finding in snapshot.results.findings:
            if finding.new and finding.text not in self._found:
                self._found.add(finding.text)
                self.say(f"found: {finding.text}")
        now_s = snapshot.elapsed_s or 0.0
        for node in snapshot.nodes:
            key = (node.trial, node.phase, node.level)
            told, at_s = self._told.get(node.node, (None, now_s))
            if told != key or (node.elapsed_s is not None and now_s - at_s >= _AGAIN_S):
                self._told[node.node] = (key, now_s)
                start = "" if node.elapsed_s is None else f"  {so_far(node)}"
                self.say(f"[{clock(now_s)}] trial {node.trial}: {doing(node)}{start}")

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def close(self) -> None:
        pass


def keys(stopping: int) -> Text:
    """What Ctrl-C does now."""
    text, style = _KEYS[min(stopping, len(_KEYS) - 1)]
    return Text(text, style=style)


def trial_line(
    ordinal: int, role: str, state: str, note: str, levels: Sequence[tuple[Load, float | None]], settings: str
) -> str:
    """The line that stays when a trial is over."""
    rates = "  ".join(f"{load.label} {'-' if v is None else format(v, ',.1f')}" for load, v in levels)
    return f"trial {ordinal} {role}: {state}{f' ({note})' if note else ''}  {rates}  | {settings}"
