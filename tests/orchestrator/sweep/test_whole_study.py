"""A study from its first command to its last: interrupted, refused, continued, finished, asked again."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from typing import Any

import pandas as pd
import psutil
import pyarrow as pa
import pytest


def test_a_study_is_interrupted_continued_and_done(sweep: Callable[..., Any], small_space: str) -> None:
    space = small_space.replace("min_s: 0.5, max_s: 5", "min_s: 6, max_s: 12")
    # Ctrl-C once, in the first level of a candidate: that level is finished, and nothing is left.
    first = sweep(space=space)
    first.wait_for("trial 1: measuring C=1")
    assert len(first.servers()) >= 1
    first.process.send_signal(signal.SIGINT)
    assert first.wait() == 130, first.output
    assert "the same command continues" in first.output
    assert first.servers() == []
    assert [r.level.load.concurrency for r in first.store.levels(1) if r.level] == [1]

    # The same command again: it continues at the second level; meanwhile a second driver is refused.
    second = sweep(space=space)
    second.wait_for("starting a local Ray cluster")
    refused = sweep(space=space)
    assert refused.wait() == 1
    assert str(second.process.pid) in refused.output
    second.wait_for("trial 1: measuring C=4")
    assert "trial 0: measuring" not in second.output
    assert "trial 1: measuring C=1" not in second.output

    # Ctrl-C twice: at once, in the middle of the level.
    second.process.send_signal(signal.SIGINT)
    second.wait_for("stopping after this level")
    second.process.send_signal(signal.SIGINT)
    assert second.wait() == 130, second.output
    assert second.servers() == []
    assert [r.level.load.concurrency for r in second.store.levels(1) if r.level] == [1]

    # To the end, on the original budget; the space holds two configurations beside the baseline.
    third = sweep(space=space)
    assert third.wait() == 0, third.output
    trials = third.store.trials()
    assert sorted(trials) == [0, 1, 2]
    assert all(rows[0].outcome.state == "complete" for rows in trials.values())
    assert len({rows[0].trial.identity for rows in trials.values()}) == 3
    starts = {row.level.load.concurrency: row.start for row in trials[1] if row.level}
    assert starts[1].start_id != starts[4].start_id
    assert third.servers() == []
    logs = len(list((third.root / "logs").glob("*.log")))

    # Done is done: nothing is started, Ray neither.
    fourth = sweep(space=space)
    assert fourth.wait() == 0, fourth.output
    assert "Ray dashboard" not in fourth.output
    assert len(list((third.root / "logs").glob("*.log"))) == logs

    # Another workload is another study.
    changed = sweep(space=space.replace("output_tokens: 64", "output_tokens: 32"))
    assert changed.wait() == 2
    assert "workload.dataset.output_tokens: was 64, now 32" in changed.output
    assert "--fresh" in changed.output

    # One more trial than the space holds: it ends well.
    more = sweep("--trials", "9", space=space)
    assert more.wait() == 0, more.output
    assert "space exhausted" in more.output
    assert sorted(more.store.trials()) == [0, 1, 2]


def test_what_a_whole_run_prints_writes_and_shows_in_ray(sweep: Callable[..., Any]) -> None:
    run = sweep("--fresh")
    run.wait_for("Ray dashboard: http://")
    run.wait_for("trial 0: measuring")
    assert run.wait() == 0, run.output
    assert re.search(r"Ray dashboard: http://\S+; token: \S*ray get-auth-token", run.output)
    assert "SIMULATED" in run.output
    # Not a line of Tune's or Ray's own.
    assert not re.search(r"(?i)trial status|tune_|raylet|core_worker|WARNING|Logical resource", run.output)
    assert "Pareto front" in run.output
    assert "-m launchers.simulated" in run.output
    assert f"Report: {run.root / 'report.html'}" in run.output
    assert (run.root / "report.md").is_file()

    table = pa.ipc.open_file(run.root / "measurements.arrow").read_all()
    assert table.num_rows == 6
    assert set(table["simulated"].to_pylist()) == {True}
    frame = pd.read_feather(run.root / "pareto.arrow")
    assert set(frame["trial"]) <= {0, 1, 2}
    frontier = pd.read_feather(run.root / "frontier.arrow")
    assert len(frontier) == 6
    assert json.loads(table["requested_flags"][2].as_py())
    for name in ("study.yaml", "study.db", "trials/000000.arrow", "requests/000002.arrow"):
        assert (run.root / name).exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_anything_runs_leaves_nothing(sweep: Callable[..., Any], number: int) -> None:
    run = sweep()
    run.wait_for("starting a local Ray cluster")
    family: dict[int, psutil.Process] = {}

    def rays() -> bool:
        for child in psutil.Process(run.process.pid).children(recursive=True):
            family.setdefault(child.pid, child)
        return any("gcs_server" in " ".join(process.cmdline()) for process in family.values())

    run.until(rays, "Ray's first process")
    run.process.send_signal(number)
    assert run.wait() == 130, run.output
    assert "the same command continues" in run.output
    assert "Traceback" not in run.output
    run.until(lambda: not any(p.is_running() and p.status() != "zombie" for p in family.values()), "the end of all")
