"""What came of a trial by the study's score, and the reason in few words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from orchestrator.analysis.causes.drafts import draft_tokens, most_tokens
from orchestrator.analysis.causes.evidence import Evidence, users
from orchestrator.analysis.comparisons import number, percent
from orchestrator.analysis.noise import NoiseFloor, Value, geometric_mean, ratio_of
from orchestrator.analysis.objectives import Constraint, Objective
from orchestrator.analysis.rows import Row, metric_value
from orchestrator.analysis.winner import Confirmation, confirmations, floor_of
from orchestrator.benchmark.intervals import Interval


@dataclass(frozen=True, slots=True)
class Verdict:
    """A complete trial's score and what it is against the baseline's."""

    text: str
    score: float | None = None
    #: `849 simulated tok/s at C=128`.
    score_text: str | None = None
    gain: Interval | None = None
    accept_length: float | None = None
    #: The constraint that is not met, with the value; None where all are.
    violated: str | None = None


class Judge:
    """Judges the trials of a study."""

    def __init__(self, rows: Iterable[Row], objective: Objective, limits: Sequence[Constraint] = ()) -> None:
        self._evidence = Evidence(rows)
        self._objective = objective
        self._limits = limits
        self._confirmed = {found.trial: found for found in confirmations(self._evidence.rows, objective)}

    @property
    def common(self) -> Mapping[str, Any]:
        """The settings of the baseline, which every trial has."""
        base = self._evidence.baseline
        return {} if base is None else {**base.trial.requested_flags, **base.trial.requested_env}

    @cached_property
    def _floor(self) -> NoiseFloor | None:
        return floor_of(self._evidence.rows, self._objective.metric)

    @cached_property
    def _base(self) -> Value | None:
        """The baseline's score over its whole starts."""
        metric, values = self._objective.metric, []
        for group in self._evidence.trials.values():
            if group[0].trial.role in ("baseline", "sentinel") and group[0].outcome.state == "complete":
                value = metric_value(group, metric)
                # A cost of 0 has no ratio.
                values += [value] if value else []
        first = self._evidence.trials.get(0, [])
        if not values or metric_value(first, metric) is None:
            return None
        widths = [_half_width(group, self._objective) for group in [first]]
        return Value(geometric_mean(values), widths[0], len(values))

    def of(self, group: Sequence[Row]) -> Verdict:
        """The verdict on a complete trial's rows."""
        metric, trial = self._objective.metric, group[0].trial
        score = metric_value(group, metric)
        at = metric.load.label
        if score is None:
            why = next((r.level.invalid_reason for r in group if r.level and r.level.load == metric.load), None)
            return Verdict(f"has no {metric} that counts" + (f": {why}" if why else ""))
        row = next(r for r in group if r.level is not None and r.level.load == metric.load)
        own = Value(score, _half_width(group, self._objective))
        figure = f"{number(score)} {self._unit} {at}"
        gain = None
        if self._base is not None and trial.repeats != 0 and trial.trial != 0:
            gain = ratio_of(own, self._base, self._floor)
        accepted = row.level.metrics.accept_length if row.level and trial.speculative else None
        text = self._text(group, row, figure, gain)
        return Verdict(text, score, figure, gain, accepted, self._violated(group))

    @property
    def _unit(self) -> str:
        name = self._objective.metric.name
        if name == "output_tokens_per_s":
            return f"{self._evidence.unit} at"
        return f"{'simulated ' if self._evidence.simulated else ''}{str(self._objective.metric).split('@')[0]} at"

    def _text(self, group: Sequence[Row], row: Row, figure: str, gain: Interval | None) -> str:
        trial = row.trial
        if trial.role == "baseline":
            return f"{figure}: what the others are compared with"
        if trial.role == "sentinel":
            return f"the baseline again: {figure}{self._beside(0, row)}"
        if trial.role == "confirmation" and trial.repeats is not None:
            of = "the baseline" if trial.repeats == 0 else f"trial {trial.repeats}"
            return f"round {trial.repeat} of the confirmation, {of} started afresh: {figure}"
        if gain is None:
            measured = metric_value(self._evidence.trials.get(0, []), self._objective.metric) is not None
            why = (
                "its ratio to the baseline's cannot be told, one is 0" if measured else "no baseline to compare it with"
            )
            return f"{figure}; {why}"
        at = self._objective.metric.load.label
        confirmed = self._confirmed.get(trial.trial)
        if confirmed is not None:
            return f"{self._cause(row)}{_signed(gain)} at {at}; {_confirmed(confirmed)}"
        word = self._word(gain, trial.speculative)
        sure = f" ({percent(gain.low)} to {percent(gain.high)} %)" if gain.holds(1.0) and gain.low < gain.high else ""
        return f"{self._cause(row)}{_signed(gain)}{sure} at {at}: {word}{self._elsewhere(group, gain)}"

    def _beside(self, trial: int, row: Row) -> str:
        first = metric_value(self._evidence.trials.get(trial, []), self._objective.metric)
        value = metric_value([row], self._objective.metric)
        return f", {percent(value / first)} % on its first start" if first and value else ""

    def _cause(self, row: Row) -> str:
        """What is behind it, where that can be told in a few words."""
        parts = []
        if row.trial.speculative:
            accepted, most = row.level.metrics.accept_length if row.level else None, most_tokens(row)
            if accepted is not None:
                tree = draft_tokens(row)
                wide = f", {tree} verified" if most and tree and tree > most else ""
                parts.append(f"accept length {accepted:.2f}{f' of {most}{wide}' if most else ''}")
        cap = row.start.effective_max_running_requests
        if row.admission_limited and cap is not None:
            parts.append(f"{cap} of {users(row)} requests ran at once")
        return "".join(f"{part}, " for part in parts)

    def _word(self, gain: Interval, speculative: bool) -> str:
        if gain.holds(1.0):
            return "no difference from the baseline that can be told"
        if self._objective.better(gain.mean, 1.0):
            return "better than the baseline, unconfirmed"
        return "no speedup" if speculative else "worse than the baseline"

    def _elsewhere(self, group: Sequence[Row], gain: Interval) -> str:
        """The best gain at another load, where the score's has none."""
        if not gain.holds(1.0) and self._objective.better(gain.mean, 1.0):
            return ""
        found = []
        for row in group:
            if row.level is None or row.level.load == self._objective.metric.load or not row.level.load.closed:
                continue
            ratio = self._evidence.against_baseline(row)
            if ratio is not None and ratio.low > 1.0 and ratio.low < ratio.high:
                found.append((ratio.mean, row.level.load.label))
        return f"; {percent(max(found)[0])} % at {max(found)[1]}" if found else ""

    def _violated(self, group: Sequence[Row]) -> str | None:
        if group[0].trial.repeats is not None:
            return None
        for limit in self._limits:
            value = metric_value(group, limit.metric)
            if limit.violation(value) > 0:
                return f"{limit} ({'not measured' if value is None else number(value)})"
        return None


def _confirmed(found: Confirmation) -> str:
    verdict = {"better": "confirmed", "worse": "refuted", "tie": "a tie, not confirmed"}[found.verdict]
    return f"started afresh in {found.rounds} rounds {_signed(found.ratio)}: {verdict}"


def _half_width(group: Sequence[Row], objective: Objective) -> float | None:
    row = next((r for r in group if r.level is not None and r.level.load == objective.metric.load), None)
    if row is None or row.level is None or objective.metric.name != "output_tokens_per_s":
        return None
    return row.level.metrics.output_tokens_per_s_half_width


def _signed(ratio: Interval) -> str:
    """`-64 %`, `+2.1 %`: whole percents from ten on."""
    value = 100 * (ratio.mean - 1)
    return f"{value:+.0f} %" if abs(value) >= 10 else f"{value:+.1f} %"
