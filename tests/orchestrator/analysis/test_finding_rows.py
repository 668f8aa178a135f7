"""The rows behind a finding: every kind has them, and they are told in few words.

That they are there is asserted of every finding of every test, see conftest.
"""

from __future__ import annotations

import ast
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import orchestrator.analysis
from orchestrator import journal
from orchestrator.analysis.finding import Finding, rows_behind, rows_of
from orchestrator.analysis.findings import findings
from orchestrator.analysis.objectives import parse_objective
from orchestrator.analysis.rows import Row
from orchestrator.kept_study import open_study
from orchestrator.report.page.contents import contents_of
from orchestrator.report.page.html import page
from orchestrator.report.page.markdown import summary
from orchestrator.report.page.view import view_of

Build = Callable[..., Row]
STUDIES = Path(__file__).parents[2] / "data" / "studies"
ANALYSIS = Path(next(iter(orchestrator.analysis.__path__)))


def made() -> Iterator[tuple[str, ast.Call]]:
    """Every place that makes a finding."""
    for path in sorted(ANALYSIS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
                yield f"{path.name}:{node.lineno}", node


def test_every_kind_is_made_with_its_rows() -> None:
    places = list(made())
    assert len(places) > 40
    without = [at for at, call in places if len(call.args) < 4 and not any(k.arg == "rows" for k in call.keywords)]
    assert without == []


def test_rows_are_named_once_in_the_order_of_their_loads(build_row: Build) -> None:
    rows = [build_row(3, load) for load in (128, 8, 8, 32)] + [build_row(1, None, state="failed")]
    assert rows_behind(rows) == ((1, ""), (3, "C=8"), (3, "C=32"), (3, "C=128"))
    assert rows_of(rows, [1]) == ((1, ""),)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (((0, "C=8"), (11, "C=8")), "rows: trials 0, 11 at C=8"),
        (((0, "C=1"), (0, "C=8"), (2, "C=1")), "rows: trial 0 at C=1, C=8; trial 2 at C=1"),
        (((4, ""),), "rows: trial 4"),
        (tuple((n, "C=8") for n in range(12)), "rows: trials 0, 1, 2, 3, 4, 5, 6, 7, ... at C=8"),
    ],
)
def test_rows_are_told_compactly(rows: tuple[tuple[int, str], ...], text: str) -> None:
    assert Finding("kind", "Text.", {}, rows).rows_text == text


def test_a_confirmation_names_the_starts_of_both(build_row: Build) -> None:
    rows = [build_row(0, 8, 100.0, role="baseline"), build_row(1, 8, 110.0), build_row(2, 8, 105.0)]
    for number in (1, 2, 3):
        for of, rate in ((0, 100.0), (1, 109.0)):
            rows.append(build_row(10 * number + of, 8, rate + number, role="confirmation", repeats=of, repeat=number))
    found = {f.kind: f for f in findings(rows, parse_objective("output_tokens_per_s@8"))}
    assert [trial for trial, _ in found["confirmed_better"].rows] == [0, 1, 10, 11, 20, 21, 30, 31]
    assert [trial for trial, _ in found["noise_floor"].rows] == [0, 10, 11, 20, 21, 30, 31]


@pytest.fixture
def nccl(tmp_path: Path) -> Path:
    """The folder of a study as a sweep left it."""
    return Path(shutil.copytree(STUDIES / "nccl", tmp_path / "study"))


def test_the_report_and_its_summary_show_the_rows_of_each_finding(nccl: Path) -> None:
    contents = contents_of(view_of(open_study(nccl)))
    html, text = page(contents), summary(contents, [])
    told = [finding for _, found in contents.findings for finding in found]
    assert len(told) > 15
    assert all(f'<small class="rows">{finding.rows_text}</small></li>' in html for finding in told)
    [proof] = [finding for finding in told if finding.kind == "confirmed_tie"]
    assert proof.rows_text == "rows: trials 0, 1, 10, 12, 13, 14, 15 at C=128"
    assert f"({proof.rows_text})" in text


def test_the_journal_shows_them_to_people_and_to_programs(nccl: Path, capfd: pytest.CaptureFixture[str]) -> None:
    journal.main([str(nccl), "--trial", "6"])
    lines = capfd.readouterr().out.splitlines()
    of = next(n for n, line in enumerate(lines) if "EAGLE3 with Kimi-K2.5-eagle3 at C=8" in line)
    assert lines[of + 1] == "  rows: trials 0, 1, 6 at C=8"
    journal.main([str(nccl), "--json"])
    trials = {line["trial"]: line for line in json.loads(capfd.readouterr().out)["trials"]}
    causes = {cause["text"]: cause for cause in trials[6]["causes"]}
    [text] = [text for text in causes if text.startswith("EAGLE3 with Kimi-K2.5-eagle3 at C=8")]
    assert causes[text]["kind"] == "break_even"
    assert causes[text]["rows"] == [{"trial": trial, "load": "C=8"} for trial in (0, 1, 6)]
    assert all(cause["rows"] for line in trials.values() for cause in line["causes"])
