"""Optuna's storage behind a URL, patient with other programs that hold the database for a moment."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError, SQLAlchemyError

T = TypeVar("T")

#: Gives the storage where no --storage does: a command line, with its password, can be read by everyone on the machine.
VARIABLE = "ORCHESTRATOR_STORAGE"

#: What Optuna's cache calls on the storage below it, and the rest of the public interface (Optuna 5.0.0,
#: storages/_cached_storage.py). Each is one transaction, so that it can be repeated whole.
_CALLS = frozenset(
    {
        "create_new_study",
        "delete_study",
        "set_study_user_attr",
        "set_study_system_attr",
        "get_study_id_from_name",
        "get_study_name_from_id",
        "get_study_directions",
        "get_study_user_attrs",
        "get_study_system_attrs",
        "get_all_studies",
        "_create_new_trial",
        "_set_trial_param",
        "get_trial_id_from_study_id_trial_number",
        "_get_best_trial_id",
        "set_trial_state_values",
        "set_trial_intermediate_value",
        "set_trial_user_attr",
        "set_trial_system_attr",
        "get_trial",
        "_get_trials",
    }
)


class StudyError(RuntimeError):
    """The stored study cannot be used; the text says why and the way out."""


@dataclass(frozen=True)
class Patience:
    """How long a locked database is waited for: SQLite's own wait, and how often a call is made in all."""

    busy_s: float = 5.0
    tries: int = 4
    pause_s: float = 1.0

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """The call's result. Raises StudyError for a database that stays locked, or fails otherwise."""
        for left in reversed(range(self.tries)):
            try:
                return function(*args, **kwargs)
            except (StorageInternalError, SQLAlchemyError) as error:
                # Optuna wraps SQLAlchemy's errors in its own.
                cause = error if isinstance(error, SQLAlchemyError) else error.__cause__
                if not isinstance(cause, OperationalError) or "locked" not in str(cause):
                    raise StudyError(
                        f"the study's database failed: {_one_line(cause or error)}. What was measured is on "
                        "disk: mend the database and run the same command again"
                    ) from error
                if not left:
                    raise StudyError(
                        "the study's database is locked by another program for too long "
                        f"({_one_line(cause)}); what was measured is on disk. Close the program (a dashboard, "
                        "a database browser) and run the same command again"
                    ) from error
            time.sleep(self.pause_s)
        raise AssertionError("unreachable")


class _PatientStorage(RDBStorage):
    """Makes each call as often as its patience has it."""

    def __init__(self, url: str, patience: Patience) -> None:
        self._patience = patience
        wait = {"connect_args": {"timeout": patience.busy_s}} if url.startswith("sqlite") else {}
        super().__init__(url, engine_kwargs=wait)

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        return functools.partial(self._patience.call, value) if name in _CALLS else value


def open_storage(url: str, patience: Patience | None = None) -> optuna.storages.BaseStorage:
    """The storage behind a URL. Raises StudyError where it cannot be opened; no password reaches the text."""
    patience = patience or Patience()
    shown = shown_url(url)
    try:
        return patience.call(_PatientStorage, url, patience)
    except NoSuchModuleError as error:
        raise StudyError(f"the storage {shown} cannot be opened: {_one_line(error)}") from error
    except (ImportError, RuntimeError) as error:
        raise StudyError(f"the storage {shown} cannot be opened: {_one_line(error)}") from error


def sqlite_file(url: str) -> Path | None:
    """The file behind an SQLite URL; None for any other, or in memory. Raises StudyError where it is no URL."""
    parsed = _parsed(url)
    name = parsed.database
    if parsed.get_backend_name() != "sqlite" or name in (None, "", ":memory:") or name.startswith("file:"):
        return None
    return Path(name)


def shown_url(url: str) -> str:
    """A storage's URL without its password. Raises StudyError where it is none."""
    return _parsed(url).render_as_string(hide_password=True)


def _parsed(url: str) -> URL:
    try:
        return make_url(url)
    except ArgumentError:
        raise StudyError(
            "the storage is no database URL: write sqlite:////folder/study.db or postgresql://user@host/name"
        ) from None


def _one_line(error: BaseException) -> str:
    """An error without SQLAlchemy's statement, parameters and link."""
    text = str(getattr(error, "orig", None) or error).strip() or type(error).__name__
    return " ".join(text.splitlines()[0].split())
