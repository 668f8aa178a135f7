"""What came of a trial by the study's score, and the reason in few words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.analysis.causes.drafts import draft_tokens, most_tokens
from orchestrator.analysis.causes.evidence import Evidence, users
from orchestrator.analysis.comparisons import number, percent
from orchestrator.analysis.confirmation import Confirmation
from orchestrator.analysis.fresh_starts import breaches, refuted
from orchestrator.analysis.gains import Gain, Gains
from orchestrator.analysis.noise import Value
from orchestrator.analysis.objectives import Constraint, Objective
from orchestrator.analysis.rows import Row, metric_value
from orchestrator.benchmark.intervals import Interval


@dataclass(frozen=True, slots=True)
class Verdict:
    """A complete trial's score and what it is against the baseline's."""

    text: str
    score: float | None = None
    #: `849 simulated tok/s at C=128`.
    score_text: str | None = None
    #: Of a trial of the search by its start there; what its fresh starts made of it the text tells.
    gain: Interval | None = None
    accept_length: float | None = None
    #: The constraints that the setting breaks, with value and excess; None where it keeps all.
    violated: str | None = None
    #: Why its fresh starts refute it, whatever its score; None where they do not.
    refuted: str | None = None


class Judge:
    """Judges the trials of a study."""

    def __init__(self, rows: Iterable[Row], objective: Objective, limits: Sequence[Constraint] = ()) -> None:
        self._evidence = Evidence(rows)
        self._objective = objective
        self._gains = Gains(self._evidence.rows, objective, limits)
        self._breaches = breaches(self._evidence.trials, limits)
        self._refuted = refuted(self._evidence.trials, limits)

    @property
    def common(self) -> Mapping[str, Any]:
        """The settings of the baseline, which every trial has."""
        base = self._evidence.baseline
        return {} if base is None else {**base.trial.requested_flags, **base.trial.requested_env}

    def of(self, group: Sequence[Row]) -> Verdict:
        """The verdict on a complete trial's rows."""
        metric, trial = self._objective.metric, group[0].trial
        score = metric_value(group, metric)
        at = metric.load.label
        if score is None:
            why = next((r.level.invalid_reason for r in group if r.level and r.level.load == metric.load), None)
            return Verdict(f"has no {metric} that counts" + (f": {why}" if why else ""))
        row = next(r for r in group if r.level is not None and r.level.load == metric.load)
        figure = f"{number(score)} {self._unit} {at}"
        gain = self._gains.of(row) if trial.role == "candidate" else None
        accepted = row.level.metrics.accept_length if row.level and trial.speculative else None
        text = self._text(group, row, figure, gain)
        of = trial.trial
        return Verdict(
            text, score, figure, gain.ratio if gain else None, accepted, self._breaches.get(of), self._refuted.get(of)
        )

    @property
    def _unit(self) -> str:
        name = self._objective.metric.name
        if name == "output_tokens_per_s":
            return f"{self._evidence.unit} at"
        return f"{'simulated ' if self._evidence.simulated else ''}{str(self._objective.metric).split('@')[0]} at"

    def _text(self, group: Sequence[Row], row: Row, figure: str, gain: Gain | None) -> str:
        trial, base = row.trial, self._gains.base
        if trial.role == "baseline":
            if base is None or base.starts < 2:
                return f"{figure}: what the others are compared with"
            mean = f"{number(base.value)} {self._unit} {self._objective.metric.load.label}"
            return (
                f"{mean} over its {base.starts} starts in the search, this one {figure.split()[0]}: what the others "
                "are compared with"
            )
        if trial.role == "sentinel":
            return f"the baseline again: {figure}{self._beside(base, row)}"
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
        ratio = gain.ratio
        if gain.fresh is not None:
            return f"{self._cause(row)}{_signed(ratio)} at {at}; {_confirmed(gain.fresh)}"
        word = self._word(gain, trial.speculative)
        untold = gain.verdict == "tie" and ratio.low < ratio.high
        sure = f" ({percent(ratio.low)} to {percent(ratio.high)} %)" if untold else ""
        return f"{self._cause(row)}{_signed(ratio)}{sure} at {at}: {word}{self._elsewhere(group, gain)}"

    def _beside(self, base: Value | None, row: Row) -> str:
        value = metric_value([row], self._objective.metric)
        if base is None or not value:
            return ""
        return f", {percent(value / base.value)} % on the mean of its {base.starts} starts in the search"

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

    def _word(self, gain: Gain, speculative: bool) -> str:
        if gain.verdict == "tie":
            return "no difference from the baseline that can be told"
        if gain.verdict == "better":
            return "better than the baseline, unconfirmed"
        return "no speedup" if speculative else "worse than the baseline"

    def _elsewhere(self, group: Sequence[Row], gain: Gain) -> str:
        """The best gain at another load, where the score's has none."""
        if gain.verdict == "better":
            return ""
        found = []
        for row in group:
            if row.level is None or row.level.load == self._objective.metric.load or not row.level.load.closed:
                continue
            ratio = self._evidence.against_baseline(row)
            if ratio is not None and ratio.low > 1.0 and ratio.low < ratio.high:
                found.append((ratio.mean, row.level.load.label))
        return f"; {percent(max(found)[0])} % at {max(found)[1]}" if found else ""


def _confirmed(found: Confirmation) -> str:
    verdict = {"better": "confirmed", "worse": "refuted", "tie": "a tie, not confirmed"}[found.verdict]
    if found.baseline_breaks is not None:
        verdict = "confirmed to keep the constraints, which the baseline does not"
    return f"started afresh in {found.rounds} rounds {_signed(found.ratio)}: {verdict}"


def _signed(ratio: Interval) -> str:
    """`-64 %`, `+2.1 %`: whole percents from ten on."""
    value = 100 * (ratio.mean - 1)
    return f"{value:+.0f} %" if abs(value) >= 10 else f"{value:+.1f} %"
