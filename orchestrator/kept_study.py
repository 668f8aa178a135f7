"""A study as it stands on disk, read without disturbing the sweep that may be writing it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import optuna
from optuna.trial import FrozenTrial

from orchestrator.analysis.journal import Entry, entries, lost_text
from orchestrator.analysis.rows import Row, by_trial
from orchestrator.config import SweepConfig
from orchestrator.lock import alive
from orchestrator.results.fronts import frontier, pareto_front
from orchestrator.results.store import Results, ResultStore
from orchestrator.search.storage import StudyError, open_storage, sqlite_file
from orchestrator.search.trials import answered, by_ordinal, ended, lost
from orchestrator.standing import standing
from orchestrator.yaml_source import ConfigError, parse_sweep

#: What is said where trials were measured and the search's memory is not there.
NO_STORAGE = (
    "Optuna's storage was not found: give --storage URL, as the sweep was given it. Without it nothing is known of "
    "what is still to come"
)


class NoStudy(ValueError):
    """The folder holds no study that can be read. The text says why and the way out."""


@dataclass(frozen=True, slots=True)
class KeptStudy:
    """What a study's folder and its Optuna storage hold at one instant."""

    store: ResultStore
    config: SweepConfig
    study_id: str
    results: Results
    #: Every attempt of every launched trial by ordinal, as Optuna has them; empty where nothing was launched.
    attempts: Mapping[int, list[FrozenTrial]]
    #: Draws that were answered without a launch: duplicates, and what SGLang's rules refuse.
    answered: tuple[FrozenTrial, ...]
    #: Whether a sweep was at work on it.
    alive: bool
    #: What could not be read, a line each.
    notes: tuple[str, ...]

    @property
    def simulated(self) -> bool:
        """Whether its figures are a simulated server's."""
        return self.config.launcher.kind == "simulated"

    @property
    def memory(self) -> bool:
        """Whether the search's memory was found; without it nothing is known of what is still to come."""
        return bool(self.attempts) or not self.results.rows

    @property
    def lost(self) -> list[int]:
        """Trials that had an end which cannot be read any more: they are measured again."""
        return lost(self.attempts, {row.trial.trial for row in self.results.rows if row.outcome.state != "interrupted"})

    def has_end(self, rows: Sequence[Row]) -> bool:
        """Whether the trial of these rows has its end: by the search's memory as well, where that is there."""
        tries = self.attempts.get(rows[0].trial.trial)
        return rows[0].outcome.state != "interrupted" and (ended(tries) if tries else not self.attempts)

    def journal(self) -> list[Entry]:
        """A line for each trial: as the sweep keeps them in journal.arrow, with what has moved since. For what people
        noted see `results.journal.read_notes`.
        """
        rows = self.results.rows
        where = standing(self.config, self.attempts, self.answered, by_trial(rows), alive=self.alive)
        return entries(rows, self.config.score.objective, self.config.limits, where)


def open_study(folder: Path, storage: str | None = None) -> KeptStudy:
    """The study in `folder`, or in the one folder below it that holds one; `storage` is Optuna's, where it is not the
    folder's own SQLite file.

    Writes nothing. Raises NoStudy where there is none, `files.StoreError` and StudyError where it cannot be read.
    """
    root = study_root(folder)
    notes: list[str] = []
    store = ResultStore(root, on_message=notes.append, read_only=True)
    try:
        config, _ = parse_sweep(store.study_yaml.read_text(encoding="utf-8"), str(store.study_yaml))
        study_id = (root / "study.id").read_text(encoding="utf-8").strip()
    except (ConfigError, UnicodeDecodeError, OSError) as error:
        raise NoStudy(f"the study in {root} cannot be read: {error}") from error
    # Before the rows: an end is written before it is told, so that whatever is ended has been written by now.
    study = _search(store, f"{config.study}-{study_id}", storage)
    trials = study.get_trials(deepcopy=False) if study else []
    rows = store.rows()
    results = Results(tuple(rows), pareto_front(rows, config.objectives, config.limits), tuple(frontier(rows)))
    owner = study.user_attrs.get("owner") if study else None
    kept = KeptStudy(
        store,
        config,
        study_id,
        results,
        by_ordinal(trials),
        tuple(answered(trials)),
        owner is not None and alive(owner, time.time()),
        (),
    )
    if not kept.memory:
        notes.append(NO_STORAGE)
    if kept.lost:
        when = "by the next run" if kept.alive else "by the same command"
        notes.append(f"{lost_text(kept.lost)} measured again {when}")
    return dataclasses.replace(kept, notes=tuple(dict.fromkeys(notes)))


def study_root(folder: Path) -> Path:
    """The folder that holds the study: this one, or the one below it that does. Raises NoStudy."""
    if (folder / "study.yaml").is_file():
        return folder.resolve()
    below = sorted(path.parent for path in folder.glob("*/study.yaml"))
    if len(below) == 1:
        return below[0].resolve()
    if below:
        raise NoStudy(f"{folder} holds several studies, name one: {', '.join(map(str, below))}")
    if folder.is_dir():
        raise NoStudy(f"{folder} holds no study: a study's folder has a study.yaml, such as results/nccl")
    raise NoStudy(f"there is no folder {folder}: name a study's, such as results/nccl")


def _search(store: ResultStore, name: str, url: str | None) -> optuna.Study | None:
    """The search's memory; None where it is not there."""
    file = store.study_db if url is None else sqlite_file(url)
    if file is not None:
        # A file that is not there would be made.
        if not file.exists():
            return None
        if url is None:
            # Read only, so that no table is made and no lock for writing is taken.
            url = f"sqlite:///file:{quote(str(file))}?mode=ro&uri=true"
    assert url is not None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = open_storage(url)
    try:
        return optuna.load_study(study_name=name, storage=storage)
    except KeyError:
        # The folder was begun and the storage is not yet, or it is another's.
        return None


__all__ = ["KeptStudy", "NoStudy", "StudyError", "open_study", "study_root"]
