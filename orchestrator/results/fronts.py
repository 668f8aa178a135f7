"""The two fronts: of the study's objectives, and of tokens/s per user against tokens/s of the server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from orchestrator.analysis.baseline import baseline_of
from orchestrator.analysis.gains import throughput_at
from orchestrator.analysis.objectives import Constraint, Direction, Objective
from orchestrator.analysis.pareto import non_dominated
from orchestrator.analysis.rows import Row, all_simulated, by_trial, metric_value
from orchestrator.offered_load import Load
from orchestrator.results.schemas import FRONTIER, PARETO
from orchestrator.results.tables import to_json


@dataclass(frozen=True, slots=True)
class ParetoPoint:
    """A trial on the front of the objectives; `row` is one of its rows, for its settings."""

    row: Row
    objectives: tuple[Objective, ...]
    #: In the order of the objectives, each in its metric's unit.
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ParetoFront:
    """The points that no other dominates, by trial, and why complete trials were left out."""

    points: tuple[ParetoPoint, ...]
    #: Reason by trial ordinal.
    excluded: dict[int, str]


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """A measured level, seen from its users and from its server."""

    row: Row
    concurrency: int
    tokens_per_s_per_user: float
    tokens_per_s: float
    #: None for a server without GPUs.
    tokens_per_s_per_gpu: float | None
    #: No other level is at least as good in both and better in one.
    on_front: bool


def pareto_front(
    rows: Iterable[Row], objectives: Sequence[Objective], constraints: Sequence[Constraint] = ()
) -> ParetoFront:
    """The front over all complete trials that meet the constraints and have every objective's value, the baseline's
    over its starts.

    Raises ValueError for simulated and measured rows together.
    """
    rows = list(rows)
    all_simulated(rows)
    bases = {o.metric: found.value for o in objectives if (found := baseline_of(rows, o.metric)) is not None}
    # Starts made again are no settings of their own.
    rows = [row for row in rows if row.trial.repeats is None]
    candidates: list[ParetoPoint] = []
    excluded: dict[int, str] = {}
    for trial, group in by_trial(rows).items():
        if group[0].outcome.state != "complete":
            continue
        if any(row.start.output_differs for row in group):
            excluded[trial] = "its output is not the baseline's"
            continue
        values = [metric_value(group, objective.metric) for objective in objectives]
        if trial == 0:
            values = [bases.get(o.metric, value) for o, value in zip(objectives, values, strict=True)]
        missing = [str(o.metric) for o, value in zip(objectives, values, strict=True) if value is None]
        broken = [str(c) for c in constraints if c.violation(metric_value(group, c.metric)) > 0]
        if missing:
            excluded[trial] = f"no valid {', '.join(missing)}"
        elif broken:
            excluded[trial] = f"does not meet {', '.join(broken)}"
        else:
            whole = tuple(value for value in values if value is not None)
            candidates.append(ParetoPoint(group[0], tuple(objectives), whole))
    front = non_dominated([p.values for p in candidates], [o.direction for o in objectives])
    return ParetoFront(tuple(candidates[index] for index in front), excluded)


def frontier(rows: Iterable[Row]) -> list[FrontierPoint]:
    """Every closed-loop level with a valid throughput of every trial that did not fail, by trial and concurrency.

    A level of an interrupted trial counts: it was measured whole. The baseline's is that over its starts. What a server
    gives is its tokens/s per GPU, or its tokens/s where it has none.

    Raises ValueError for simulated and measured rows together.
    """
    rows = list(rows)
    all_simulated(rows)
    bases: dict[int, float | None] = {}
    levels: list[tuple[Row, int, float, float, float | None]] = []
    for row in rows:
        rate = row.output_tokens_per_s
        users = row.level.load.concurrency if row.level is not None else None
        # Users that an open loop has not, and what it gives is what it was asked for. A repeat would be a second point.
        if rate is None or users is None or row.trial.repeats is not None or (row.level and row.level.load.repeat):
            continue
        if row.trial.role == "baseline":
            if users not in bases:
                base = baseline_of(rows, throughput_at(Load(users)).metric)
                bases[users] = base.value if base else None
            rate = bases[users] or rate
        if row.outcome.state in ("complete", "interrupted"):
            gpus = row.trial.gpus
            levels.append((row, users, rate / users, rate, rate / gpus if gpus else None))
    levels.sort(key=lambda level: (level[0].trial.trial, level[1]))
    both: tuple[Direction, Direction] = ("maximize", "maximize")
    seen = [(user, rate if per_gpu is None else per_gpu) for _, _, user, rate, per_gpu in levels]
    front = set(non_dominated(seen, both))
    return [FrontierPoint(*level, on_front=index in front) for index, level in enumerate(levels)]


def pareto_table(front: ParetoFront) -> pa.Table:
    """The front as a PARETO table."""
    points = front.points
    return PARETO.table(
        {
            **_trial_columns([p.row for p in points]),
            "objective_names": [[str(o.metric) for o in p.objectives] for p in points],
            "objective_values": [list(p.values) for p in points],
            "directions": [[o.direction for o in p.objectives] for p in points],
        }
    )


def frontier_table(points: Sequence[FrontierPoint]) -> pa.Table:
    """The levels as a FRONTIER table."""
    return FRONTIER.table(
        {
            **_trial_columns([p.row for p in points]),
            "state": [p.row.outcome.state for p in points],
            "concurrency": [p.concurrency for p in points],
            "tokens_per_s_per_user": [p.tokens_per_s_per_user for p in points],
            "tokens_per_s": [p.tokens_per_s for p in points],
            "tokens_per_s_per_gpu": [p.tokens_per_s_per_gpu for p in points],
            "on_front": [p.on_front for p in points],
        }
    )


def _trial_columns(rows: Sequence[Row]) -> dict[str, list[object]]:
    plain = ("trial", "role", "identity", "simulated", "launch_command")
    settings = ("requested_flags", "requested_env", "canonical_flags", "canonical_env")
    columns: dict[str, list[object]] = {name: [getattr(r.trial, name) for r in rows] for name in plain}
    return columns | {name: [to_json(getattr(r.trial, name)) for r in rows] for name in settings}
