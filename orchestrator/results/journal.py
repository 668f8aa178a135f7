"""The journal on disk: its lines in one Arrow file, and what people note of trials, each note in a file of its own.

Notes are only ever added, whole and under a new name, so that they may be written while a sweep runs, by anyone.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from orchestrator.analysis.journal import Entry, Standing, entries
from orchestrator.analysis.rows import Row
from orchestrator.config import SweepConfig
from orchestrator.results import files
from orchestrator.results.schemas import JOURNAL, NOTES
from orchestrator.results.store import ResultStore


@dataclass(frozen=True, slots=True)
class Note:
    """What a person has to say of a trial."""

    trial: int
    written_at: datetime
    text: str


def journal_table(lines: Sequence[Entry], config: SweepConfig, study_id: str) -> pa.Table:
    """The lines as a table of `schemas.JOURNAL`."""
    fixed = {
        "study": config.study,
        "study_id": study_id,
        "score_name": str(config.score.objective.metric),
        "simulated": config.launcher.kind == "simulated",
    }
    columns = {
        name: [fixed[name] if name in fixed else getattr(line, name) for line in lines] for name in JOURNAL.arrow.names
    }
    return JOURNAL.table(columns)


def write_journal(
    store: ResultStore, config: SweepConfig, study_id: str, rows: Sequence[Row], standing: Standing
) -> None:
    """Keep the journal as it stands. Raises StoreError where the system refuses."""
    lines = entries(rows, config.score.objective, config.limits, standing)
    files.write_table(store.journal_file, journal_table(lines, config, study_id))


def add_note(store: ResultStore, trial: int, text: str, at: datetime | None = None) -> Note:
    """Add a note to a trial. Needs no lock: nothing that stands is changed.

    Raises ValueError for an empty text, StoreError where the system refuses.
    """
    text = text.strip()
    if not text:
        raise ValueError("the note is empty: write what there is to say of the trial")
    note = Note(trial, at or datetime.now(UTC), text)
    stamp = f"{note.written_at.astimezone(UTC):%Y%m%dT%H%M%S%f}"
    table = NOTES.table({"trial": [trial], "written_at": [note.written_at], "text": [text]})
    files.write_table(store.notes_folder / f"{trial:06d}-{stamp}-{uuid.uuid4().hex[:8]}.arrow", table)
    return note


def read_notes(store: ResultStore) -> dict[int, list[Note]]:
    """Every note by trial, the oldest first. A file that is no whole note is left out, and left alone.

    Raises StoreError where the system refuses, or a note is of a later version of this program.
    """
    found: dict[int, list[Note]] = {}
    for path in _note_files(store.notes_folder):
        try:
            table = files.read_table(path, NOTES)
        except files.Unreadable:
            continue
        for row in table.to_pylist() if table is not None else []:
            found.setdefault(row["trial"], []).append(Note(row["trial"], row["written_at"], row["text"]))
    for notes in found.values():
        notes.sort(key=lambda note: note.written_at)
    return dict(sorted(found.items()))


def _note_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.arrow") if not path.name.startswith("."))
