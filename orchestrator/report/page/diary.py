"""The journal's table: one line a trial, whatever its state, and what was not launched (yet)."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.report.page.chart import numeral
from orchestrator.report.page.view import View
from orchestrator.results.journal import read_notes


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the journal as the report shows it."""

    #: None for starts that were not launched (yet).
    trial: int | None
    role: str
    state: str
    settings: str
    score: str
    finding: str
    #: What people noted of it.
    notes: tuple[str, ...]


def journal_lines(view: View) -> list[Line]:
    """The journal at this instant, as `orchestrator.journal` prints it."""
    notes = read_notes(view.kept.store)
    found = []
    for entry in view.kept.journal():
        settings = entry.settings or ""
        if entry.repeats is not None:
            settings = f"{view.name(entry.repeats)} again"
        elif entry.trial is None and entry.count > 1:
            settings = f"{entry.count:,} of them"
        own = () if entry.trial is None else tuple(note.text for note in notes.get(entry.trial, ()))
        found.append(Line(entry.trial, entry.role, entry.state, settings, numeral(entry.score), entry.finding, own))
    return found
