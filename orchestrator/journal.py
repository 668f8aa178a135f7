"""The command line: `python -m orchestrator.journal results/nccl`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from orchestrator.analysis.explain import explain_trial
from orchestrator.analysis.journal import STATES, Entry
from orchestrator.kept_study import KeptStudy, NoStudy, StudyError, open_study
from orchestrator.report.console import plain_console
from orchestrator.report.journal import print_journal, print_trial
from orchestrator.results.files import StoreError
from orchestrator.results.journal import Note, add_note, read_notes
from orchestrator.results.store import ResultStore

FINISHED, FAILED, BAD_USAGE = 0, 1, 2


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(
        prog="python -m orchestrator.journal",
        description="What came of each trial of a study, in a line; safe while the sweep runs.",
    )
    options.add_argument("study", type=Path, help="the study's folder, such as results/nccl")
    options.add_argument("--state", choices=STATES, help="only trials in this state")
    options.add_argument("--trial", type=_ordinal, metavar="N", help="one trial, with all that the rows tell of causes")
    options.add_argument("--note", nargs=2, metavar=("N", "TEXT"), help="note something of trial N, for good")
    options.add_argument("--json", action="store_true", help="for machines")
    options.add_argument("--storage", metavar="URL", help="Optuna's storage, where the sweep was given one")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    options = parser().parse_args(arguments)
    try:
        study = open_study(options.study, options.storage)
        if options.note is not None:
            return _note(study, *options.note)
        return _show(study, options)
    except NoStudy as error:
        return _fail(str(error), BAD_USAGE)
    except (StoreError, StudyError) as error:
        return _fail(str(error), FAILED)


def _show(study: KeptStudy, options: argparse.Namespace) -> int:
    lines, notes = study.journal(), read_notes(study.store)
    if options.trial is not None:
        lines = [line for line in lines if line.trial == options.trial]
        if not lines:
            return _fail(_unknown(study, options.trial), BAD_USAGE)
    if options.state is not None:
        lines = [line for line in lines if line.state == options.state]
    if options.json:
        print(json.dumps(_data(study, lines, notes), indent=2, default=_plain, allow_nan=False))
        return FINISHED
    console = plain_console()
    if options.trial is not None and lines:
        findings = explain_trial(study.results.rows, options.trial, study.config.score.objective)
        print_trial(console, study, lines[0], findings, notes.get(options.trial, []))
    else:
        print_journal(console, study, lines, notes, options.state)
    return FINISHED


def _note(study: KeptStudy, number: str, text: str) -> int:
    try:
        trial = _ordinal(number)
    except argparse.ArgumentTypeError as error:
        return _fail(f"--note: {error}", BAD_USAGE)
    if trial not in _known(study):
        return _fail(_unknown(study, trial), BAD_USAGE)
    try:
        add_note(ResultStore(study.store.root), trial, text)
    except ValueError as error:
        return _fail(str(error), BAD_USAGE)
    print(f"noted of trial {trial}")
    return FINISHED


def _data(study: KeptStudy, lines: Sequence[Entry], notes: Mapping[int, Sequence[Note]]) -> dict[str, Any]:
    def line_data(line: Entry) -> dict[str, Any]:
        own = notes.get(line.trial, ()) if line.trial is not None else ()
        return {**dataclasses.asdict(line), "notes": [{"written_at": n.written_at, "text": n.text} for n in own]}

    return {
        "study": study.config.study,
        "study_id": study.study_id,
        "simulated": study.simulated,
        "sweep_running": study.alive,
        "score": str(study.config.score.objective.metric),
        "trials": [line_data(line) for line in lines if line.trial is not None],
        "not_launched": [line_data(line) for line in lines if line.trial is None],
        "unread": list(study.notes),
    }


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is no JSON")


def _known(study: KeptStudy) -> set[int]:
    return {*study.attempts, *(row.trial.trial for row in study.results.rows)}


def _unknown(study: KeptStudy, trial: int) -> str:
    known = sorted(_known(study))
    has = f"it has trials {known[0]} to {known[-1]}" if known else "nothing of it has been launched yet"
    return f"there is no trial {trial} in the study in {study.store.root}: {has}"


def _ordinal(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is no trial's number; write 0 for the baseline, 1, 2, ...")
    return int(text)


def _fail(text: str, code: int) -> int:
    print(f"error: {text}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
