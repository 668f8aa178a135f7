"""Everything a study keeps on disk: one class that knows each file's name, and the order of writing.

    levels/000012/c0128.requests.arrow    1. a level's requests, and c0128.counters.arrow, the server's counters over it
    levels/000012/c0128.arrow             2. the level: on disk from here on, whatever happens
    levels/000012/outcome.arrow           3. how the trial ended
    requests/000012.arrow                 4. the requests of all its levels, and counters/000012.arrow
    trials/000012.arrow                   5. the trial, made from 2 and 3
                                          6. the level's own files (1) are removed

Each step may be the last one before a kill, and each may be done again: the later files are functions of
the earlier ones, which are kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from orchestrator.analysis.objectives import Constraint, Objective
from orchestrator.analysis.rows import MeasuredLevel, Outcome, Row, StartInfo, TrialInfo
from orchestrator.offered_load import Load
from orchestrator.results import files
from orchestrator.results.fronts import (
    FrontierPoint,
    ParetoFront,
    frontier,
    frontier_table,
    pareto_front,
    pareto_table,
)
from orchestrator.results.schemas import COUNTERS, MEASUREMENTS, REQUESTS
from orchestrator.results.table_schema import TableSchema
from orchestrator.results.tables import measurements_table, rows_from, rows_of

_LOG = logging.getLogger(__name__)
#: Where levels are kept, and where older versions kept them.
_LEVELS, _OLD_LEVELS = "levels", "journal"
_TRIAL_FILE = re.compile(r"([0-9]{6,})\.arrow")
_TRIAL_FOLDER = re.compile(r"([0-9]{6,})")
_LEVEL_FILE = re.compile(r"(.+)\.arrow")
#: A level's row says so until its trial has an outcome: it is what the trial is if nothing follows.
_UNFINISHED = Outcome("interrupted")


@dataclass(frozen=True, slots=True)
class Results:
    """What `rebuild` wrote: every measured level, and the two fronts."""

    rows: tuple[Row, ...]
    pareto: ParetoFront
    frontier: tuple[FrontierPoint, ...]


class ResultStore:
    """The folder of one study. One process writes, others read: with `read_only`, at any time, even while the
    study runs. A reader writes, moves and mends nothing; what it cannot read counts as not there.

    Every method raises `files.StoreError` where the system refuses, or a file is of a later version.
    """

    def __init__(self, root: Path, on_message: files.OnMessage | None = None, *, read_only: bool = False) -> None:
        self.root = root
        self._read_only = read_only
        self.study_yaml = root / "study.yaml"
        self.study_db = root / "study.db"
        self.lock = root / "study.lock"
        self.logs = root / "logs"
        self.measurements_file = root / "measurements.arrow"
        self.pareto_file = root / "pareto.arrow"
        self.frontier_file = root / "frontier.arrow"
        self.journal_file = root / "journal.arrow"
        self.notes_folder = root / "notes"
        self._read: dict[Path, tuple[tuple[int, int, int], list[Row]]] = {}
        self._on_message = on_message or (lambda text: _LOG.warning("%s", text))

    def trial_file(self, trial: int) -> Path:
        """The trial's rows; exists once the trial has an outcome."""
        return self.root / "trials" / f"{trial:06d}.arrow"

    def requests_file(self, trial: int) -> Path:
        """The requests of all levels of the trial."""
        return self.root / "requests" / f"{trial:06d}.arrow"

    def levels_folder(self, trial: int) -> Path:
        """The folder of the trial's levels, each as it was measured."""
        folder, old = self.root / _LEVELS / f"{trial:06d}", self.root / _OLD_LEVELS / f"{trial:06d}"
        return old if self._read_only and old.is_dir() and not folder.is_dir() else folder

    def level_file(self, trial: int, load: Load) -> Path:
        """One level's row."""
        return self.levels_folder(trial) / f"{load.stem}.arrow"

    def level_requests_file(self, trial: int, load: Load) -> Path:
        """One level's requests, until they are part of `requests_file`."""
        return self.levels_folder(trial) / f"{load.stem}.requests.arrow"

    def counters_file(self, trial: int) -> Path:
        """The server's counters over all levels of the trial; absent where none were read."""
        return self.root / "counters" / f"{trial:06d}.arrow"

    def level_counters_file(self, trial: int, load: Load) -> Path:
        """The server's counters over one level, until they are part of `counters_file`."""
        return self.levels_folder(trial) / f"{load.stem}.counters.arrow"

    def outcome_file(self, trial: int) -> Path:
        """How the trial ended: one row without a level."""
        return self.levels_folder(trial) / "outcome.arrow"

    def write_level(
        self,
        trial: TrialInfo,
        start: StartInfo,
        level: MeasuredLevel,
        requests: pa.Table,
        counters: pa.Table | None = None,
    ) -> None:
        """Keep a measured level; `requests` is of `tables.requests_table`, `counters` of `tables.counters_table`.

        On return it is durable. A level of the same trial and load is replaced.
        """
        if start.start_id is None:
            raise ValueError("a level was measured on a start: start_id is missing")
        files.write_table(self.level_requests_file(trial.trial, level.load), requests)
        if counters is not None:
            files.write_table(self.level_counters_file(trial.trial, level.load), counters)
        else:
            # Of an earlier measurement of this level.
            self.level_counters_file(trial.trial, level.load).unlink(missing_ok=True)
        row = Row(trial, start, _UNFINISHED, level)
        files.write_table(self.level_file(trial.trial, level.load), measurements_table([row]))

    def levels(self, trial: int) -> list[Row]:
        """The levels measured so far, by load, finished trial or not.

        An unreadable level file is set aside: that level counts as not measured.
        """
        found = (Load.from_stem(match[1]) for match in _matches(self.levels_folder(trial), _LEVEL_FILE))
        rows = []
        for load in sorted(load for load in found if load is not None):
            read = self._rows(self.level_file(trial, load), trial)
            rows += [row for row in read or () if row.level and row.level.load == load]
        return rows

    def finish_trial(self, trial: TrialInfo, start: StartInfo, outcome: Outcome) -> list[Row]:
        """Keep how the trial ended, and make its files; returns its rows.

        `start` is the last one: levels measured on it take its teardown, those kept from an earlier start
        keep their own. May be called again, as after an interrupted trial was run again.
        """
        row = Row(trial, start, outcome, None)
        files.write_table(self.outcome_file(trial.trial), measurements_table([row]))
        rows = self._publish(trial.trial)
        assert rows is not None
        return rows

    def trial(self, trial: int) -> list[Row] | None:
        """The rows of a trial that has an outcome; None for one that has none (yet).

        A trial file that is missing or unreadable is made again from its levels.
        """
        path = self.trial_file(trial)
        existed = path.exists()
        rows = self._rows(path, trial)
        if rows and rows[0].outcome.state != "interrupted":
            return rows
        # An interrupted trial may have got further levels since its file was written.
        made = self._publish(trial, rows)
        if made is not None and existed and rows is None and not self._read_only:
            self._on_message(f"{path} was made again from its levels: {len(made)} row(s)")
        return made if made is not None else rows

    def trials(self) -> dict[int, list[Row]]:
        """The rows of every trial that has an outcome, by ordinal."""
        found = {number: self.trial(number) for number in self._known()}
        return {number: rows for number, rows in found.items() if rows is not None}

    def rows(self) -> list[Row]:
        """Every measured level, those of unfinished trials included (state interrupted), and one row for
        each trial that ended without any; by trial and load."""
        everything: list[Row] = []
        for number in self._known():
            everything += self.trial(number) or self.levels(number)
        return everything

    def recover(self) -> None:
        """Complete or remove what a killed run left half done: the writer's first call."""
        self._take_over_old_levels()
        for partial in sorted(self.root.rglob(".*.partial")):
            # Notes are written by anyone at any time: theirs may be on its way.
            if partial.parent != self.notes_folder:
                partial.unlink()
        for number in self._known():
            self.trial(number)
            own = (
                path for kind in ("requests", "counters") for path in self.levels_folder(number).glob(f"*.{kind}.arrow")
            )
            if self.outcome_file(number).exists() and any(own):
                self._publish(number)

    def rebuild(self, objectives: Sequence[Objective], constraints: Sequence[Constraint] = ()) -> Results:
        """Write measurements.arrow, pareto.arrow and frontier.arrow from the trials and their levels.

        Raises ValueError where simulated and measured rows stand together.
        """
        rows = self.rows()
        front = pareto_front(rows, objectives, constraints)
        points = frontier(rows)
        measured = [row for row in rows if row.level is not None]
        files.write_table(self.measurements_file, measurements_table(measured))
        files.write_table(self.pareto_file, pareto_table(front))
        files.write_table(self.frontier_file, frontier_table(points))
        return Results(tuple(rows), front, tuple(points))

    def _publish(self, trial: int, stored: list[Row] | None = None) -> list[Row] | None:
        """Make the trial's requests and trial file from its levels; None where it has no outcome.

        Rows already in the trial file are passed as `stored`, and not written again where nothing changed.
        """
        outcomes = self._rows(self.outcome_file(trial), trial)
        if not outcomes:
            return None
        end = outcomes[0]
        rows = [
            dataclasses.replace(
                row,
                trial=end.trial,
                outcome=end.outcome,
                start=end.start if row.start.start_id == end.start.start_id else row.start,
            )
            for row in self.levels(trial)
        ]
        if self._read_only or stored == (rows or [end]):
            return rows or [end]
        levels = [row.level for row in rows if row.level is not None]
        for lost in self._merge(self.requests_file, self.level_requests_file, REQUESTS, trial, levels):
            self._on_message(f"the requests of trial {trial} at {lost.load.label} are lost; its metrics are kept")
        self._merge(self.counters_file, self.level_counters_file, COUNTERS, trial, levels)
        files.write_table(self.trial_file(trial), measurements_table(rows or [end]))
        for level in levels:
            self.level_requests_file(trial, level.load).unlink(missing_ok=True)
            self.level_counters_file(trial, level.load).unlink(missing_ok=True)
        return rows or [end]

    def _merge(
        self,
        whole: Callable[[int], Path],
        own: Callable[[int, Load], Path],
        schema: TableSchema,
        trial: int,
        levels: Sequence[MeasuredLevel],
    ) -> list[MeasuredLevel]:
        """Put the levels' own files into the trial's; the levels of which nothing is there."""
        path = whole(trial)
        merged = files.read_or_set_aside(path, schema, self._on_message)
        parts, lost, changed = [], [], False
        for level in levels:
            part = files.read_or_set_aside(own(trial, level.load), schema, self._on_message)
            if part is not None:
                changed = True
            elif merged is not None:
                part = rows_of(merged, level.load)
            if part is None or not part.num_rows:
                lost.append(level)
            else:
                parts.append(part)
        if changed and parts:
            files.write_table(path, pa.concat_tables(parts))
        return lost

    def _rows(self, path: Path, trial: int) -> list[Row] | None:
        """The rows of a measurements file, if it is whole and of this trial.

        Read once while it stays the same file: a study is rebuilt after each of its trials.
        """
        stamp = _stamp(path)
        known = self._read.get(path)
        if stamp and known and known[0] == stamp:
            return list(known[1])
        try:
            table = files.read_table(path, MEASUREMENTS)
        except files.Unreadable as error:
            self._set_aside(path, str(error))
            return None
        if table is None:
            return None
        if table.num_rows and table["trial"].unique().to_pylist() == [trial]:
            rows = rows_from(table)
            if stamp:
                self._read[path] = (stamp, rows)
            return list(rows)
        self._set_aside(path, f"it holds no rows of trial {trial}, or others too")
        return None

    def _set_aside(self, path: Path, why: str) -> None:
        moved = "" if self._read_only else f" It was moved to {files.set_aside(path)};"
        self._on_message(f"{path} cannot be used: {why}.{moved} nothing was read from it")

    def _known(self) -> list[int]:
        finished = _matches(self.root / "trials", _TRIAL_FILE)
        started = [match for name in (_LEVELS, _OLD_LEVELS) for match in _matches(self.root / name, _TRIAL_FOLDER)]
        return sorted({int(match[1]) for match in [*finished, *started]})

    def _take_over_old_levels(self) -> None:
        """Bring the levels of a study of an older version under their name of today."""
        old, folder = self.root / _OLD_LEVELS, self.root / _LEVELS
        if not old.is_dir():
            return
        try:
            if folder.is_dir():
                for own in [path for path in old.iterdir() if not (folder / path.name).exists()]:
                    own.rename(folder / own.name)
                with contextlib.suppress(OSError):
                    old.rmdir()
            else:
                old.rename(folder)
            files.sync_folder(self.root)
        except OSError as error:
            raise files.StoreError(
                f"cannot move {old} to {folder}: {error.strerror or error}. Move it by hand and run again"
            ) from error


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Changes whenever the file's content does; None where there is none to be had."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _matches(folder: Path, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return [match for match in map(pattern.fullmatch, names) if match]
