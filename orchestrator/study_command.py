"""What the commands that read a study share: which study, their exit codes, and how they say that something failed."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from orchestrator.kept_study import NoStudy, StudyError
from orchestrator.results.files import StoreError
from orchestrator.search.storage import VARIABLE

DONE, FAILED, BAD_USAGE = 0, 1, 2


class BadUsage(ValueError):
    """What was asked for is not to be had. The text says why and the way out."""


def study_parser(command: str, description: str, epilog: str | None = None) -> argparse.ArgumentParser:
    """The options that each has."""
    options = argparse.ArgumentParser(prog=f"python -m orchestrator.{command}", description=description, epilog=epilog)
    options.add_argument("study", type=Path, help="the study's folder, such as results/nccl")
    options.add_argument(
        "--storage",
        metavar="URL",
        default=os.environ.get(VARIABLE) or None,
        help=f"Optuna's storage, where the sweep was given one; default: ${VARIABLE}",
    )
    return options


def command_text(command: str, folder: Path) -> str:
    """The command as it is pasted into a shell here."""
    here = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    return f"python -m orchestrator.{command} {shlex.quote(str(here))}"


def exit_code(run: Callable[[], int]) -> int:
    """What `run` returns, or the code of its failure, which is told in a line."""
    try:
        return run()
    except (NoStudy, BadUsage) as error:
        return fail(str(error), BAD_USAGE)
    except (StoreError, StudyError, ValueError) as error:
        return fail(str(error), FAILED)


def fail(text: str, code: int) -> int:
    """Tell the failure; its exit code."""
    print(f"error: {text}", file=sys.stderr)
    return code
