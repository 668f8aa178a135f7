"""The command line: `python -m orchestrator.sweep search_spaces/nccl.yaml`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import optuna
from rich.console import Console

from launchers.errors import LaunchError
from launchers.topology import nvlink_everywhere
from orchestrator.config import parse_duration_s
from orchestrator.lock import StudyBusy
from orchestrator.plan import make_launcher
from orchestrator.prompts import load_prompts
from orchestrator.report.console import plain_console
from orchestrator.report.dry_run import print_dry_run
from orchestrator.resolve import Resolved, resolve
from orchestrator.results.files import StoreError
from orchestrator.search.storage import VARIABLE
from orchestrator.search.study import Study, StudyError
from orchestrator.yaml_source import ConfigError, load_sweep

_STORAGE = f"Optuna's storage, default: ${VARIABLE}, else SQLite in the study's folder"
FINISHED, FAILED, BAD_USAGE, INTERRUPTED = 0, 1, 2, 130


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(
        prog="python -m orchestrator.sweep",
        description="Find the best way to serve a model with SGLang on a GPU node.",
        epilog="The same command again continues an interrupted study. Ctrl-C once finishes the level that is "
        "being measured and stops cleanly, twice stops at once.",
    )
    options.add_argument("space", type=Path, help="the search space, a YAML file")
    options.add_argument("--trials", type=_count, metavar="N", help="budget in trials, all runs of the study together")
    options.add_argument(
        "--time-budget",
        type=_duration,
        metavar="2h",
        help="time for this run; no trial starts that would end later",
    )
    options.add_argument("--results", type=Path, default=Path("results"), metavar="DIR", help="default: results/")
    options.add_argument("--storage", metavar="URL", help=_STORAGE)
    options.add_argument("--address", metavar="ADDRESS", help="an existing Ray cluster; default: start one here")
    options.add_argument(
        "--launcher",
        choices=("auto", "simulated", "sglang"),
        metavar="KIND",
        help="auto, simulated or sglang",
    )
    options.add_argument("--dry-run", action="store_true", help="start nothing: show the space, the price and commands")
    options.add_argument("--fresh", action="store_true", help="move an existing study aside and start anew")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    options = parser().parse_args(arguments)
    # Taken out, so that neither Ray nor a server inherits it.
    variable = os.environ.pop(VARIABLE, None) or None
    options.storage = options.storage or variable
    console = plain_console()
    try:
        resolved = _configured(options)
        for note in resolved.notes:
            console.print(note, markup=False, style="bold yellow" if resolved.simulated else None)
        if options.dry_run:
            return _dry_run(console, resolved)
    except ConfigError as error:
        return _fail(str(error), BAD_USAGE)
    # Ray takes seconds to import: not for a typo in the file.
    from orchestrator.cluster import ClusterError
    from orchestrator.conductor import StudyFailed
    from orchestrator.inspection import NodesUnfit
    from orchestrator.run import run_sweep

    try:
        return run_sweep(resolved, options)
    except KeyboardInterrupt:
        return _fail("interrupted; the same command continues", INTERRUPTED)
    except ConfigError as error:
        return _fail(str(error), BAD_USAGE)
    except (StudyBusy, StudyError, StudyFailed, NodesUnfit, StoreError, ClusterError, LaunchError) as error:
        return _fail(str(error), FAILED)


def _configured(options: argparse.Namespace) -> Resolved:
    """The file with the command line's options over it, and the launcher resolved."""
    written, simulated = load_sweep(options.space)
    changes: dict[str, object] = {}
    if options.trials is not None or options.time_budget is not None:
        changes["budget"] = {
            **({"trials": options.trials} if options.trials is not None else {}),
            **({"time": options.time_budget} if options.time_budget is not None else {}),
        }
    return resolve(written, simulated, options.launcher, changes)


def _dry_run(console: Console, resolved: Resolved) -> int:
    launcher = make_launcher(resolved.launcher, Path(), Path.cwd())
    prompts = load_prompts(resolved.config, Path.cwd())
    nvlink = None if resolved.simulated else nvlink_everywhere()
    study = Study(optuna.storages.InMemoryStorage(), "dry-run", resolved.config, nvlink=bool(nvlink))
    print_dry_run(console, resolved.config, resolved.written, launcher, study, nvlink, prompts.warnings)
    return FINISHED


def _fail(text: str, code: int) -> int:
    print(f"error: {text}", file=sys.stderr)
    return code


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of trials; write 1 or more")
    return int(text)


def _duration(text: str) -> str:
    try:
        parse_duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


if __name__ == "__main__":
    sys.exit(main())
