"""The journal's table: one line a trial, whatever its state."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.analysis.rows import metric_value
from orchestrator.report.page.chart import numeral
from orchestrator.report.page.view import View


@dataclass(frozen=True, slots=True)
class Entry:
    """A trial in the journal."""

    trial: int
    role: str
    state: str
    settings: str
    score: str
    #: What became of it, in a line.
    line: str


def journal_entries(view: View) -> list[Entry]:
    """Every trial that has rows or an attempt, by ordinal."""
    found = []
    for trial in sorted({*view.trials, *view.kept.attempts}):
        group = view.trials.get(trial, ())
        attempts = view.kept.attempts.get(trial, [])
        open_now = bool(attempts) and not attempts[-1].state.is_finished()
        attrs = attempts[-1].user_attrs if attempts else {}
        role = group[0].trial.role if group else str(attrs.get("role", "candidate"))
        outcome = group[0].outcome if group else None
        score = metric_value(group, view.objective.metric)
        if open_now:
            waiting = attempts[-1].state.name == "WAITING"
            state, line = ("pending", "waits to be started again") if waiting else ("running", "is being measured")
        elif outcome is None:
            state, line = str(attrs.get("outcome", "ended")), str(attrs.get("reason", ""))
        else:
            state = outcome.state
            line = outcome.failure_message or _levels(view, trial)
            if outcome.failure_kind:
                line = f"{outcome.failure_kind}: {line}"
        repeats = group[0].trial.repeats if group else attrs.get("repeats")
        settings = view.settings(trial) if group else ""
        if repeats is not None:
            settings = f"{view.name(repeats)} again"
        found.append(Entry(trial, role, state, settings, numeral(score), " ".join(line.split())[:300]))
    return found


def _levels(view: View, trial: int) -> str:
    parts = []
    for row in view.trials[trial]:
        if row.level is not None:
            rate, accepted = row.output_tokens_per_s, row.level.metrics.accept_length
            tail = "" if accepted is None else f" (accept length {accepted:.2f})"
            parts.append(f"{row.level.load.label} {numeral(rate) or 'not comparable'}{tail}")
    return ", ".join(parts)
