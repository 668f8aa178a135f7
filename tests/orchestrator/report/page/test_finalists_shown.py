"""The finalists are in every picture along the ladder, with what fresh starts made of them, others by one start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kept_studies import kept

from orchestrator.analysis.rows import Row
from orchestrator.report.page.contents import Contents, contents_of
from orchestrator.report.page.ladder import Line
from orchestrator.report.page.markdown import summary
from orchestrator.report.page.view import view_of

Build = Callable[..., Row]


def made(build_row: Build, folder: Path, fresh: list[float]) -> Contents:
    """Trial 1 gives 120 in the search and is confirmed in rounds at these rates beside 90; eight others give less."""
    rates = {0: 100.0, 1: 120.0, **{trial: 110.0 - trial for trial in range(2, 10)}}
    rows = []
    for trial, rate in rates.items():
        # Each of the others leads at one user.
        for users, own in ((1, rate / 100 + trial), (8, rate)):
            rows.append(build_row(trial, users, own, role="candidate" if trial else "baseline"))
    for number, rate in enumerate(fresh, start=1):
        rows.append(build_row(20 + number, 8, 90.0 + 0.1 * number, role="confirmation", repeats=0, repeat=number))
        rows.append(build_row(30 + number, 8, rate, role="confirmation", repeats=1, repeat=number))
    return contents_of(view_of(kept(folder, rows)))


@pytest.mark.parametrize(
    ("fresh", "word"),
    [
        ([99.0, 99.1, 99.2], "winner, confirmed in 3 rounds of fresh starts"),
        ([85.0, 98.0, 90.0], "finalist, a tie in 3 rounds of fresh starts"),
        ([80.0, 80.1, 80.2], "finalist, refuted in 3 rounds of fresh starts"),
    ],
)
def test_a_finalist_is_named_with_its_rounds_and_verdict(
    build_row: Build, tmp_path: Path, fresh: list[float], word: str
) -> None:
    contents = made(build_row, tmp_path, fresh)
    assert list(contents.view.featured)[:2] == [0, 1]
    assert contents.view.featured[1] == word
    assert contents.view.featured[9] == "best single start at C=1, unconfirmed"
    assert all(any(line.label == f"trial 1 ({word})" for line in one.lines) for one in contents.ladders.values())


def lines(contents: Contents, key: str) -> dict[str, Line]:
    return {line.label: line for line in contents.ladders[key].lines}


def test_a_finalist_stands_among_the_others_by_its_start_and_its_fresh_ones_beside(
    build_row: Build, tmp_path: Path
) -> None:
    contents = made(build_row, tmp_path, [99.0, 99.1, 99.2])
    told = lines(contents, "throughput")
    searched = told["trial 1 (winner, confirmed in 3 rounds of fresh starts)"]
    assert [point.value for point in searched.points] == pytest.approx([2.2, 120.0])
    assert [(p.load.label, round(p.value, 1), p.starts) for p in told["trial 1 in fresh starts"].points] == [
        ("C=8", 99.1, 3)
    ]
    assert round(told["baseline in fresh starts"].points[0].value, 1) == 90.2
    gains = lines(contents, "gain")
    assert "baseline in fresh starts" not in gains
    assert gains["trial 1 in fresh starts"].points[0].value == pytest.approx(100 * (99.1 / 90.2 - 1), abs=0.01)
    text = summary(contents, [])
    assert "120.0 (+20.0 %)" in text
    assert "99.10 (+9.9 %)" in text


def test_without_a_confirmation_the_best_is_called_a_single_start(build_row: Build, tmp_path: Path) -> None:
    contents = made(build_row, tmp_path, [])
    assert contents.view.featured[1] == "best of the search, unconfirmed"
    assert not any(line.afresh for one in contents.ladders.values() for line in one.lines)
