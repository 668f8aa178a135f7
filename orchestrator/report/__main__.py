"""The report of a study: `python -m orchestrator.report results/nccl`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrator.kept_study import NoStudy, StudyError, open_study
from orchestrator.report.page.write import write_report
from orchestrator.results.files import StoreError

FINISHED, FAILED, BAD_USAGE = 0, 1, 2


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(
        prog="python -m orchestrator.report",
        description="Write report.html (one file, no network), report.md and pictures of a study.",
        epilog="Safe at any time, also while the study's sweep runs.",
    )
    options.add_argument("study", type=Path, help="the study's folder, such as results/nccl")
    options.add_argument("--out", type=Path, metavar="DIR", help="where to write; default: the study's folder")
    options.add_argument("--storage", metavar="URL", help="Optuna's storage, where the sweep was given one")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    options = parser().parse_args(arguments)
    try:
        kept = open_study(options.study, options.storage)
        written = write_report(kept, options.out or kept.store.root)
    except NoStudy as error:
        return _fail(error, BAD_USAGE)
    except (StoreError, StudyError, ValueError) as error:
        return _fail(error, FAILED)
    for note in kept.notes:
        print(f"warning: {note}", file=sys.stderr)
    for path in written:
        print(path)
    return FINISHED


def _fail(error: Exception, code: int) -> int:
    print(f"error: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
