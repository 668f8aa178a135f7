"""Typed rows and request records to tables of the explicit schemas, and back."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.analysis.effective import differences
from orchestrator.analysis.objectives import LATENCIES
from orchestrator.analysis.rows import MeasuredLevel, Outcome, Row, StartInfo, TrialInfo
from orchestrator.benchmark.records import Distribution, LevelMetrics, LevelRecord, RequestRecord
from orchestrator.offered_load import Load
from orchestrator.results.schemas import COUNTERS, LATENCY_STATS, MEASUREMENTS, REQUESTS

T = TypeVar("T")

_JSON = frozenset(f.name for f in MEASUREMENTS.fields if f.metadata.get(b"format") == b"json")
_RECORD_FIELDS = tuple(f.name for f in dataclasses.fields(RequestRecord))
_LEVEL_COLUMNS = tuple(f.name for f in MEASUREMENTS.fields)[
    [f.name for f in MEASUREMENTS.fields].index("concurrency") :
]


def measurements_table(rows: Sequence[Row]) -> pa.Table:
    """The rows as a MEASUREMENTS table, in their order."""
    flat = [_flatten(row) for row in rows]
    return MEASUREMENTS.table({field.name: [row[field.name] for row in flat] for field in MEASUREMENTS.fields})


def rows_from(table: pa.Table) -> list[Row]:
    """The rows of a MEASUREMENTS table."""
    return [_unflatten(values) for values in table.to_pylist()]


def requests_table(level: LevelRecord, *, trial: int, attempt: int, start_id: str | None) -> pa.Table:
    """A level's requests as a REQUESTS table; the level's own stamps stand in every row."""
    count = len(level.requests)
    window: tuple[float | None, float | None] = level.window_s or (None, None)
    constants = {
        "trial": trial,
        "attempt": attempt,
        "start_id": start_id,
        **_load_columns(level.load),
        "window_start_s": window[0],
        "window_end_s": window[1],
        "span_start_s": level.span_s[0],
        "span_end_s": level.span_s[1],
        "completed": level.completed,
    }
    columns: dict[str, Any] = {name: [value] * count for name, value in constants.items()}
    for name in _RECORD_FIELDS:
        columns[name] = [getattr(request, name) for request in level.requests]
    return REQUESTS.table(columns)


def counters_table(level: LevelRecord, *, trial: int, attempt: int, start_id: str | None) -> pa.Table:
    """A level's readings of the server's counters as a COUNTERS table."""
    read = [(r.t_s, name, value) for r in level.series for name, value in r.values.items()]
    constants = {"trial": trial, "attempt": attempt, "start_id": start_id, **_load_columns(level.load)}
    columns: dict[str, Any] = {name: [value] * len(read) for name, value in constants.items()}
    for position, name in enumerate(("t_s", "name", "value")):
        columns[name] = [values[position] for values in read]
    return COUNTERS.table(columns)


def levels_from_requests(table: pa.Table) -> list[LevelRecord]:
    """The levels of a REQUESTS table in its order; the server's counters stand in the measurement."""
    groups: dict[Load, list[dict[str, Any]]] = {}
    for values in table.to_pylist():
        groups.setdefault(_load(values), []).append(values)
    levels = []
    for load, group in groups.items():
        first = group[0]
        no_window = first["window_start_s"] is None
        levels.append(
            LevelRecord(
                load=load,
                requests=tuple(map(_request, group)),
                window_s=None if no_window else (first["window_start_s"], first["window_end_s"]),
                span_s=(first["span_start_s"], first["span_end_s"]),
                completed=first["completed"],
            )
        )
    return levels


def _load_columns(load: Load) -> dict[str, Any]:
    return {"concurrency": load.concurrency, "request_rate": load.request_rate, "level_repeat": load.repeat}


def _load(values: Mapping[str, Any]) -> Load:
    """Files of earlier versions have no repeats."""
    return Load(values["concurrency"], values["request_rate"], values["level_repeat"] or 0)


def rows_of(table: pa.Table, load: Load) -> pa.Table:
    """The rows of one level in a table that has the columns of its load."""
    name, size = ("concurrency", load.concurrency) if load.closed else ("request_rate", load.request_rate)
    repeats = pc.fill_null(table["level_repeat"], 0)
    return table.filter(pc.and_(pc.equal(table[name], size), pc.equal(repeats, load.repeat)))


def _request(values: Mapping[str, Any]) -> RequestRecord:
    kept = {name: values[name] for name in _RECORD_FIELDS}
    return RequestRecord(**kept | {"event_s": tuple(kept["event_s"]), "event_tokens": tuple(kept["event_tokens"])})


def _own(value: Any) -> dict[str, Any]:
    """A value class's fields by name, not converted further."""
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}


def _flatten(row: Row) -> dict[str, Any]:
    flat = {**_own(row.trial), **_own(row.start), **_own(row.outcome), **dict.fromkeys(_LEVEL_COLUMNS)}
    flat["differences"] = [_own(difference) for difference in differences(row)]
    level = row.level
    if level is not None:
        metrics = level.metrics
        flat |= _own(level) | _own(metrics)
        del flat["metrics"]
        flat |= _load_columns(flat.pop("load"))
        flat["errors"] = flat.pop("errors_by_kind")
        for name in LATENCIES:
            spread: Distribution | None = flat.pop(name)
            for stat in LATENCY_STATS:
                flat[f"{name}_{stat}"] = None if spread is None else getattr(spread, stat)
        for name in ("counters_before", "counters_after"):
            flat[name] = {k: v for k, v in flat[name].items() if math.isfinite(v)}
        flat["admission_limited"] = row.admission_limited
        flat["retracted_requests"] = level.retracted_requests
        flat["accept_rate"] = row.accept_rate
        flat["invalid_reason"] = level.invalid_reason
        rate = metrics.output_tokens_per_s
        if rate is not None:
            users = metrics.load.concurrency
            flat["output_tokens_per_s_per_user"] = rate / users if users else None
            flat["output_tokens_per_s_per_gpu"] = rate / row.trial.gpus if row.trial.gpus else None
    for name in _JSON:
        if flat[name] is not None:
            flat[name] = to_json(flat[name])
    return flat


def to_json(value: Any) -> str:
    """JSON text that is the same for equal values; a number that is none (NaN, infinity) is null."""
    return json.dumps(_finite(value), sort_keys=True, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _unflatten(values: Mapping[str, Any]) -> Row:
    flat = {name: json.loads(v) if name in _JSON and v is not None else v for name, v in values.items()}
    # Files of the first version have it there, and not what follows.
    if flat["effective_max_running_requests"] is None:
        flat["effective_max_running_requests"] = flat["effective_settings"].get("effective_max_running_requests")
    flat["server_environment"] = flat["server_environment"] or {}
    for name in ("gpu_names", "start_changes", "rule_disagreements", "level_changes"):
        flat[name] = tuple(flat[name] or ())
    for name in ("outputs", "outputs_alone"):
        flat[name] = None if flat[name] is None else tuple(map(tuple, flat[name]))
    return Row(
        trial=_pick(TrialInfo, flat),
        start=_pick(StartInfo, flat),
        outcome=_pick(Outcome, flat),
        level=None if flat["concurrency"] is None and flat["request_rate"] is None else _level(flat),
    )


def _level(flat: dict[str, Any]) -> MeasuredLevel:
    spreads: dict[str, Distribution | None] = {}
    for name in LATENCIES:
        stats = {stat: flat[f"{name}_{stat}"] for stat in LATENCY_STATS}
        spreads[name] = None if stats["mean"] is None else Distribution(**stats)
    metrics = _pick(LevelMetrics, {**flat, **spreads, "load": _load(flat), "errors_by_kind": flat["errors"]})
    return _pick(MeasuredLevel, {**flat, "metrics": metrics})


def _pick(kind: type[T], flat: Mapping[str, Any]) -> T:
    return kind(**{f.name: flat[f.name] for f in dataclasses.fields(kind)})  # type: ignore[arg-type]
