"""What is shown while a sweep runs."""

from __future__ import annotations

import dataclasses
import io

from rich.console import Console

from launchers.base import Phase, StartProgress
from orchestrator.board import NodeStatus, StartStatus
from orchestrator.offered_load import Load
from orchestrator.report.progress import PlainDisplay, Snapshot, clock, headline, make_display, node_line

SNAPSHOT = Snapshot(
    simulated=True,
    done=3,
    trials=16,
    elapsed_s=130.0,
    left_s=680.0,
    nodes=(NodeStatus("vm/3fa2c1", 4, "measuring", Load(32), 41, 96, 1204.4),),
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


def starting(progress: StartProgress, elapsed_s: float, phase_elapsed_s: float) -> NodeStatus:
    return NodeStatus("vm/3fa2c1", 3, str(progress.phase), start=StartStatus(progress, elapsed_s, phase_elapsed_s))


EARLIER = {"spawned": 30.0, "loading weights": 150.0, "graph capture": 148.0, "warm-up": 5.0}


def test_a_start_shows_its_files_its_time_and_what_earlier_starts_took() -> None:
    loading = starting(StartProgress(Phase.LOADING_WEIGHTS, (72, 160)), 130.0, 72.0)
    assert node_line(loading).plain == "  vm/3fa2c1  trial 3  loading weights 45 % (72/160)  2:10"
    # 72 files in 72 s: 88 s more, and what earlier starts took after the load.
    shown = node_line(loading, [EARLIER]).plain
    assert shown == "  vm/3fa2c1  trial 3  loading weights 45 % (72/160)  2:10 of about 6:11"
    ready = starting(StartProgress(Phase.READY), 371.0, 0.0)
    assert node_line(ready, [EARLIER]).plain == "  vm/3fa2c1  trial 3  ready  6:11"


def test_why_a_phase_is_slow_is_shown() -> None:
    note = StartProgress(Phase.GRAPH_CAPTURE, note="DeepGEMM compiles its kernels")
    assert "graph capture (DeepGEMM compiles its kernels)  10:00" in node_line(starting(note, 600.0, 300.0)).plain


def test_without_a_terminal_a_long_phase_of_a_start_is_told_once_a_minute() -> None:
    out = io.StringIO()
    display = make_display(Console(file=out, width=200))
    for elapsed_s in range(300):
        progress = StartProgress(Phase.LOADING_WEIGHTS, (elapsed_s, 300))
        node = starting(progress, 10.0 + elapsed_s, float(elapsed_s))
        display.update(dataclasses.replace(SNAPSHOT, elapsed_s=100.0 + elapsed_s, nodes=(node,)))
    lines = out.getvalue().splitlines()
    assert lines[:2] == [
        "[1:40] trial 3: loading weights 0 % (0/300)  0:10",
        "[2:40] trial 3: loading weights 20 % (60/300)  1:10",
    ]
    assert len(lines) == 5


def test_a_clock_is_read_at_a_glance() -> None:
    assert [clock(s) for s in (9, 70, 3_661)] == ["0:09", "1:10", "1:01:01"]
