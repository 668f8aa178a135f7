"""The report's parts in their order: what every renderer draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.analysis.finding import Finding
from orchestrator.report.page.chart import Chart
from orchestrator.report.page.commands import launch_commands
from orchestrator.report.page.diary import Line, journal_lines
from orchestrator.report.page.drawn import Importance, drawn, importance, knobs
from orchestrator.report.page.front import Front, front_chart, front_of
from orchestrator.report.page.heat import heat_chart
from orchestrator.report.page.ladder import Ladder, ladders_of
from orchestrator.report.page.ladder_chart import ladder_chart
from orchestrator.report.page.origin import provenance
from orchestrator.report.page.parallel import parallel_chart
from orchestrator.report.page.parameters import importance_chart, slice_charts
from orchestrator.report.page.serving import acceptance_charts, starts_chart
from orchestrator.report.page.view import View

#: What a finding is about, by the beginning of its class; the first that fits.
_GROUPS = (
    ("The proof", ("confirmed", "noise_floor", "node_difference", "unsteady", "drift")),
    (
        "Against the baseline",
        ("beats", "baseline", "nothing_beats", "tie", "no_baseline", "no_candidate"),
    ),
    ("Speculation", ("speculation", "accept")),
    (
        "What the server did",
        ("admission", "setting_rewritten", "setting_unexpected", "retracted", "output", "rules", "not_stopped"),
    ),
    ("One setting at a time", ("setting_effect", "no_effect", "inert_setting", "setting")),
    ("What failed", ("failed", "cache", "client", "repeated", "counts")),
)
_OTHER = "Why"


@dataclass(frozen=True)
class Section:
    """A part of the page with its charts."""

    key: str
    title: str
    charts: tuple[Chart, ...]
    #: Charts that stand beside each other, small.
    small: tuple[Chart, ...] = ()
    #: Said where there is no chart.
    instead: str = ""


@dataclass(frozen=True)
class Contents:
    """Everything the report shows."""

    view: View
    commands: Sequence[tuple[str, str]]
    sections: Sequence[Section]
    findings: Sequence[tuple[str, Sequence[Finding]]]
    journal: Sequence[Line]
    provenance: Sequence[tuple[str, str]]
    importance: Importance | None
    front: Front | None
    #: By the key of their charts.
    ladders: Mapping[str, Ladder]


def contents_of(view: View) -> Contents:
    """Raises ValueError for simulated and measured rows together."""
    trials = drawn(view)
    important = importance(view, trials)
    own = knobs(view)
    if important is not None:
        rank = {name: place for place, (name, _) in enumerate(important.shares)}
        own_by_rank = sorted(own, key=lambda knob: rank.get(knob.name, len(rank)))
    else:
        own_by_rank = list(own)
    best = view.answer.best
    front, ladders = front_of(view), ladders_of(view)
    no_front = "No level was measured that could stand on a front."
    sections = [
        _section("front", "The front", [None if front is None else front_chart(view, front)], instead=no_front),
        _section(
            "ladder",
            "Along the ladder",
            [ladder_chart(view, key, ladder) for key, ladder in ladders.items()],
            instead="No complete trial has a level to show.",
        ),
        _section(
            "parameters",
            "What mattered",
            [importance_chart(important, view), heat_chart(view, trials), parallel_chart(view, own, trials)],
            slice_charts(view, own_by_rank, trials),
            instead="Too few settings have a score to say what mattered.",
        ),
        _section("acceptance", "Acceptance", acceptance_charts(view)),
        _section("starts", "The starts", [starts_chart(view)]),
    ]
    return Contents(
        view=view,
        commands=launch_commands(view, best) if best is not None and best in view.trials else [],
        sections=[part for part in sections if part.charts or part.small or part.instead],
        findings=_grouped(view.findings),
        journal=journal_lines(view),
        provenance=provenance(view),
        importance=important,
        front=front,
        ladders=ladders,
    )


def _section(
    key: str, title: str, charts: Sequence[Chart | None], small: Sequence[Chart] = (), instead: str = ""
) -> Section:
    shown = tuple(chart for chart in charts if chart is not None)
    return Section(key, title, shown, tuple(small), "" if shown or small else instead)


def _grouped(findings: Sequence[Finding]) -> list[tuple[str, list[Finding]]]:
    groups: dict[str, list[Finding]] = {name: [] for name in (_GROUPS[0][0], _GROUPS[1][0], _OTHER)}
    groups |= {name: [] for name, _ in _GROUPS[2:]}
    for finding in findings:
        name = next((name for name, kinds in _GROUPS if finding.kind.startswith(kinds)), _OTHER)
        groups[name].append(finding)
    return [(name, found) for name, found in groups.items() if found]
