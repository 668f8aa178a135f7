"""How the servers did: what drafts were accepted, and where the time of their starts went."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from orchestrator.analysis.rows import Row, StartInfo
from orchestrator.report.page.chart import COLOURS, DASHES, SYMBOLS, Chart, DataTable, figure, numeral
from orchestrator.report.page.view import View

_STEPS = "speculative-num-steps"
_DRAFTER = "speculative-draft-model-path"
#: More bars cannot be told apart: then those that took longest.
_MOST_STARTS = 40


def acceptance_charts(view: View) -> list[Chart]:
    """Accept length against the steps drafted, and along the ladder; nothing where none was told."""
    told = [
        row
        for trial in view.candidates.values()
        for row in trial
        if row.level is not None and row.level.metrics.accept_length is not None and not row.level.load.repeat
    ]
    return [chart for chart in (_by_steps(view, told), _by_load(view, told)) if chart is not None]


def _by_steps(view: View, told: Sequence[Row]) -> Chart | None:
    with_steps = [(row, steps) for row in told if isinstance(steps := _in_force(row, _STEPS), int)]
    if not with_steps:
        return None
    drafters = sorted({_drafter(row) for row, _ in with_steps})
    traces = []
    for position, drafter in enumerate(drafters[: len(COLOURS)]):
        own = [(row, steps) for row, steps in with_steps if _drafter(row) == drafter]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": drafter,
                "x": [steps for _, steps in own],
                "y": [_accepted(row) for row, _ in own],
                "customdata": [[row.trial.trial, row.level.load.label if row.level else ""] for row, _ in own],
                "hovertemplate": "trial %{customdata[0]} at %{customdata[1]}: %{y:.2f} of %{x} steps<extra></extra>",
                "marker": {"color": COLOURS[position], "symbol": SYMBOLS[position], "size": 9},
            }
        )
    best = max(with_steps, key=lambda pair: _accepted(pair[0]))
    text = (
        f"Output tokens a verify step, bonus included, against the steps drafted: up to {_accepted(best[0]):.2f} with "
        f"{best[1]} steps ({_drafter(best[0])}, trial {best[0].trial.trial}). 1 is none of the draft."
    )
    rows = [
        (
            str(row.trial.trial),
            _drafter(row),
            str(steps),
            row.level.load.label if row.level else "",
            f"{_accepted(row):.2f}",
        )
        for row, steps in with_steps
    ]
    x = {"title": {"text": "draft steps in force"}, "dtick": 1}
    y = {"title": {"text": f"{view.prefix}accept length, tokens"}, "rangemode": "tozero"}
    table = DataTable.of(("trial", "drafter", "steps", "load", "accept length"), rows)
    return Chart("accept-steps", "Acceptance by draft steps", text, figure(traces, x, y), table)


def _by_load(view: View, told: Sequence[Row]) -> Chart | None:
    closed = [row for row in told if row.level is not None and row.level.load.closed]
    trials: dict[int, list[Row]] = {}
    for row in closed:
        trials.setdefault(row.trial.trial, []).append(row)
    ranked = sorted(trials, key=lambda trial: -fmean(map(_accepted, trials[trial])))[: len(COLOURS)]
    if not ranked or max(len(trials[trial]) for trial in ranked) < 2:
        return None
    traces = []
    for position, trial in enumerate(ranked):
        own = sorted(trials[trial], key=_users)
        steps = _in_force(own[0], _STEPS)
        name = f"trial {trial}" + (f", {steps} steps" if steps is not None else "")
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": [_users(row) for row in own],
                "y": [_accepted(row) for row in own],
                "hovertemplate": f"{name} at C=%{{x}}: %{{y:.2f}}<extra></extra>",
                "line": {"color": COLOURS[position], "dash": DASHES[position]},
                "marker": {"color": COLOURS[position], "symbol": SYMBOLS[position], "size": 8},
            }
        )
    places = sorted({_users(row) for row in closed})
    x = {
        "title": {"text": "concurrency (users)"},
        "type": "log",
        "tickvals": places,
        "ticktext": [str(place) for place in places],
    }
    y = {"title": {"text": f"{view.prefix}accept length, tokens"}, "rangemode": "tozero"}
    low = min(_accepted(row) for row in closed)
    high = max(_accepted(row) for row in closed)
    text = (
        f"Accept length along the ladder: {low:.2f} to {high:.2f}, shown for the {len(ranked)} trials with most of it."
    )
    rows = [
        (f"trial {trial}", f"C={_users(row)}", f"{_accepted(row):.2f}", view.settings(trial))
        for trial in trials
        for row in trials[trial]
    ]
    table = DataTable.of(("setting", "load", "accept length", "settings"), rows)
    return Chart("accept-load", "Acceptance along the ladder", text, figure(traces, x, y), table)


def _in_force(row: Row, name: str) -> Any:
    value = row.start.effective_settings.get(name)
    return row.trial.canonical_flags.get(name) if value is None else value


def _drafter(row: Row) -> str:
    path = _in_force(row, _DRAFTER)
    return (
        str(path).rsplit("/", 1)[-1] if path else str(row.trial.canonical_flags.get("speculative-algorithm", "draft"))
    )


def _accepted(row: Row) -> float:
    length = row.level.metrics.accept_length if row.level is not None else None
    assert length is not None
    return length


def _users(row: Row) -> int:
    assert row.level is not None
    assert row.level.load.concurrency is not None
    return row.level.load.concurrency


def starts_chart(view: View) -> Chart | None:
    """Seconds of each phase of each start."""
    starts: dict[str, tuple[int, StartInfo]] = {}
    for row in view.rows:
        if row.start.phase_s:
            starts.setdefault(row.start.start_id or f"trial {row.trial.trial}", (row.trial.trial, row.start))
    if not starts:
        return None
    known = list(starts.values())
    phases = list(dict.fromkeys(phase for _, start in known for phase in start.phase_s))
    sums = {phase: sum(start.phase_s.get(phase, 0.0) for _, start in known) for phase in phases}
    total = sum(sums.values())
    phases = [phase for phase in phases if sums[phase] >= 0.001 * total] or phases
    shown = sorted(known, key=lambda pair: -sum(pair[1].phase_s.values()))[:_MOST_STARTS]
    shown.sort(key=lambda pair: (pair[0], pair[1].attempt))
    # Each bar has a place of its own: a trial may have been started more than once.
    labels = [f"{trial}" + (f" ({start.attempt})" if start.attempt > 1 else "") for trial, start in shown]
    traces = [
        {
            "type": "bar",
            "name": phase,
            "x": list(range(len(shown))),
            "y": [start.phase_s.get(phase, 0.0) for _, start in shown],
            "customdata": labels,
            "marker": {"color": COLOURS[position % len(COLOURS)], "line": {"color": "@paper", "width": 1}},
            "hovertemplate": f"trial %{{customdata}}, {phase}: %{{y:,.1f}} s<extra></extra>",
        }
        for position, phase in enumerate(phases)
    ]
    mean = total / len(known)
    longest = max(sums, key=lambda phase: sums[phase])
    share = 100 * sums[longest] / (total or 1)
    text = f"A start took {numeral(mean, 3)} {view.prefix}s on average of {len(known)}, {share:.0f} % of it {longest}."
    if len(known) > len(shown):
        text += f" The picture shows the {len(shown)} that took longest."
    rows = [
        (
            label,
            *(numeral(start.phase_s.get(phase, 0.0), 3) for phase in phases),
            numeral(sum(start.phase_s.values()), 3),
        )
        for label, (_, start) in zip(labels, shown, strict=True)
    ]
    x = {"title": {"text": "trial"}, "tickvals": list(range(len(shown))), "ticktext": labels, "showgrid": False}
    if len(shown) > 24:
        x |= {"tickvals": list(range(0, len(shown), 2)), "ticktext": labels[::2]}
    y = {"title": {"text": f"{view.prefix}s of a start"}}
    layout: dict[str, Any] = {"barmode": "stack", "legend": {"traceorder": "normal"}}
    table = DataTable.of(("trial", *phases, "whole"), rows)
    return Chart("starts", "Where the time of the starts went", text, figure(traces, x, y, **layout), table)
