"""What is shown while a sweep runs."""

from __future__ import annotations

import dataclasses
import io

from rich.console import Console

from orchestrator.board import NodeStatus
from orchestrator.report.progress import PlainDisplay, Snapshot, clock, headline, make_display, node_line

SNAPSHOT = Snapshot(
    simulated=True,
    done=3,
    trials=16,
    elapsed_s=130.0,
    left_s=680.0,
    nodes=(NodeStatus("vm/3fa2c1", 4, "measuring", 32, 41, 96, 1204.4),),
    score_name="output_tokens_per_s@128",
    baseline=2370.0,
    best=2431.0,
    best_trial=2,
    stopping=False,
)


def test_the_headline_tells_progress_time_and_the_best_against_the_baseline() -> None:
    text = headline(SNAPSHOT).plain
    assert text == (
        "SIMULATED 3 of 16 trials · 2:10, about 11:20 left · "
        "best output_tokens_per_s@128 2,431.0 (trial 2, +2.6 % on the baseline)"
    )


def test_nothing_is_made_up_before_there_is_a_number() -> None:
    early = dataclasses.replace(SNAPSHOT, simulated=False, left_s=None, best=None, best_trial=None, baseline=None)
    assert headline(early).plain == "3 of 16 trials · 2:10 · no output_tokens_per_s@128 yet"
    first = dataclasses.replace(SNAPSHOT, best=2370.0, best_trial=0)
    assert headline(first).plain.endswith("2,370.0 (the baseline)")


def test_a_stop_on_its_way_says_how_to_hurry_it() -> None:
    assert "Ctrl-C again" in headline(dataclasses.replace(SNAPSHOT, stopping=True)).plain


def test_a_node_shows_its_trial_phase_and_level() -> None:
    assert node_line(SNAPSHOT.nodes[0]).plain == "  vm/3fa2c1  trial 4  measuring C=32  41/96  1,204 tok/s"


def test_without_a_terminal_each_phase_is_one_line_and_no_escape_is_printed() -> None:
    out = io.StringIO()
    display = make_display(Console(file=out, width=200))
    assert isinstance(display, PlainDisplay)
    for _ in range(3):
        display.update(SNAPSHOT)
    display.update(dataclasses.replace(SNAPSHOT, nodes=(NodeStatus("vm/3fa2c1", 4, "tearing down"),)))
    assert out.getvalue().splitlines() == ["[2:10] trial 4: measuring C=32", "[2:10] trial 4: tearing down"]


def test_a_clock_is_read_at_a_glance() -> None:
    assert [clock(s) for s in (9, 70, 3_661)] == ["0:09", "1:10", "1:01:01"]
