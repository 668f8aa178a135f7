"""What a person sees while the sweep runs: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from launchers.base import Phase
from orchestrator.board import NodeStatus, StartStatus
from orchestrator.offered_load import Load
from orchestrator.report.estimate import PhaseSeconds, total_s

#: A start that stays in one phase is told of again after this.
_AGAIN_S = 60.0


@dataclass(frozen=True)
class Snapshot:
    """The state of the sweep at one instant."""

    simulated: bool
    done: int
    trials: int
    elapsed_s: float
    left_s: float | None
    nodes: tuple[NodeStatus, ...]
    score_name: str
    baseline: float | None
    best: float | None
    best_trial: int | None
    stopping: bool
    #: Earlier starts of the study, for an estimate.
    starts: tuple[PhaseSeconds, ...] = ()


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
    """A few lines that are redrawn, below the lines that stay."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._live.start()

    def update(self, snapshot: Snapshot) -> None:
        self._live.update(
            Text("\n").join([headline(snapshot), *(node_line(node, snapshot.starts) for node in snapshot.nodes)])
        )

    def say(self, text: str) -> None:
        self._live.console.print(text, markup=False)

    def close(self) -> None:
        self._live.stop()


class PlainDisplay:
    """A line for each change of phase, and each minute of a start, so that a log tells the story without noise."""

    def __init__(self, console: Console) -> None:
        self._console = console
        #: What was told last of each node, and when.
        self._told: dict[str, tuple[tuple[int, str, Load | None], float]] = {}

    def update(self, snapshot: Snapshot) -> None:
        now_s = snapshot.elapsed_s
        for node in snapshot.nodes:
            key = (node.ordinal, node.phase, node.load)
            told, at_s = self._told.get(node.node, (None, now_s))
            if told != key or (node.start is not None and now_s - at_s >= _AGAIN_S):
                self._told[node.node] = (key, now_s)
                at = "" if node.load is None else f" {node.load.label}"
                self.say(f"[{clock(now_s)}] trial {node.ordinal}: {doing(node, snapshot.starts)}{at}")

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def close(self) -> None:
        pass


def headline(snapshot: Snapshot) -> Text:
    """`trial 3 of 16 · 02:10, about 11:20 left · best 2,431 (trial 2, +2.6 % on the baseline)`."""
    parts = []
    if snapshot.simulated:
        parts.append(("SIMULATED ", "bold yellow"))
    left = "" if snapshot.left_s is None else f", about {clock(snapshot.left_s)} left"
    parts.append((f"{snapshot.done} of {snapshot.trials} trials · {clock(snapshot.elapsed_s)}{left}", ""))
    parts.append((f" · {best_text(snapshot)}", "bold" if snapshot.best is not None else "dim"))
    if snapshot.stopping:
        parts.append((" · stopping (Ctrl-C again: at once)", "bold red"))
    return Text.assemble(*parts)


def best_text(snapshot: Snapshot) -> str:
    """The best score so far against the baseline's."""
    if snapshot.best is None:
        return f"no {snapshot.score_name} yet"
    text = f"best {snapshot.score_name} {snapshot.best:,.1f}"
    if snapshot.best_trial == 0:
        return f"{text} (the baseline)"
    if snapshot.baseline is None:
        return f"{text} (trial {snapshot.best_trial})"
    gain = 100 * (snapshot.best / snapshot.baseline - 1)
    return f"{text} (trial {snapshot.best_trial}, {gain:+.1f} % on the baseline)"


def node_line(node: NodeStatus, earlier: Sequence[PhaseSeconds] = ()) -> Text:
    """`  vm/3fa2c1  trial 3  measuring C=32  41/96  1,204 tok/s`; `earlier` starts give an estimate."""
    text = f"  {node.node}  trial {node.ordinal}  {doing(node, earlier)}"
    if node.load is not None:
        text += f" {node.load.label}"
    if node.total:
        text += f"  {node.done}/{node.total}"
    if node.output_tokens_per_s:
        text += f"  {node.output_tokens_per_s:,.0f} tok/s"
    return Text(text, style="cyan")


def doing(node: NodeStatus, earlier: Sequence[PhaseSeconds]) -> str:
    """The phase; of a start `loading weights 45 % (72/160)  2:10 of about 5:30`."""
    return node.phase if node.start is None else f"{node.phase}{_how_far(node.start, earlier)}"


def _how_far(start: StartStatus, earlier: Sequence[PhaseSeconds]) -> str:
    text = ""
    if start.progress.shards:
        done, total = start.progress.shards
        text += f" {100 * done // max(1, total)} % ({done}/{total})"
    if start.progress.note:
        text += f" ({start.progress.note})"
    about_s = None if start.progress.phase is Phase.READY else total_s(start, earlier)
    return f"{text}  {clock(start.elapsed_s)}" + ("" if about_s is None else f" of about {clock(about_s)}")


def clock(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss."""
    whole = int(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def trial_line(
    ordinal: int, role: str, state: str, note: str, levels: Sequence[tuple[Load, float | None]], settings: str
) -> str:
    """The line that stays when a trial is over."""
    rates = "  ".join(f"{load.label} {'-' if v is None else format(v, ',.1f')}" for load, v in levels)
    return f"trial {ordinal} {role}: {state}{f' ({note})' if note else ''}  {rates}  | {settings}"
