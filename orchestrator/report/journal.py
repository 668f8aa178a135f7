"""The journal on a terminal, or as plain lines where the output is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.analysis.finding import Finding
from orchestrator.analysis.journal import STATES, Entry, one_line, whole
from orchestrator.kept_study import KeptStudy
from orchestrator.results.journal import Note

_STYLES = {
    "pending": "dim",
    "running": "bold cyan",
    "done": "green",
    "failed": "bold red",
    "infeasible": "yellow",
    "stopped": "magenta",
}
#: Below this many columns the settings stand under the finding, not beside it.
_WIDE = 110
_BANNER = "SIMULATED: every figure below comes from the simulated server, none from a GPU."


def print_journal(
    console: Console,
    study: KeptStudy,
    lines: Sequence[Entry],
    notes: Mapping[int, Sequence[Note]],
    state: str | None = None,
) -> None:
    """Every line, with the notes under their trials; `state`: what was asked for alone."""
    _heading(console, study)
    trials = [line for line in lines if line.trial is not None]
    others = [line for line in lines if line.trial is None]
    if not lines:
        console.print(f"No trial is {state}." if state else "Nothing was launched yet.", markup=False)
    elif console.is_terminal:
        console.print(_table(console, trials, notes))
        for line in others:
            console.print(Text.assemble((f"{line.state} ", _STYLES[line.state]), _unlaunched(line)))
    else:
        for line in trials:
            console.print(_plain_line(line), markup=False, soft_wrap=True)
            for note in _of(line, notes):
                console.print(f"{'':18}{_note_text(note)}", markup=False, soft_wrap=True)
        for line in others:
            console.print(f"{'':7}{line.state:<11}{_unlaunched(line)}", markup=False, soft_wrap=True)
    if trials and state is None:
        console.print(_counts(trials), style="dim", markup=False)
    for text in study.notes:
        console.print(f"not read: {text}", style="yellow", markup=False)


def print_trial(
    console: Console, study: KeptStudy, line: Entry, findings: Sequence[Finding], notes: Sequence[Note]
) -> None:
    """One trial whole: its line, settings, causes, notes, and the command to start it."""
    _heading(console, study)
    console.print(Text.assemble((f"trial {line.trial} ", "bold"), (line.state, _STYLES[line.state]), f"  {line.role}"))
    console.print(line.finding, markup=False, soft_wrap=not console.is_terminal)
    row = next((row for row in study.results.rows if row.trial.trial == line.trial), None)
    message = "" if row is None else row.outcome.failure_message or ""
    if one_line(message) != message:
        # The line has it cut, or without its line breaks.
        console.print(whole(message), markup=False, soft_wrap=not console.is_terminal)
    console.print(f"settings: {line.settings}", style="dim", markup=False, soft_wrap=not console.is_terminal)
    for finding in findings:
        console.print(f"- {finding.text}", markup=False, soft_wrap=not console.is_terminal)
        console.print(f"  {finding.rows_text}", style="dim", markup=False, soft_wrap=not console.is_terminal)
    for note in notes:
        text = f"{_note_head(note)}{whole(note.text)}"
        console.print(text, style="italic", markup=False, soft_wrap=not console.is_terminal)
    if row is not None and row.trial.launch_command:
        console.print(f"\n    {row.trial.launch_command}\n", markup=False, soft_wrap=True)


def _heading(console: Console, study: KeptStudy) -> None:
    if study.simulated:
        console.print(_BANNER, style="bold yellow")
    at_work = ", a sweep is at work on it" if study.alive else ""
    metric = study.config.score.objective.metric
    console.print(f"Study {study.config.study}, scored by {metric}{at_work}", markup=False)


def _table(console: Console, trials: Sequence[Entry], notes: Mapping[int, Sequence[Note]]) -> Table:
    wide = console.width >= _WIDE
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("trial", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("finding", ratio=3 if wide else None, overflow="fold")
    if wide:
        table.add_column("settings", ratio=2, overflow="fold", style="dim")
    for line in trials:
        text = Text(line.finding)
        if not wide and line.settings:
            text.append(f"\n{line.settings}", style="dim")
        for note in _of(line, notes):
            text.append(f"\n{_note_text(note)}", style="italic cyan")
        cells = [Text(str(line.trial)), Text(line.state, style=_STYLES[line.state]), text]
        table.add_row(*cells, *([Text(line.settings or "")] if wide else []))
    return table


def _plain_line(line: Entry) -> str:
    settings = f"  | {line.settings}" if line.settings else ""
    return f"{line.trial:>5}  {line.state:<10} {line.finding}{settings}"


def _unlaunched(line: Entry) -> str:
    return f"{line.count} {line.role}{'s' if line.count > 1 else ''}: {line.finding}"


def _note_text(note: Note) -> str:
    return f"{_note_head(note)}{one_line(note.text)}"


def _note_head(note: Note) -> str:
    return f"note of {note.written_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC: "


def _of(line: Entry, notes: Mapping[int, Sequence[Note]]) -> Sequence[Note]:
    return notes.get(line.trial, ()) if line.trial is not None else ()


def _counts(trials: Sequence[Entry]) -> str:
    counts = Counter(line.state for line in trials)
    return ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
