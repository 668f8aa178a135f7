"""The Python door: a study on disk as Arrow and pandas tables, `from orchestrator import load_study`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from optuna.trial import TrialState

from orchestrator.analysis.constraints import feasible
from orchestrator.analysis.finding import Finding
from orchestrator.analysis.findings import findings
from orchestrator.analysis.rows import Row, by_trial, metric_value
from orchestrator.config import SweepConfig
from orchestrator.export.choice import Choice, NotExportable, choose
from orchestrator.kept_study import KeptStudy, NoStudy, StudyError, open_study
from orchestrator.offered_load import Load
from orchestrator.results import files
from orchestrator.results.fronts import frontier_table, pareto_table
from orchestrator.results.schemas import COUNTERS, REQUESTS, TRIALS
from orchestrator.results.store import ResultStore
from orchestrator.results.table_schema import TableSchema
from orchestrator.results.tables import measurements_table, rows_of, to_json

__all__ = ["LoadedStudy", "NoStudy", "StudyError", "load_study"]


def load_study(folder: str | Path, storage: str | None = None) -> LoadedStudy:
    """The study in `folder` (`results/nccl`) as it stands now, finished or running; nothing on disk is changed.

    `storage` is Optuna's, where it is not the folder's own SQLite file. Raises NoStudy where there is none,
    StudyError and `files.StoreError` where it cannot be read.
    """
    return LoadedStudy(open_study(Path(folder), storage))


class LoadedStudy:
    """A study at one instant; load it again to see what came since.

    Tables are Arrow's, with meaning and unit of each column in its metadata (docs/results.md).
    """

    def __init__(self, kept: KeptStudy) -> None:
        self._kept = kept

    @property
    def config(self) -> SweepConfig:
        """The search space as it runs: launcher resolved, options and blocks merged in."""
        return self._kept.config

    @property
    def simulated(self) -> bool:
        """Whether its figures are a simulated server's."""
        return self._kept.simulated

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self._kept.store.root

    @property
    def study_id(self) -> str:
        """Differs between studies of one name."""
        return self._kept.study_id

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be read, a line each."""
        return self._kept.notes

    @cached_property
    def measurements(self) -> pa.Table:
        """Every measured level, one row each, those of unfinished trials too."""
        return measurements_table([row for row in self._kept.results.rows if row.level is not None])

    @cached_property
    def trials(self) -> pa.Table:
        """Every trial that was begun, one row each, with its state and its score."""
        return TRIALS.table(_columns(self._trials()))

    @cached_property
    def pareto(self) -> pa.Table:
        """The front of the study's objectives."""
        return pareto_table(self._kept.results.pareto)

    @cached_property
    def frontier(self) -> pa.Table:
        """Tokens/s per user against tokens/s per GPU, over every trial and level of a closed loop."""
        return frontier_table(self._kept.results.frontier)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What the study says, the most important first."""
        return tuple(findings(self._kept.results.rows, self.config.score.objective, self.config.limits))

    @cached_property
    def best(self) -> Choice | None:
        """The confirmed winner, else the search's best, else the baseline, with the reason; None where no trial is
        complete and within the constraints."""
        try:
            return choose(self._kept)
        except NotExportable:
            return None

    def requests(self, trial: int) -> pa.Table:
        """The stamps and token counts of each request of a trial, level by level; empty where there are none."""
        return self._parts(trial, REQUESTS, ResultStore.requests_file, ResultStore.level_requests_file)

    def counters(self, trial: int) -> pa.Table:
        """The server's own counters over a trial, once a second; empty where none were read."""
        return self._parts(trial, COUNTERS, ResultStore.counters_file, ResultStore.level_counters_file)

    def to_pandas(self, table: str | pa.Table = "measurements") -> Any:
        """A table as a pandas DataFrame, columns of JSON as Python values.

        `table` is one of ours, or the name of a property that gives one. Raises ValueError for another name,
        ImportError without pandas.
        """
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise ImportError("pandas is not installed: `pip install pandas`, or use the Arrow table itself") from None
        names = ("measurements", "trials", "pareto", "frontier")
        if isinstance(table, str):
            if table not in names:
                raise ValueError(f"there is no table {table!r}: {', '.join(names)}; requests(trial), counters(trial)")
            table = getattr(self, table)
        frame = table.to_pandas()
        for field in table.schema:
            if (field.metadata or {}).get(b"format") == b"json":
                texts = table[field.name].to_pylist()
                frame[field.name] = [None if text is None else json.loads(text) for text in texts]
        return frame

    def _parts(
        self,
        trial: int,
        schema: TableSchema,
        whole: Callable[[ResultStore, int], Path],
        own: Callable[[ResultStore, int, Load], Path],
    ) -> pa.Table:
        """A trial's file, and what of its levels is not in it yet: a level's own file goes once it is."""
        store = self._kept.store
        loads = [row.level.load for row in self._kept.results.rows if row.level and row.trial.trial == trial]
        newest = {load: _table(own(store, trial, load), schema) for load in loads}
        merged = _table(whole(store, trial), schema)
        tables = [
            table if table is not None else None if merged is None else rows_of(merged, load)
            for load, table in newest.items()
        ]
        return pa.concat_tables([schema.arrow.empty_table(), *(table for table in tables if table is not None)])

    def _trials(self) -> Iterable[dict[str, Any]]:
        found = by_trial(self._kept.results.rows)
        for ordinal in sorted({*found, *self._kept.attempts}):
            rows, attempts = found.get(ordinal, []), self._kept.attempts.get(ordinal, [])
            running = bool(attempts) and attempts[-1].state is TrialState.RUNNING
            if rows or running:
                of = rows[0].trial.repeats if rows else None
                yield self._trial(ordinal, rows, () if of is None else found.get(of, ()), running)

    def _trial(self, ordinal: int, rows: Sequence[Row], repeated: Sequence[Row], running: bool) -> dict[str, Any]:
        objective, limits = self.config.score.objective, self.config.limits
        values: dict[str, Any] = dict.fromkeys(field.name for field in TRIALS.fields)
        values |= {"trial": ordinal, "state": "running" if running else None, "simulated": self.simulated}
        if not rows:
            return values
        first = rows[0]
        values |= {
            "role": first.trial.role,
            "repeats": first.trial.repeats,
            "state": "running" if running else first.outcome.state,
            "failure_kind": first.outcome.failure_kind,
            "failure_message": first.outcome.failure_message,
            "score": metric_value(rows, objective.metric),
            "feasible": feasible(rows, repeated, objective, limits),
            "output_differs": first.start.output_differs,
            "levels": sum(row.level is not None for row in rows),
            "started_at": first.start.started_at,
            "startup_s": first.start.startup_s,
            "identity": first.trial.identity,
            "requested_flags": to_json(first.trial.requested_flags),
            "requested_env": to_json(first.trial.requested_env),
            "launch_command": first.trial.launch_command,
        }
        return values


def _columns(rows: Iterable[dict[str, Any]]) -> dict[str, list[Any]]:
    kept = list(rows)
    return {field.name: [row[field.name] for row in kept] for field in TRIALS.fields}


def _table(path: Path, schema: TableSchema) -> pa.Table | None:
    try:
        return files.read_table(path, schema)
    except files.Unreadable as error:
        raise files.StoreError(f"cannot read {path}: {error}") from error
