"""Writes the report of a study: page, summary and pictures, each whole or not at all."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from orchestrator.kept_study import KeptStudy
from orchestrator.report.page.contents import contents_of
from orchestrator.report.page.html import page
from orchestrator.report.page.markdown import summary
from orchestrator.report.page.pictures import pictures
from orchestrator.report.page.view import view_of
from orchestrator.results.files import write_bytes

#: The folder of the pictures, beside the page.
PICTURES = "report"


def write_report(kept: KeptStudy, folder: Path) -> list[Path]:
    """The files written, the page first; those of an earlier report are replaced.

    Raises `files.StoreError` where the system refuses, ValueError for simulated and measured rows together.
    """
    contents = contents_of(view_of(kept))
    texts = {chart.key: chart.text for part in contents.sections for chart in part.charts}
    written = []
    shown = []
    for name, content in pictures(contents).items():
        path = folder / PICTURES / f"{name}.png"
        write_bytes(path, content)
        written.append(path)
        shown.append((PurePosixPath(PICTURES, path.name), texts[name]))
    for path, text in ((folder / "report.md", summary(contents, shown)), (folder / "report.html", page(contents))):
        write_bytes(path, text.encode())
        written.insert(0, path)
    return written
