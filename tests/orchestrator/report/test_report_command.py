"""`python -m orchestrator.report`, and the report that a sweep ends with."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from conductor_desk import Desk
from rich.console import Console

from orchestrator.report.__main__ import main
from orchestrator.report.ending import keep_report
from orchestrator.results.files import StoreError
from orchestrator.results.journal import add_note
from orchestrator.results.store import ResultStore


@pytest.fixture
def study(running_study: Desk, tmp_path: Path) -> Path:
    """The folder of a study that goes on."""
    return tmp_path


def test_a_running_study_is_reported_and_left_as_it_is(
    study: Path, capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    def files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in study.rglob("*")}

    before = files()
    out = tmp_path_factory.mktemp("out")
    assert main([str(study), "--out", str(out)]) == 0
    assert files() == before
    told = capsys.readouterr().out.splitlines()
    assert told[0] == str(out / "report.html")
    assert all(Path(line).is_file() for line in told)
    # Begun, and nobody is at work on it.
    assert 'class="state stopped"' in (out / "report.html").read_text()


def test_it_is_written_into_the_studys_folder(study: Path) -> None:
    assert main([str(study)]) == 0
    assert (study / "report.html").is_file()
    assert (study / "report.md").is_file()
    # A second one takes the place of the first.
    assert main([str(study)]) == 0


def test_what_people_noted_stands_in_the_journal(study: Path) -> None:
    add_note(ResultStore(study), 0, "the fan was <loud>")
    assert main([str(study)]) == 0
    assert "Note: the fan was &lt;loud&gt;" in (study / "report.html").read_text()


def test_bad_usage_is_told_without_a_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "absent")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_told(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (study / "taken").write_text("a file")
    assert main([str(study), "--out", str(study / "taken" / "out")]) == 1
    assert "cannot write" in capsys.readouterr().err


def ending(study: Path) -> str:
    file = io.StringIO()
    keep_report(Console(file=file, width=200), study, None)
    return file.getvalue()


def test_a_sweep_ends_with_its_report(study: Path) -> None:
    assert ending(study).strip() == f"Report: {study / 'report.html'}"
    assert (study / "report.html").is_file()


@pytest.mark.parametrize("error", [StoreError("the disk is full"), RuntimeError("odd"), KeyboardInterrupt()])
def test_a_report_that_fails_fails_no_sweep(study: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("orchestrator.report.page.write.write_report", fail)
    told = ending(study)
    assert told.startswith(f"No report was written: {error or 'interrupted'}")
    assert f"python -m orchestrator.report {study}" in told


def test_a_missing_library_is_told_with_how_to_install_it(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("orchestrator.report.page")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    told = ending(study)
    assert "jinja2 is missing" in told
    assert "pip install -e ." in told
