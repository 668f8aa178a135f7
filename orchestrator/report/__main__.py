"""The report of a study: `python -m orchestrator.report results/nccl`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrator.kept_study import open_study
from orchestrator.report.page.write import write_report
from orchestrator.study_command import DONE, exit_code, study_parser


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = study_parser(
        "report",
        "Write report.html (one file, no network), report.md and pictures of a study.",
        "Safe at any time, also while the study's sweep runs.",
    )
    options.add_argument("--out", type=Path, metavar="DIR", help="where to write; default: the study's folder")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    options = parser().parse_args(arguments)
    return exit_code(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    kept = open_study(options.study, options.storage)
    written = write_report(kept, options.out or kept.store.root)
    for note in kept.notes:
        print(f"warning: {note}", file=sys.stderr)
    for path in written:
        print(path)
    return DONE


if __name__ == "__main__":
    sys.exit(main())
