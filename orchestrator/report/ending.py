"""The report that a sweep ends with; whatever goes wrong with it is told in a line, and the sweep has ended well."""

from __future__ import annotations

import logging
from pathlib import Path

from rich.console import Console

from orchestrator.study_command import command_text

logger = logging.getLogger(__name__)


def keep_report(console: Console, root: Path, storage: str | None) -> None:
    """Write the report of the study in `root`; `storage` is Optuna's, where it is not the folder's own."""
    try:
        # Its libraries take a second to import: not before the end.
        from orchestrator.kept_study import open_study
        from orchestrator.report.page.write import write_report

        told = f"\nReport: {write_report(open_study(root, storage), root)[0]}"
    except ImportError as error:
        told = _not_written(root, f"{error.name or error} is missing, install it with `pip install -e .`")
    except KeyboardInterrupt:
        told = _not_written(root, "interrupted")
    except Exception as error:
        logger.warning("the report failed", exc_info=error)
        told = _not_written(root, " ".join(str(error).split()) or type(error).__name__)
    console.print(told, markup=False, soft_wrap=True)


def _not_written(root: Path, why: str) -> str:
    return f"No report was written: {why}. To try again: {command_text('report', root)}"
