"""The command line: `python -m orchestrator.journal results/nccl`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from orchestrator.analysis.explain import Explanation, explain_trial
from orchestrator.analysis.finding import Finding
from orchestrator.analysis.journal import STATES, Entry
from orchestrator.kept_study import KeptStudy, open_study
from orchestrator.report.console import plain_console
from orchestrator.report.journal import print_journal, print_trial
from orchestrator.results.journal import Note, add_note, read_notes
from orchestrator.results.store import ResultStore
from orchestrator.study_command import DONE, BadUsage, exit_code, study_parser


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = study_parser("journal", "What came of each trial of a study, in a line; safe while the sweep runs.")
    options.add_argument("--state", choices=STATES, help="only trials in this state")
    options.add_argument("--trial", type=_ordinal, metavar="N", help="one trial, with all that the rows tell of causes")
    options.add_argument("--note", nargs=2, metavar=("N", "TEXT"), help="note something of trial N, for good")
    options.add_argument("--json", action="store_true", help="for machines")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    options = parser().parse_args(arguments)
    return exit_code(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    study = open_study(options.study, options.storage)
    if options.note is not None:
        return _note(study, *options.note)
    return _show(study, options)


def _show(study: KeptStudy, options: argparse.Namespace) -> int:
    lines, notes = study.journal(), read_notes(study.store)
    if options.trial is not None:
        lines = [line for line in lines if line.trial == options.trial]
        if not lines:
            raise BadUsage(_unknown(study, options.trial))
    if options.state is not None:
        lines = [line for line in lines if line.state == options.state]
    if options.json:
        print(json.dumps(_data(study, lines, notes), indent=2, default=_plain, allow_nan=False))
        return DONE
    console = plain_console()
    if options.trial is not None and lines:
        findings = explain_trial(study.results.rows, options.trial, study.config.score.objective)
        print_trial(console, study, lines[0], findings, notes.get(options.trial, []))
    else:
        print_journal(console, study, lines, notes, options.state)
    return DONE


def _note(study: KeptStudy, number: str, text: str) -> int:
    try:
        trial = _ordinal(number)
    except argparse.ArgumentTypeError as error:
        raise BadUsage(f"--note: {error}") from error
    if trial not in _known(study):
        raise BadUsage(_unknown(study, trial))
    try:
        add_note(ResultStore(study.store.root), trial, text)
    except ValueError as error:
        raise BadUsage(str(error)) from error
    print(f"noted of trial {trial}")
    return DONE


def _data(study: KeptStudy, lines: Sequence[Entry], notes: Mapping[int, Sequence[Note]]) -> dict[str, Any]:
    why = Explanation(study.results.rows, study.config.score.objective)

    def line_data(line: Entry) -> dict[str, Any]:
        if line.trial is None:
            return {**dataclasses.asdict(line), "notes": [], "causes": []}
        return {
            **dataclasses.asdict(line),
            "notes": [{"written_at": n.written_at, "text": n.text} for n in notes.get(line.trial, ())],
            "causes": [_cause(finding) for finding in why.trial(line.trial)],
        }

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


def _cause(finding: Finding) -> dict[str, Any]:
    """The load of a row is null where its trial ended without any level."""
    rows = [{"trial": trial, "load": label or None} for trial, label in finding.rows]
    return {"kind": finding.kind, "text": finding.text, "rows": rows}


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


if __name__ == "__main__":
    sys.exit(main())
