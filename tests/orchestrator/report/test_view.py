"""A snapshot as lines: what they say, and that they fit."""

from __future__ import annotations

import dataclasses

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from snapshots import NODE, RESULTS, SNAPSHOT

from orchestrator.report.progress import keys
from orchestrator.report.snapshot import FindingView, NodeView, Score
from orchestrator.report.view import SnapshotView, best_text, clock, doing, so_far, time_text, view

LOADING = NodeView(
    "gpu-17.rack.example.com/9aa2c1",
    5,
    "confirmation",
    "max-running-requests=128",
    "loading weights",
    shards=(72, 160),
    elapsed_s=130.0,
    about_s=371.0,
)


def lines(width: int = 100, height: int | None = None, **changes: object) -> list[str]:
    snapshot = dataclasses.replace(SNAPSHOT, **changes)  # type: ignore[arg-type]
    return [line.plain for line in view(snapshot, width, height, foot=keys(snapshot.stopping))]


def test_everything_that_a_person_asks_is_there() -> None:
    shown = lines()
    assert shown[0].startswith("SIMULATED nccl  ")
    assert shown[0].endswith("3 of 16 trials")
    assert shown[1:3] == [
        "2:10, about 11:20 left · 0.04 node-hours, about 0.19 left",
        "best output_tokens_per_s@128 2,431.0 (trial 2, +2.6 % on the baseline)",
    ]
    node = shown.index(next(line for line in shown if line.startswith("vm/3fa2c1")))
    assert shown[node].split() == [
        "vm/3fa2c1",
        "4",
        "candidate",
        "measuring",
        "C=32",
        "41/96",
        "1,204",
        "±3.1",
        "%",
        "tok/s",
    ]
    assert shown[node + 1] == "  max-running-requests=128 NCCL_PROTO=LL"
    assert "front so far  tok/s@128  ttft_ms.p99@32  settings" in shown
    assert "2               2,431.0           812.5  max-running-requests=48" in shown
    assert "0 baseline      2,370.0           640.0  the server's defaults" in shown
    assert shown[-1] == keys(0).plain


def test_new_findings_come_first_and_say_so() -> None:
    shown = lines()
    first = shown.index("findings so far") + 1
    assert shown[first].startswith("+ new: Admission limited")
    assert shown[first + 1].startswith("- At C=128")


@pytest.mark.parametrize("width", [200, 100, 80, 60, 40])
@pytest.mark.parametrize("height", [60, 24, 14, 8, 3])
@pytest.mark.parametrize("nodes", [1, 12])
def test_it_fits_whatever_the_terminal(width: int, height: int, nodes: int) -> None:
    long = FindingView("tie", "No gain can be told, and that takes many words to say. " * 9, new=True)
    results = dataclasses.replace(RESULTS, findings=(long,) * 7, front=RESULTS.front * 9)
    snapshot = dataclasses.replace(SNAPSHOT, results=results, nodes=(NODE, LOADING) * nodes)
    console = Console(width=width, height=height, file=None, record=True, force_terminal=True)
    with console.capture() as captured:
        console.print(SnapshotView(snapshot, foot=keys(0)))
    shown = captured.get().splitlines()
    # The cursor's own row stays free.
    assert len(shown) <= max(1, height - 1)
    plain = [line.plain for line in view(snapshot, width, max(1, height - 1), foot=keys(0))]
    assert max(map(cell_len, plain)) <= width
    if height >= 8 and width >= 60:
        assert any("C=32" in line and "41/96" in line for line in plain)
        assert plain[-1].startswith("Ctrl-C")


def test_what_is_left_out_for_want_of_room_is_counted() -> None:
    many = dataclasses.replace(RESULTS, front=RESULTS.front * 9)
    shown = lines(80, 24, results=many)
    rows = [line for line in shown if line.startswith(("2 ", "0 baseline"))]
    assert f"  and {18 - len(rows)} more" in shown
    assert "more" not in "".join(lines(80, None, results=many))


def test_a_line_tells_the_most_that_its_width_holds() -> None:
    texts = [doing(LOADING, width) for width in (29, 28, 19, 12, 11, 4)]
    assert texts == [
        "loading weights 45 % (72/160)",
        "loading weights 45 %",
        "weights 45 %",
        "weights 45 %",
        "45 %",
        "45 %",
    ]
    assert doing(NODE, 6) == "C=32"
    noted = dataclasses.replace(LOADING, shards=None, phase="graph capture", note="DeepGEMM compiles its kernels")
    assert doing(noted) == "graph capture (DeepGEMM compiles its kernels)"
    assert doing(noted, 20) == "graph capture"


def test_a_name_is_shortened_to_what_tells_nodes_apart() -> None:
    assert any(line.startswith("gpu-17/9aa2c1 ") for line in lines(100, nodes=(LOADING,)))
    assert any(line.startswith("9aa2c1 ") for line in lines(60, nodes=(LOADING,)))


def test_what_was_done_so_far_is_requests_and_rate_or_the_time_of_the_start() -> None:
    assert so_far(NODE) == "41/96  1,204 ±3.1 % tok/s"
    assert so_far(dataclasses.replace(NODE, half_width=None)) == "41/96  1,204 tok/s"
    assert so_far(dataclasses.replace(NODE, requests_planned=0, output_tokens_per_s=None)) == ""
    assert so_far(LOADING) == "2:10 of about 6:11"
    assert so_far(dataclasses.replace(LOADING, about_s=None)) == "2:10"


def test_nothing_is_made_up_before_there_is_a_number() -> None:
    early = dataclasses.replace(SNAPSHOT, left_s=None, node_hours_left=None, elapsed_s=None)
    assert time_text(early) == "0.04 node-hours"
    assert best_text(Score("output_tokens_per_s@128")) == "no output_tokens_per_s@128 yet"
    assert best_text(Score("tpot_ms.p50@8", best=9.5, best_trial=3)) == "best tpot_ms.p50@8 9.5 (trial 3)"
    bare = dataclasses.replace(RESULTS, front=(), findings=())
    assert not any("so far" in line for line in lines(results=bare, nodes=()))


def test_the_baseline_and_a_confirmed_best_are_called_so() -> None:
    score = Score("output_tokens_per_s@128", 2370.0, 2370.0, 0, 0.0)
    assert best_text(score).endswith("2,370.0 (the baseline)")
    assert best_text(dataclasses.replace(score, confirmed=True)).endswith("(the baseline; none is confirmed better)")
    confirmed = dataclasses.replace(RESULTS.score, confirmed=True)
    assert best_text(confirmed).endswith("(trial 2, +2.6 % on the baseline in fresh starts, confirmed)")
    tie = dataclasses.replace(RESULTS.score, verdict="tie")
    assert best_text(tie).endswith("(trial 2, +2.6 % on the baseline: a tie)")
    assert best_text(dataclasses.replace(score, baseline_starts=3)).endswith("2,370.0 (the baseline, over 3 starts)")


def test_a_long_line_above_is_broken_and_not_cut() -> None:
    head = Text("Continue with: python -m orchestrator.sweep search_spaces/nccl.yaml --results /somewhere/else")
    shown = [line.plain for line in view(SNAPSHOT, 40, None, (head,))]
    assert " ".join(shown[: len(shown) - len(view(SNAPSHOT, 40, None))]) == head.plain


def test_a_clock_is_read_at_a_glance() -> None:
    assert [clock(s) for s in (9, 70, 3_661)] == ["0:09", "1:10", "1:01:01"]
