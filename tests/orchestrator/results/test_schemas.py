"""Rows and requests keep their values and types through the tables, whatever is absent."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.analysis.rows import Row
from orchestrator.benchmark.records import LevelMetrics, LevelRecord, RequestRecord
from orchestrator.offered_load import Load
from orchestrator.results.files import Unreadable, read_table, write_table
from orchestrator.results.schemas import (
    COUNTERS,
    FRONTIER,
    JOURNAL,
    LATENCY_STATS,
    MEASUREMENTS,
    NOTES,
    PARETO,
    REQUESTS,
)
from orchestrator.results.table_schema import ForeignTable, TableSchema, column
from orchestrator.results.tables import levels_from_requests, measurements_table, requests_table, rows_from

Build = Callable[..., Row]
SCHEMAS = [MEASUREMENTS, REQUESTS, COUNTERS, PARETO, FRONTIER, JOURNAL, NOTES]


def test_a_row_comes_back_as_it_was(build_row: Build) -> None:
    rows = [
        build_row(3, 128, 849.0, flags={"speculative-algorithm": "EAGLE3", "x": [1, "a", None]}),
        build_row(4, None, state="failed", failure_kind="crashed", failure_message="it died"),
        build_row(5, 1, None, simulated=False, failed=3),
    ]
    assert rows_from(measurements_table(rows)) == rows


def test_what_a_start_really_ran_comes_back_as_it_was(build_row: Build) -> None:
    row = build_row(3, 128, flags={"max-running-requests": 256}, effective={"max-running-requests": 256}, admits=48)
    assert row.level is not None
    start = dataclasses.replace(
        row.start,
        effective_kv_tokens=20_000,
        server_environment={"NCCL_PROTO": "LL"},
        start_changes=("max_running_requests was reduced from the requested 256 to 48",),
        outputs=((1, 2), (3,)),
        outputs_alone=((1, 2), (4,)),
        output_agreement=0.5,
        output_self_agreement=0.75,
        output_differs=True,
        stop_report={"signals": ["TERM"], "survivors": []},
    )
    told = ("KV cache pool is full. Retract requests.",)
    level = dataclasses.replace(row.level, level_changes=told, retraction_events=2)
    row = dataclasses.replace(row, start=start, level=level)
    table = measurements_table([row])
    assert rows_from(table) == [row]
    [values] = table.to_pylist()
    assert values["admission_limited"] is True
    assert values["outputs"] == [[1, 2], [3]]
    [difference] = json.loads(values["differences"])
    assert (difference["name"], difference["asked"], difference["in_force"]) == ("max-running-requests", 256, 48)


def test_absent_is_null_and_never_zero(build_row: Build) -> None:
    full = build_row(1, 8, None)
    assert full.level is not None
    nothing = {
        f.name: None
        for f in dataclasses.fields(LevelMetrics)
        if "None" in str(f.type)  # annotations are text
    }
    metrics = dataclasses.replace(full.level.metrics, **nothing)
    row = dataclasses.replace(full, level=dataclasses.replace(full.level, metrics=metrics))
    table = measurements_table([row])
    for name in [*nothing, "output_tokens_per_s_per_user", "ttft_ms_p99"]:
        names = [n for n in table.column_names if n == name or n.startswith(f"{name}_")]
        assert names
        assert all(table[n].null_count == 1 for n in names if n != "output_tokens"), name
    assert rows_from(table) == [row]


def test_rates_per_user_and_per_gpu_are_shares_of_the_throughput(build_row: Build) -> None:
    [values] = measurements_table([build_row(1, 128, 2370.0, gpus=8)]).to_pylist()
    assert values["output_tokens_per_s_per_user"] == pytest.approx(18.515625)
    assert values["output_tokens_per_s_per_gpu"] == pytest.approx(296.25)
    [values] = measurements_table([build_row(1, 128, 2370.0, gpus=0)]).to_pylist()
    assert values["output_tokens_per_s_per_gpu"] is None


def test_the_cache_state_and_the_cached_tokens_stand_in_every_level(build_row: Build) -> None:
    [values] = measurements_table([build_row(1, 8, cache_state="warm")]).to_pylist()
    assert values["cache_state"] == "warm"
    assert values["cached_tokens"] == 0


def test_a_counter_that_is_no_number_is_left_out(build_row: Build) -> None:
    row = build_row(1, 8)
    odd = dataclasses.replace(row.level, counters_after={"a": math.nan, "b": 2.0, "c": math.inf})
    [back] = rows_from(measurements_table([dataclasses.replace(row, level=odd)]))
    assert back.level is not None
    assert back.level.counters_after == {"b": 2.0}


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_every_column_has_a_type_and_a_meaning_and_times_have_units(schema: TableSchema) -> None:
    assert int(schema.arrow.metadata[b"schema_version"]) == schema.version
    for field in schema.fields:
        assert not pa.types.is_null(field.type)
        assert field.metadata[b"meaning"]
        for suffix, unit in (("_ms", b"ms"), ("_s", b"s"), ("tokens_per_s", b"tokens/s")):
            name = field.name
            for stat in ("_mean", "_p50", "_p90", "_p99"):
                name = name.removesuffix(stat)
            if name.endswith(suffix) and not (suffix == "_s" and name.endswith("_per_s")):
                assert field.metadata[b"unit"] == unit, field.name


def test_types_do_not_drift_with_the_first_rows_values(build_row: Build, tmp_path: Path) -> None:
    write_table(tmp_path / "0.arrow", measurements_table([build_row(0, 8, 100, accept_length=None)]))
    write_table(tmp_path / "1.arrow", measurements_table([build_row(1, 8, 101.5, accept_length=2.7)]))
    first, second = (read_table(tmp_path / f"{n}.arrow", MEASUREMENTS) for n in (0, 1))
    assert first is not None
    assert first.schema.equals(second.schema, check_metadata=True)
    both = pa.concat_tables([first, second])
    assert both["accept_length"].to_pylist() == [None, 2.7]
    assert both["output_tokens_per_s"].to_pylist() == [100.0, 101.5]
    assert both.schema.field("accept_length").type == pa.float64()
    assert measurements_table([]).schema.equals(both.schema)


OLD = TableSchema("test.table", 1, (column("trial", pa.int32(), "t", required=True),))
NEW = TableSchema("test.table", 2, (*OLD.fields, column("newcol", pa.float64(), "n", unit="s")))


def test_a_column_that_is_newer_than_the_file_is_null(tmp_path: Path) -> None:
    write_table(tmp_path / "old.arrow", OLD.table({"trial": [0, 1]}))
    write_table(tmp_path / "new.arrow", NEW.table({"trial": [2], "newcol": [0.5]}))
    tables = [read_table(tmp_path / name, NEW) for name in ("old.arrow", "new.arrow")]
    merged = pa.concat_tables(tables)
    assert merged.to_pylist() == [
        {"trial": 0, "newcol": None},
        {"trial": 1, "newcol": None},
        {"trial": 2, "newcol": 0.5},
    ]
    assert merged.schema.equals(NEW.arrow, check_metadata=True)


#: What the second version of each schema added.
SECOND = {
    "orchestrator.measurements": {
        "effective_max_running_requests",
        "effective_kv_tokens",
        "server_environment",
        "start_changes",
        "differences",
        "rule_disagreements",
        "stop_report",
        "outputs",
        "outputs_alone",
        "output_agreement",
        "output_self_agreement",
        "output_differs",
        "accept_source",
        "accept_partial",
        "admission_limited",
        "retracted_requests",
        "level_changes",
    },
    "orchestrator.frontier": {"tokens_per_s"},
}


#: And the third.
THIRD = {"retraction_events", "output_tokens_per_s_half_width"}
#: And the fourth; what the second of the requests added.
FOURTH = {
    "repeats",
    "repeated_prompts",
    "outputs_s",
    "request_rate",
    "level_repeat",
    "total_tokens_per_s",
    "total_tokens_per_s_whole",
    "offered_requests_per_s",
    "completed_requests_per_s",
    "goodput_requests_per_s",
    "slo_attainment",
    *(f"{name}_{stat}" for name in ("itl_per_token_ms", "normalized_latency_ms") for stat in LATENCY_STATS),
    "accept_rate",
    "queue_time_ms",
    "invalid_reason",
    "client_limited",
    "warmup_s",
    "warmup_stable",
    "ended_by",
    "client_cpu_share",
    "client_lag_ms",
    "send_lag_ms_p99",
    *(f"{who}_{what}" for who in ("counter", "client") for what in ("requests", "prompt_tokens", "output_tokens")),
}
#: And the fifth.
FIFTH = {"gave_up", "in_flight_at_open", "in_flight_at_close"}
REQUESTS_SECOND = {"request_rate", "level_repeat", "targeted_s", "reasoning_tokens"}
LATER = SECOND["orchestrator.measurements"] | THIRD | FOURTH | FIFTH


def test_what_later_versions_added_may_be_absent() -> None:
    assert (MEASUREMENTS.version, REQUESTS.version, FRONTIER.version) == (5, 2, 2)
    for schema, names in (
        (MEASUREMENTS, LATER),
        (REQUESTS, REQUESTS_SECOND),
        (FRONTIER, SECOND[FRONTIER.name]),
    ):
        assert all(schema.arrow.field(name).nullable for name in names)


def test_rows_of_a_first_version_file_are_read(build_row: Build, tmp_path: Path) -> None:
    row = build_row(1, 8, effective={"effective_max_running_requests": 48})
    fields = tuple(f for f in MEASUREMENTS.fields if f.name not in LATER)
    first = TableSchema(MEASUREMENTS.name, 1, fields)
    written = measurements_table([row]).select([f.name for f in fields])
    write_table(tmp_path / "old.arrow", first.table({n: written[n].to_pylist() for n in written.column_names}))
    table = read_table(tmp_path / "old.arrow", MEASUREMENTS)
    assert table is not None
    [back] = rows_from(table)
    assert back.level == row.level
    assert back.start.effective_max_running_requests == 48
    assert back.start.output_differs is None
    assert back.comparable


def test_a_table_that_breaks_its_own_schema_is_foreign() -> None:
    nulls = pa.table({"trial": pa.array([None], pa.int32())}).replace_schema_metadata(OLD.arrow.metadata)
    wide = pa.table({"trial": pa.array([1], pa.int64())}).replace_schema_metadata(OLD.arrow.metadata)
    short = pa.table({"trial": pa.array([1], pa.int32())}).replace_schema_metadata(NEW.arrow.metadata)
    for table, schema in ((nulls, OLD), (wide, OLD), (short, NEW)):
        with pytest.raises(ForeignTable):
            schema.upgrade(table)


def test_a_wrong_column_is_refused_when_a_table_is_made() -> None:
    for columns in ({}, {"trial": [1], "x": [1]}, {"trial": ["a"]}, {"trial": [None]}, {"trial": [2**40]}):
        with pytest.raises(ValueError, match=r"test\.table"):
            OLD.table(columns)


STAMPS = st.floats(0, 1e6, allow_nan=False)
COUNTS = st.none() | st.integers(0, 10**9)
WORDS = st.none() | st.text(max_size=20)
REQUEST_RECORDS = st.builds(
    RequestRecord,
    index=st.integers(0, 10**6),
    user=st.integers(0, 511),
    warmup=st.booleans(),
    started_s=STAMPS,
    finished_s=STAMPS,
    event_s=st.lists(STAMPS, max_size=4).map(tuple),
    event_tokens=st.lists(st.floats(0, 1e6), max_size=4).map(tuple),
    prompt_tokens=COUNTS,
    cached_tokens=COUNTS,
    output_tokens=COUNTS,
    tokens_estimated=st.booleans(),
    spec_verify_steps=COUNTS,
    finish_reason=WORDS,
    error=WORDS,
    error_kind=WORDS,
    error_code=COUNTS,
    warning=WORDS,
    targeted_s=st.none() | STAMPS,
)
LEVEL_RECORDS = st.builds(
    LevelRecord,
    load=st.builds(Load, st.integers(1, 512), st.none(), st.integers(0, 2))
    | st.integers(1, 9000).map(lambda n: Load(request_rate=n / 1000)),
    requests=st.lists(REQUEST_RECORDS, min_size=1, max_size=4).map(tuple),
    window_s=st.none() | st.tuples(STAMPS, STAMPS),
    span_s=st.tuples(STAMPS, STAMPS),
    completed=st.booleans(),
)


@settings(max_examples=50)
@given(st.lists(LEVEL_RECORDS, min_size=1, max_size=3, unique_by=lambda level: level.load))
def test_raw_requests_come_back_to_the_last_bit(levels: list[LevelRecord]) -> None:
    tables = [requests_table(level, trial=12, attempt=1, start_id="start-a") for level in levels]
    assert levels_from_requests(pa.concat_tables(tables)) == levels


def test_files_read_with_pandas_and_plain_pyarrow(build_row: Build, tmp_path: Path) -> None:
    path = tmp_path / "m.arrow"
    write_table(path, measurements_table([build_row(1, 8, 100.0), build_row(1, 128, 900.0)]))
    frame = pd.read_feather(path)
    assert frame["output_tokens_per_s"].tolist() == [100.0, 900.0]
    assert str(frame["measured_at"].dt.tz) == "UTC"
    with pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as reader:
        assert reader.read_all().num_rows == 2


def test_a_table_of_another_schema_is_not_read_as_this_one(build_row: Build, tmp_path: Path) -> None:
    write_table(tmp_path / "m.arrow", measurements_table([build_row()]))
    with pytest.raises(Unreadable, match=r"orchestrator\.measurements, not orchestrator\.requests"):
        read_table(tmp_path / "m.arrow", REQUESTS)
