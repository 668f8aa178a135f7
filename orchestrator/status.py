"""Where a study stands, from another shell: `python -m orchestrator.status results/nccl`.

It only reads: the `live.json` that the sweep writes every two seconds, and the study's files where that does not say
it. `--json` prints one object:

    version       1; raised where a key changes its meaning
    folder        the study's folder
    state         running | finished | interrupted | failed | killed | unknown
    text          the same in a sentence
    owner         {"host", "pid"} of the sweep that ran last, null where it is not known
    heard_of_s    seconds since it last wrote, null where it never did
    late          whether it runs but has not written for 15 s
    command       what continues the study, null where it is not known
    notes         what could not be read, a list of sentences
    snapshot      see `report.snapshot.Snapshot`: done, planned, elapsed_s, left_s, node_hours, nodes, results, ...

Exit codes: 0 it runs or is finished, 1 the study cannot be read, 2 bad usage or no study there, 3 it neither runs nor
is finished.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.live import Live
from rich.text import Text

from orchestrator import lock
from orchestrator.analysis.cost import node_s
from orchestrator.analysis.rows import by_trial
from orchestrator.kept_study import KeptStudy, open_study, study_root
from orchestrator.live_file import LATE_S, LiveState, live_path, read_live
from orchestrator.report.console import plain_console
from orchestrator.report.snapshot import Snapshot, results_view
from orchestrator.report.view import SnapshotView
from orchestrator.study_command import DONE, BadUsage, exit_code, study_parser

#: Beside those of `study_command`.
STOPPED = 3
VERSION = 1
_WATCH_S = 1.0
_WELL = ("running", "finished")
_ORIGIN = re.compile(r"# As run by (?P<space>.+): launcher resolved")

StateName = Literal["running", "finished", "interrupted", "failed", "killed", "unknown"]


@dataclasses.dataclass(frozen=True)
class Status:
    """Where a study stands, and whether its sweep runs."""

    folder: Path
    state: StateName
    text: str
    owner: dict[str, Any] | None
    heard_of_s: float | None
    command: str | None
    notes: tuple[str, ...]
    snapshot: Snapshot

    @property
    def late(self) -> bool:
        """Whether it runs and is silent all the same."""
        return self.state == "running" and self.heard_of_s is not None and self.heard_of_s > LATE_S

    @property
    def code(self) -> int:
        """The exit code."""
        return DONE if self.state in _WELL else STOPPED

    def as_data(self) -> dict[str, Any]:
        """As the JSON has it."""
        return {
            "version": VERSION,
            "folder": str(self.folder),
            "state": self.state,
            "text": self.text,
            "owner": self.owner,
            "heard_of_s": self.heard_of_s,
            "late": self.late,
            "command": self.command,
            "notes": list(self.notes),
            "snapshot": self.snapshot.as_data(),
        }


def status_of(folder: Path, storage: str | None = None, now: float | None = None) -> Status:
    """Where the study in the folder stands. Raises NoStudy, StoreError and StudyError."""
    root = study_root(folder)
    now = time.time() if now is None else now
    live = read_live(live_path(root))
    if live is not None and live.snapshot is not None and live.alive(now):
        return _told(root, live, now, live.snapshot, ())
    study = open_study(root, storage)
    snapshot = kept_snapshot(study, live)
    if live is not None:
        return _told(root, live, now, snapshot, study.notes)
    return _untold(study, snapshot, now)


def kept_snapshot(study: KeptStudy, live: LiveState | None = None) -> Snapshot:
    """The snapshot that a study's files amount to; the times are those that its last sweep told, if it did."""
    rows = study.results.rows
    groups = [group for group in by_trial(rows).values() if study.has_end(group)]
    over, done = [row for group in groups for row in group], len(groups)
    told = None if live is None else live.snapshot
    hours = node_s(rows) / 3600
    return Snapshot(
        study=study.config.study,
        simulated=study.simulated,
        done=done,
        planned=max(done, study.config.budget.trials) if told is None else max(done, told.planned),
        elapsed_s=None if told is None else told.elapsed_s,
        left_s=None,
        node_hours=hours if told is None else max(hours, told.node_hours),
        node_hours_left=None,
        results=results_view(study.config, over),
    )


def _told(root: Path, live: LiveState, now: float, snapshot: Snapshot, notes: tuple[str, ...]) -> Status:
    """By what the sweep wrote last."""
    heard_s = max(0.0, now - live.written_at)
    who, ago = lock.describe(live.owner), f"heard of {_ago(heard_s)} ago"
    state: StateName = live.state
    if live.alive(now):
        text = f"The sweep runs: {who}, {ago}."
        if heard_s > LATE_S:
            text = f"The sweep was last {ago}, and {who} still runs: it may be stopped, or the machine overloaded."
    elif live.state == "running":
        state = "killed"
        text = f"The sweep was last {ago}; {who} is not running any more. It was killed, or its machine went down."
    elif live.state == "finished":
        text = f"The sweep is finished ({_ago(heard_s)} ago): {live.reason}."
    else:
        text = f"The sweep {'was' if live.state == 'interrupted' else 'has'} {live.state} ({_ago(heard_s)} ago)"
        text += f": {live.reason}."
    owner = {"host": live.owner.get("host"), "pid": live.owner.get("pid")}
    text = f"{text.rstrip('.')}."
    return Status(root, state, text, owner, heard_s, live.command, notes, snapshot)


def _untold(study: KeptStudy, snapshot: Snapshot, now: float) -> Status:
    """Of a study that no sweep has written a `live.json` for."""
    origin = _ORIGIN.match(study.store.study_yaml.read_text(encoding="utf-8"))
    command = None if origin is None else f"python -m orchestrator.sweep {shlex.quote(origin['space'])}"
    left = any(entry.state in ("pending", "running", "stopped") for entry in study.journal())
    owner = _locked_by(study.store.lock, now)
    state: StateName = "unknown"
    text = "Whether its sweep runs is not known: it has left no live.json."
    if owner is not None:
        state, text = "running", f"The sweep runs: {lock.describe(owner)}. It has not told yet where it stands."
    elif study.memory and snapshot.done and not left:
        state, text = "finished", "The sweep is finished: the budget is used up."
    names = None if owner is None else {"host": owner.get("host"), "pid": owner.get("pid")}
    return Status(study.store.root, state, text, names, None, command, study.notes, snapshot)


def _locked_by(path: Path, now: float) -> dict[str, Any] | None:
    """The living owner that the lock names; the lock itself is not touched, since a sweep may just want it."""
    try:
        owner: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return owner if lock.alive(owner, now) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _ago(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5_400 else f"{seconds / 3600:.0f} h"


def shown(status: Status, bounded: bool = False, foot: Text | None = None) -> SnapshotView:
    """The status for a terminal: the live view with what is known of the sweep above it."""
    style = "green" if status.state in _WELL and not status.late else "bold red"
    head = [Text(status.text, style=style)]
    if status.state not in _WELL and status.command is not None:
        head.append(Text(f"Continue with: {status.command}"))
    head += [Text(f"note: {note}", style="yellow") for note in status.notes]
    return SnapshotView(status.snapshot, (*head, Text()), foot, bounded)


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = study_parser(
        "status",
        "Where a study stands, read from its folder without disturbing its sweep.",
        "Exit codes: 0 it runs or is finished, 1 the study cannot be read, 2 bad usage or no study there, "
        "3 it neither runs nor is finished.",
    )
    how = options.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="one JSON object; its keys are stable")
    how.add_argument("--watch", action="store_true", help="show it again every second, until Ctrl-C")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    options = parser().parse_args(arguments)
    return exit_code(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    console = plain_console()
    if options.watch:
        return _watch(console, options.study, options.storage)
    status = status_of(options.study, options.storage)
    if options.json:
        print(json.dumps(status.as_data(), indent=2))
    else:
        console.print(shown(status))
    return status.code


def _watch(console: Console, folder: Path, storage: str | None) -> int:
    foot = Text("Ctrl-C ends this view; the sweep goes on", style="dim")
    if not console.is_terminal:
        raise BadUsage("--watch needs a terminal; use --json for a program")
    status = status_of(folder, storage)
    file = live_path(status.folder)
    try:
        with Live(console=console, auto_refresh=False) as live:
            stamp = _stamp(file)
            while True:
                live.update(shown(status, bounded=True, foot=foot), refresh=True)
                time.sleep(_WATCH_S)
                # Where nothing runs, all files would be read again and again.
                if status.state == "running" or _stamp(file) != stamp:
                    stamp = _stamp(file)
                    status = status_of(folder, storage)
    except KeyboardInterrupt:
        return status.code


def _stamp(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


if __name__ == "__main__":
    sys.exit(main())
