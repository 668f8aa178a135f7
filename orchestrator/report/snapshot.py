"""Where a sweep stands at one instant: what the live view shows, `orchestrator.status` prints, and `live.json` holds.

The names of the fields are those of the JSON. They are stable: fields are added, none is renamed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from launchers.base import Phase
from orchestrator.analysis.finding import Finding, settings_text
from orchestrator.analysis.findings import findings
from orchestrator.analysis.gains import Gains
from orchestrator.analysis.rows import Row, by_trial
from orchestrator.analysis.winner import winner
from orchestrator.config import SweepConfig
from orchestrator.node_status import NodeStatus
from orchestrator.report.estimate import PhaseSeconds, total_s
from orchestrator.report.summary import fixed_settings
from orchestrator.results.fronts import pareto_front


@dataclass(frozen=True)
class NodeView:
    """What a node does now, and for which trial."""

    node: str
    trial: int
    role: str
    #: The settings that tell the trial from the others.
    settings: str
    phase: str
    #: While weights are loaded: files loaded and in all.
    shards: tuple[int, int] | None = None
    #: Why the phase may take long this time.
    note: str | None = None
    #: While a server starts: wall seconds since it was spawned, and about how many the start takes in all.
    elapsed_s: float | None = None
    about_s: float | None = None
    #: While a level is measured: `C=32`; its measured and planned requests.
    level: str | None = None
    requests_done: int = 0
    requests_planned: int = 0
    output_tokens_per_s: float | None = None
    #: Half of the rate's 95 % interval so far, as a share of it.
    half_width: float | None = None


@dataclass(frozen=True)
class FrontView:
    """A trial on the front, best of the first objective first."""

    trial: int
    role: str
    settings: str
    #: By metric, as in `Snapshot.objectives`.
    values: dict[str, float]


@dataclass(frozen=True)
class FindingView:
    """A finding; `new`: it came with the trial that ended last."""

    kind: str
    text: str
    new: bool = False


@dataclass(frozen=True)
class Score:
    """The best score so far."""

    metric: str
    #: Of trial 0, over its starts in the search.
    baseline: float | None = None
    best: float | None = None
    best_trial: int | None = None
    #: best / baseline - 1; of a confirmed trial within the rounds of its confirmation.
    gain: float | None = None
    #: Whether fresh starts have shown the best to beat the baseline (or, of trial 0, that nothing does).
    confirmed: bool = False
    #: Of how many starts `baseline` is.
    baseline_starts: int | None = None
    #: better, worse or tie: what the gain is told to be; None for the baseline, and where there is none.
    verdict: str | None = None


@dataclass(frozen=True)
class ResultsView:
    """What the trials that have ended amount to."""

    score: Score
    #: Metrics of the front, the first one first.
    objectives: tuple[str, ...] = ()
    front: tuple[FrontView, ...] = ()
    findings: tuple[FindingView, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """The state of the sweep at one instant."""

    study: str
    simulated: bool
    #: Trials that have their end, and about how many it will be; starts that prove the result included.
    done: int
    planned: int
    #: Of this run of the command, None where it is not known; what is left is an estimate, None before a trial of this
    #: run has ended.
    elapsed_s: float | None
    left_s: float | None
    #: Of all runs together, at least; what is left is an estimate.
    node_hours: float
    node_hours_left: float | None
    results: ResultsView
    nodes: tuple[NodeView, ...] = ()
    #: 0: it goes on; 1: it stops after the levels that are being measured; 2: it stops at once.
    stopping: int = 0

    def as_data(self) -> dict[str, Any]:
        """As plain data for JSON."""
        data: dict[str, Any] = _ADAPTER.dump_python(self, mode="json")
        return data

    @classmethod
    def from_data(cls, data: Any) -> Snapshot:
        """What `as_data` gave. Raises pydantic.ValidationError."""
        return _ADAPTER.validate_python(data)


_ADAPTER = TypeAdapter(Snapshot)


def node_view(status: NodeStatus, role: str, settings: str, earlier: Sequence[PhaseSeconds] = ()) -> NodeView:
    """A node's status for a person; `earlier` starts give an estimate."""
    start = status.start
    about_s = None
    if start is not None and start.progress.phase is not Phase.READY:
        about_s = total_s(start, earlier)
    return NodeView(
        node=status.node,
        trial=status.ordinal,
        role=role,
        settings=settings,
        phase=status.phase,
        shards=None if start is None else start.progress.shards,
        note=None if start is None else start.progress.note,
        elapsed_s=None if start is None else start.elapsed_s,
        about_s=about_s,
        level=None if status.load is None else status.load.label,
        requests_done=status.done,
        requests_planned=status.total,
        output_tokens_per_s=status.output_tokens_per_s,
        half_width=status.half_width,
    )


def results_view(config: SweepConfig, rows: Sequence[Row], before: ResultsView | None = None) -> ResultsView:
    """What these rows of ended trials amount to; findings that `before` has not are new.

    Raises ValueError for simulated and measured rows together.
    """
    fixed = fixed_settings(config)
    objectives = config.objectives
    points = pareto_front(rows, objectives, config.limits).points
    sign = -1 if objectives[0].direction == "maximize" else 1
    known = None if before is None else {_gist(finding.kind, finding.text) for finding in before.findings}
    return ResultsView(
        score=_score(config, rows),
        objectives=tuple(str(objective.metric) for objective in objectives),
        front=tuple(
            FrontView(
                point.row.trial.trial,
                point.row.trial.role,
                settings_text(point.row, fixed),
                {str(o.metric): value for o, value in zip(point.objectives, point.values, strict=True)},
            )
            for point in sorted(points, key=lambda p: (sign * p.values[0], p.row.trial.trial))
        ),
        findings=tuple(_view(finding, known) for finding in findings(rows, config.score.objective, config.limits)),
    )


def _score(config: SweepConfig, rows: Sequence[Row]) -> Score:
    objective = config.score.objective
    trials, gains = by_trial(rows), Gains(rows, objective, config.limits)
    base = gains.base
    known = Score(str(objective.metric), confirmed=bool(gains.fresh))
    if base is not None:
        known = replace(known, baseline=base.value, baseline_starts=base.starts)
    best = winner(trials, objective, config.limits)
    value = None if best is None else gains.trial(trials[best])
    if best is None or value is None:
        return known
    if best == 0:
        return replace(known, best=value.value, best_trial=0, gain=0.0)
    gain = gains.trial_gain(trials[best])
    if gain is None:
        return replace(known, best=value.value, best_trial=best)
    shown = value.value if gain.fresh is None else gain.fresh.value
    return replace(known, best=shown, best_trial=best, gain=gain.judged.mean - 1, verdict=gain.verdict)


def _view(finding: Finding, known: Collection[str] | None) -> FindingView:
    # That there is nothing yet is no news.
    new = known is not None and finding.kind != "no_candidate" and _gist(finding.kind, finding.text) not in known
    return FindingView(finding.kind, finding.text, new)


def _gist(kind: str, text: str) -> str:
    """What a finding says in its first sentence apart from its numbers, which move with every trial; whose trial it is
    about stays."""
    text = re.sub(r"\(.*?\)", "", text.split(". ")[0])
    named = re.search(r"\btrial \d+", text)
    return f"{kind} {named[0] if named else ''} {' '.join(re.findall(r'[A-Za-z_]+', text.replace('trials', 'trial')))}"
