"""What a sweep prints while it runs: lines without a terminal, a view in place on one."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable

import pytest
from rich.console import Console
from snapshots import NODE, RESULTS, SNAPSHOT

from orchestrator.offered_load import Load
from orchestrator.report.progress import LiveDisplay, PlainDisplay, keys, make_display, trial_line
from orchestrator.report.snapshot import FindingView, NodeView, Snapshot


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def plain(out: io.StringIO) -> PlainDisplay:
    display = make_display(Console(file=out, width=200))
    assert isinstance(display, PlainDisplay)
    return display


def test_without_a_terminal_each_phase_is_one_line_and_no_escape_is_printed(
    plain: PlainDisplay, out: io.StringIO
) -> None:
    snapshot = dataclasses.replace(SNAPSHOT, results=dataclasses.replace(RESULTS, findings=()))
    for _ in range(3):
        plain.update(snapshot)
    plain.update(dataclasses.replace(snapshot, nodes=(NodeView("vm/3fa2c1", 4, "candidate", "", "tearing down"),)))
    assert out.getvalue().splitlines() == ["[2:10] trial 4: measuring C=32", "[2:10] trial 4: tearing down"]


def test_without_a_terminal_a_long_phase_of_a_start_is_told_once_a_minute(
    plain: PlainDisplay, out: io.StringIO, starting: Callable[..., NodeView]
) -> None:
    for elapsed_s in range(300):
        node = starting((elapsed_s, 300), 10.0 + elapsed_s, None)
        plain.update(Snapshot("nccl", True, 3, 16, 100.0 + elapsed_s, None, 0.0, None, EMPTY, (node,)))
    lines = out.getvalue().splitlines()
    assert lines[:2] == [
        "[1:40] trial 4: loading weights 0 % (0/300)  0:10",
        "[2:40] trial 4: loading weights 20 % (60/300)  1:10",
    ]
    assert len(lines) == 5


EMPTY = dataclasses.replace(RESULTS, findings=(), front=())


@pytest.fixture
def starting() -> Callable[..., NodeView]:
    def make(shards: tuple[int, int], elapsed_s: float, about_s: float | None) -> NodeView:
        return NodeView(
            "vm/3fa2c1", 4, "candidate", "", "loading weights", shards=shards, elapsed_s=elapsed_s, about_s=about_s
        )

    return make


def test_without_a_terminal_a_new_finding_is_told_once(plain: PlainDisplay, out: io.StringIO) -> None:
    for _ in range(3):
        plain.update(SNAPSHOT)
    found = [line for line in out.getvalue().splitlines() if line.startswith("found: ")]
    assert found == ["found: Admission limited: concurrency 128 over 48 (trial 2)."]
    more = (*RESULTS.findings, FindingView("drift", "The machine drifts.", new=True))
    plain.update(dataclasses.replace(SNAPSHOT, results=dataclasses.replace(RESULTS, findings=more)))
    assert out.getvalue().splitlines()[-1] == "found: The machine drifts."


def test_on_a_terminal_the_view_is_redrawn_in_place_and_gone_at_the_end(out: io.StringIO) -> None:
    display = make_display(Console(file=out, width=80, height=24, force_terminal=True, color_system=None))
    assert isinstance(display, LiveDisplay)
    display.update(SNAPSHOT)
    display.say("trial 3 candidate: complete")
    display.update(dataclasses.replace(SNAPSHOT, nodes=(dataclasses.replace(NODE, requests_done=77),)))
    display.close()
    text = out.getvalue()
    assert "trial 3 candidate: complete" in text
    assert "\x1b[1A" in text  # the cursor goes up instead of a second view below
    screen = _screen(text)
    assert screen == ["trial 3 candidate: complete"]


def _screen(text: str) -> list[str]:
    """What is left on a terminal of unlimited height: it knows cursor up, erase line, and carriage return."""
    lines, row = [""], 0
    number = 0
    while number < len(text):
        rest = text[number:]
        if rest.startswith("\x1b["):
            end = next(i for i, c in enumerate(rest[2:], 2) if c.isalpha())
            code, kind = rest[2:end], rest[end]
            if kind == "A":
                row -= int(code or 1)
            elif kind == "K":
                lines[row] = ""
            number += end + 1
            continue
        if rest[0] == "\n":
            row += 1
            if row == len(lines):
                lines.append("")
        elif rest[0] != "\r":
            lines[row] += rest[0]
        number += 1
    return [line for line in lines if line.strip()]


def test_the_view_says_what_ctrl_c_does_now() -> None:
    assert keys(0).plain == "Ctrl-C: finish the level, then stop. Twice: stop now"
    assert keys(1).plain == "stopping after this level. Ctrl-C again: stop now"
    assert keys(2).plain.startswith("stopping now")


def test_the_line_of_a_trial_that_is_over_has_its_levels_and_settings() -> None:
    levels = [(Load(1), 71.25), (Load(request_rate=2.5), None)]
    line = trial_line(3, "candidate", "failed", "out of memory", levels, "max-running-requests=48")
    assert line == "trial 3 candidate: failed (out of memory)  C=1 71.2  2.5 req/s -  | max-running-requests=48"
