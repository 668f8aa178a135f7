"""The store keeps every finished level through kills, damage and trials that are run again."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from orchestrator.analysis.objectives import Metric, parse_objective
from orchestrator.analysis.rows import Outcome, Row, StartInfo, metric_value
from orchestrator.benchmark.records import LevelRecord, Reading, RequestRecord
from orchestrator.offered_load import Load
from orchestrator.results import files
from orchestrator.results.schemas import COUNTERS, FRONTIER, MEASUREMENTS, PARETO, REQUESTS
from orchestrator.results.store import ResultStore
from orchestrator.results.tables import counters_table, requests_table, rows_of

Build = Callable[..., Row]
OBJECTIVES = [parse_objective("maximize output_tokens_per_s@8")]


def requests_of(row: Row) -> pa.Table:
    assert row.level is not None
    load = row.level.load
    records = tuple(
        RequestRecord(index=i, user=i, warmup=False, started_s=0.0, finished_s=1.0, event_s=(0.5,), event_tokens=(4.0,))
        for i in range(load.concurrency or 1)
    )
    level = LevelRecord(load, records, (0.0, 1.0), (0.0, 1.0), True)
    return requests_table(level, trial=row.trial.trial, attempt=row.start.attempt, start_id=row.start.start_id)


def keep(store: ResultStore, row: Row) -> None:
    assert row.level is not None
    # While the trial runs nothing is known of its teardown.
    running = dataclasses.replace(row.start, teardown_s=None, stop_proven=None)
    store.write_level(row.trial, running, row.level, requests_of(row))


def run_trial(store: ResultStore, rows: list[Row]) -> list[Row]:
    """What the driver does: the levels not yet on disk, then the outcome of the last row's start."""
    for row in rows:
        assert row.level is not None
        have = {r.level.load for r in store.levels(row.trial.trial) if r.level}
        if row.level.load not in have:
            keep(store, row)
    return store.finish_trial(rows[-1].trial, rows[-1].start, rows[-1].outcome)


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, messages: list[str]) -> ResultStore:
    return ResultStore(tmp_path / "nccl", messages.append)


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def table(path: Path, schema: Any) -> pa.Table:
    read = files.read_table(path, schema)
    assert read is not None
    return read


def test_a_level_is_on_disk_before_its_trial_ends(store: ResultStore, build_row: Build) -> None:
    row = build_row(12, 8)
    keep(store, row)
    [level] = ResultStore(store.root).levels(12)
    assert level.level == row.level
    assert level.outcome == Outcome("interrupted")
    assert store.trial(12) is None
    assert [r.trial.trial for r in store.rows()] == [12]


def test_a_finished_trial_is_one_file_of_its_levels_with_the_outcome(store: ResultStore, build_row: Build) -> None:
    rows = [build_row(12, 8), build_row(12, 128)]
    assert run_trial(store, rows) == rows
    assert store.trial(12) == rows
    assert store.trials() == {12: rows}
    assert table(store.requests_file(12), REQUESTS)["concurrency"].to_pylist() == [8] * 8 + [128] * 128
    assert sorted(tree(store.root)) == [
        "levels/000012/c0008.arrow",
        "levels/000012/c0128.arrow",
        "levels/000012/outcome.arrow",
        "requests/000012.arrow",
        "trials/000012.arrow",
    ]


def test_a_trial_that_failed_before_any_level_has_one_row(store: ResultStore, build_row: Build) -> None:
    row = build_row(3, None, state="failed", failure_kind="out_of_memory")
    assert store.finish_trial(row.trial, row.start, row.outcome) == [row]
    assert store.trial(3) == [row]
    assert not store.requests_file(3).exists()
    store.rebuild(OBJECTIVES)
    assert table(store.measurements_file, MEASUREMENTS).num_rows == 0


def test_a_start_that_never_was_ready_may_have_no_id(store: ResultStore, build_row: Build) -> None:
    row = build_row(3, None, state="failed", failure_kind="crashed")
    store.finish_trial(row.trial, StartInfo(attempt=1, start_id=None), row.outcome)
    assert store.trial(3) == [dataclasses.replace(row, start=StartInfo(attempt=1, start_id=None))]
    with pytest.raises(ValueError, match="start_id"):
        store.write_level(row.trial, StartInfo(1, None), build_row(3, 8).level, requests_of(build_row(3, 8)))


def test_an_interrupted_trial_run_again_keeps_its_levels_beside_the_new_start(
    store: ResultStore, build_row: Build
) -> None:
    kept = build_row(5, 1, start_id="start-a", attempt=1)
    keep(store, kept)
    store.finish_trial(kept.trial, kept.start, Outcome("interrupted"))
    assert [r.outcome.state for r in store.trials()[5]] == ["interrupted"]
    second = build_row(5, 8, start_id="start-b", attempt=2)
    keep(store, second)
    # Killed here, the trial still says interrupted, and both levels are there.
    assert [(r.start.start_id, r.outcome.state) for r in store.trials()[5]] == [
        ("start-a", "interrupted"),
        ("start-b", "interrupted"),
    ]
    rows = run_trial(store, [kept, second])
    assert [(r.start.start_id, r.start.attempt, r.outcome.state) for r in rows] == [
        ("start-a", 1, "complete"),
        ("start-b", 2, "complete"),
    ]
    assert store.trial(5) == rows
    assert table(store.requests_file(5), REQUESTS)["start_id"].to_pylist() == ["start-a"] + ["start-b"] * 8


def test_a_reader_beside_the_writer_sees_the_trial_and_touches_nothing(
    store: ResultStore, build_row: Build, messages: list[str]
) -> None:
    row = build_row(trial=3, concurrency=8)
    run_trial(store, [row])
    # As after a kill between the outcome and the trial file; and one file is damaged.
    store.trial_file(3).unlink()
    keep(store, build_row(trial=4, concurrency=8))
    store.level_file(4, Load(8)).write_bytes(b"half")
    before = tree(store.root)
    reader = ResultStore(store.root, messages.append, read_only=True)
    found = reader.trials()
    assert [r.outcome.state for r in found[3]] == ["complete"]
    assert reader.levels(4) == []
    assert tree(store.root) == before
    assert "nothing was read" in messages[-1]


def test_reading_a_trial_that_did_not_change_writes_nothing(store: ResultStore, build_row: Build) -> None:
    row = build_row(5, 1, state="interrupted")
    run_trial(store, [row])
    before = store.trial_file(5).stat().st_ino
    assert ResultStore(store.root).trials() == {5: [row]}
    assert store.trial_file(5).stat().st_ino == before


def test_levels_of_a_start_that_was_killed_do_not_claim_the_next_ones_teardown(
    store: ResultStore, build_row: Build
) -> None:
    keep(store, build_row(5, 1, start_id="start-a"))
    rows = run_trial(store, [build_row(5, 1), build_row(5, 8, start_id="start-b", attempt=2)])
    assert [r.start.stop_proven for r in rows] == [None, True]


def test_a_damaged_trial_file_is_set_aside_and_made_again(
    store: ResultStore, build_row: Build, messages: list[str]
) -> None:
    rows = run_trial(store, [build_row(12, 8), build_row(12, 128)])
    good = tree(store.root)
    store.trial_file(12).write_bytes(store.trial_file(12).read_bytes()[:-20])
    assert store.trials() == {12: rows}
    damaged = tree(store.root)
    assert damaged.pop("trials/set-aside/000012.arrow.1")
    assert damaged == good
    assert len(messages) == 2
    assert "000012.arrow.1" in messages[0]
    assert "made again from its levels" in messages[1]


def test_a_damaged_level_counts_as_not_measured(store: ResultStore, build_row: Build, messages: list[str]) -> None:
    keep(store, build_row(12, 8))
    keep(store, build_row(12, 128))
    store.level_file(12, Load(8)).write_bytes(b"")
    assert [r.level.load for r in store.levels(12) if r.level] == [Load(128)]
    assert "it is empty" in messages[0]
    rows = run_trial(store, [build_row(12, 8), build_row(12, 128)])
    assert [r.level.load for r in rows if r.level] == [Load(8), Load(128)]


def test_a_damaged_requests_file_is_told_and_costs_no_metrics(
    store: ResultStore, build_row: Build, messages: list[str]
) -> None:
    run_trial(store, [build_row(12, 8)])
    store.requests_file(12).write_bytes(b"gone")
    rows = run_trial(store, [build_row(12, 8), build_row(12, 128)])
    assert len(rows) == 2
    assert any("requests of trial 12 at C=8 are lost" in text for text in messages)
    assert table(store.requests_file(12), REQUESTS)["concurrency"].unique().to_pylist() == [128]


def test_a_file_of_another_trial_under_this_name_is_not_counted_twice(
    store: ResultStore, build_row: Build, messages: list[str]
) -> None:
    run_trial(store, [build_row(1, 8)])
    store.trial_file(2).write_bytes(store.trial_file(1).read_bytes())
    assert list(store.trials()) == [1]
    assert "holds no rows of trial 2" in messages[0]


def test_rebuild_writes_the_three_files_from_all_trials(store: ResultStore, build_row: Build) -> None:
    run_trial(store, [build_row(0, 1, 60.0, role="baseline"), build_row(0, 8, 400.0, role="baseline")])
    run_trial(store, [build_row(1, 1, 70.0), build_row(1, 8, 500.0)])
    run_trial(store, [build_row(2, 1, 80.0, state="failed"), build_row(2, 8, 900.0, state="failed")])
    keep(store, build_row(3, 1, 90.0))
    results = store.rebuild(OBJECTIVES)
    assert [p.row.trial.trial for p in results.pareto.points] == [1]
    written = table(store.measurements_file, MEASUREMENTS).to_pylist()
    assert [(r["trial"], r["concurrency"], r["state"]) for r in written] == [
        (0, 1, "complete"),
        (0, 8, "complete"),
        (1, 1, "complete"),
        (1, 8, "complete"),
        (2, 1, "failed"),
        (2, 8, "failed"),
        (3, 1, "interrupted"),
    ]
    assert table(store.pareto_file, PARETO)["trial"].to_pylist() == [1]
    assert table(store.frontier_file, FRONTIER)["trial"].to_pylist() == [0, 0, 1, 1, 3]
    before = tree(store.root)
    store.recover()
    store.rebuild(OBJECTIVES)
    assert tree(store.root) == before


def test_rebuild_refuses_simulated_beside_measured_rows(store: ResultStore, build_row: Build) -> None:
    run_trial(store, [build_row(0, 8, simulated=True)])
    run_trial(store, [build_row(1, 8, simulated=False)])
    with pytest.raises(ValueError, match="two studies"):
        store.rebuild(OBJECTIVES)
    assert not store.measurements_file.exists()


def test_recovery_removes_what_was_only_half_written(store: ResultStore, build_row: Build) -> None:
    run_trial(store, [build_row(1, 8)])
    before = tree(store.root)
    files.partial_path(store.trial_file(2)).write_bytes(b"ARROW1 half")
    assert list(store.trials()) == [1]
    store.recover()
    assert tree(store.root) == before


def test_a_study_that_has_not_begun_is_empty(store: ResultStore) -> None:
    store.recover()
    assert store.trials() == {}
    assert store.rows() == []
    assert store.rebuild(OBJECTIVES).pareto.points == ()


class Killed(BaseException):
    """Ends the writer where it stands: nothing catches it, as nothing catches KILL."""


class Killer:
    """Counts the changes to names on disk, and kills before or after the one that is its turn."""

    def __init__(self, turn: int, after: bool) -> None:
        self.turn, self.after, self.count = turn, after, 0

    def wrap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            self.count += 1
            mine = self.count == self.turn
            if mine and not self.after:
                raise Killed
            result = real(*args, **more)
            if mine:
                raise Killed
            return result

        return call


def story(store: ResultStore, build_row: Build) -> Iterator[tuple[int, Load]]:
    """A baseline, a trial over two starts and a failed one; yields (trial, load) once durable."""
    scripts = [
        [build_row(0, 1, 60.0, role="baseline"), build_row(0, 8, 400.0, role="baseline")],
        [build_row(1, 1, 70.0), build_row(1, 8, 500.0, start_id="start-b", attempt=2)],
        [build_row(2, 1, 80.0, state="failed", failure_kind="crashed")],
    ]
    store.recover()
    for rows in scripts:
        finished = store.trial(rows[0].trial.trial)
        if finished is None:
            for row in rows:
                assert row.level is not None
                have = {r.level.load for r in store.levels(row.trial.trial) if r.level}
                if row.level.load not in have:
                    keep(store, row)
                yield row.trial.trial, row.level.load
            store.finish_trial(rows[-1].trial, rows[-1].start, rows[-1].outcome)
        store.rebuild(OBJECTIVES)


def test_killed_at_any_write_and_run_again_the_study_has_the_same_files(
    tmp_path: Path, build_row: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Power is not cut here, only the process: flushing to the platter would be the test's whole time.
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    whole = ResultStore(tmp_path / "whole", pytest.fail)
    levels = list(story(whole, build_row))
    expected = tree(whole.root)
    assert len(levels) == 5
    changes = 0
    for after in (False, True):
        turn = 0
        while True:
            turn += 1
            store = ResultStore(tmp_path / f"killed-{turn}-{after}", pytest.fail)
            killer = Killer(turn, after)
            durable = []
            with monkeypatch.context() as patch:
                patch.setattr(os, "replace", killer.wrap(os.replace))
                patch.setattr(os, "unlink", killer.wrap(os.unlink))
                try:
                    for level in story(store, build_row):
                        durable.append(level)
                except Killed:
                    pass
            if killer.count < turn:
                break
            changes = max(changes, turn)
            seen = [(r.trial.trial, r.level.load) for r in store.rows() if r.level]
            assert sorted(set(seen)) == sorted(seen)
            assert set(durable) <= set(seen)
            for _ in story(store, build_row):
                pass
            assert tree(store.root) == expected, f"killed at change {turn}"
    assert changes >= 30


def test_levels_of_every_kind_of_load_are_kept_apart(store: ResultStore, build_row: Build) -> None:
    loads = [Load(8), Load(8, repeat=1), Load(request_rate=2.5), Load(request_rate=2.5, repeat=1)]
    rows = run_trial(store, [build_row(12, load) for load in loads])
    assert [row.level.load for row in rows if row.level] == loads
    # Once more, so that the requests of each come from the merged file.
    store.trial_file(12).unlink()
    assert store.trial(12) == rows
    merged = table(store.requests_file(12), REQUESTS)
    assert [rows_of(merged, load).num_rows for load in loads] == [8, 8, 1, 1]
    assert [metric_value(rows, Metric.parse(f"requests_per_s@{load.text}")) for load in loads] == [2.0] * 4


def test_the_servers_counters_over_each_level_are_kept_beside_it(store: ResultStore, build_row: Build) -> None:
    rows = [build_row(12, load) for load in (Load(8), Load(8, repeat=1), Load(request_rate=2.5))]
    for number, row in enumerate(rows):
        assert row.level is not None
        series = (Reading(1.0, {"a_total": float(number), "b": 0.5}), Reading(2.0, {"a_total": 9.0}))
        record = LevelRecord(row.level.load, (), None, (0.0, 1.0), True, series=series)
        counters = counters_table(record, trial=12, attempt=1, start_id="start-a")
        store.write_level(row.trial, row.start, row.level, requests_of(row), counters)
    store.finish_trial(rows[0].trial, rows[0].start, rows[0].outcome)
    for _ in range(2):
        whole = table(store.counters_file(12), COUNTERS)
        [first, other, second] = rows_of(whole, Load(8, repeat=1)).to_pylist()
        assert (first["t_s"], first["name"], first["value"]) == (1.0, "a_total", 1.0)
        assert (other["name"], second["t_s"], second["value"]) == ("b", 2.0, 9.0)
        assert rows_of(whole, Load(request_rate=2.5)).num_rows == 3
        assert not list(store.levels_folder(12).glob("*.counters.arrow"))
        # Made again, it stays the same.
        store.trial_file(12).unlink()
        store.recover()


def test_levels_of_a_study_of_an_older_version_are_read_and_taken_over(store: ResultStore, build_row: Build) -> None:
    rows = [build_row(12, 8), build_row(12, 128)]
    run_trial(store, rows)
    (store.root / "levels").rename(store.root / "journal")
    store.trial_file(12).unlink()
    before = tree(store.root)
    assert ResultStore(store.root, read_only=True).trial(12) == rows
    assert tree(store.root) == before

    opened = ResultStore(store.root)
    opened.recover()
    assert opened.trial(12) == rows
    assert not (store.root / "journal").exists()
    assert opened.level_file(12, rows[0].level.load).exists()


def test_levels_of_both_names_are_brought_together(store: ResultStore, build_row: Build) -> None:
    run_trial(store, [build_row(1, 8)])
    (store.root / "levels").rename(store.root / "journal")
    run_trial(store, [build_row(2, 8)])
    ResultStore(store.root).recover()
    assert sorted(path.name for path in (store.root / "levels").iterdir()) == ["000001", "000002"]
    assert not (store.root / "journal").exists()
