"""The answer in three sentences: what is best, by how much and how surely, and where along the ladder that changes.

Pure. "Nothing beats the baseline" is an answer, and so is "nothing was measured yet".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.analysis.comparisons import number, percent, ratio_text
from orchestrator.analysis.confirmation import Confirmation, confirmations
from orchestrator.analysis.finding import Finding, settings_text
from orchestrator.analysis.leaders import crossovers
from orchestrator.analysis.objectives import Constraint, Objective
from orchestrator.analysis.rows import Row, by_trial
from orchestrator.analysis.settings_at import Along, along
from orchestrator.analysis.winner import barred, winner
from orchestrator.benchmark.intervals import Interval
from orchestrator.offered_load import Load

#: confirmed: a setting beats the baseline in fresh starts; unconfirmed: it does in the search; tie: it cannot be told
#: from it; baseline: nothing beats it; alone: there is nothing to compare; nothing: no score at all.
Verdict = Literal["confirmed", "unconfirmed", "tie", "baseline", "alone", "nothing"]

_UNITS = {"output_tokens_per_s": "tok/s", "total_tokens_per_s": "tok/s"}
#: Findings that say why nothing beats the baseline where no break-even does, the most telling first.
_WHY = ("speculation_lost", "speculation_untold", "noise_floor")
#: Of the settings that cannot win so many are named.
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """What a report opens with."""

    verdict: Verdict
    #: A few words.
    headline: str
    #: Up to three.
    sentences: tuple[str, ...]
    #: The trial to launch: 0 for the baseline, None for none.
    best: int | None


def answer(
    rows: Sequence[Row],
    objective: Objective,
    limits: Sequence[Constraint],
    ladder: Sequence[Load],
    found: Iterable[Finding] = (),
) -> Answer:
    """The study's answer by its score; `found` are its findings, from which comes why nothing beats the baseline.

    Raises ValueError for simulated and measured rows together.
    """
    trials = by_trial(rows)
    best = winner(trials, objective, limits)
    told, out = confirmations(rows, objective, limits), barred(trials, limits)
    view = _View(rows, trials, objective, along(rows, objective, ladder, limits, out), told, out)
    if best is None:
        return _nothing(trials, out)
    own = next((c for c in told if c.trial == best), None)
    if best == 0:
        return _baseline(view, list(found))
    if own is not None:
        return _confirmed(view, own)
    return _searched(view, best)


@dataclass(frozen=True, slots=True)
class _View:
    rows: Sequence[Row]
    trials: Mapping[int, Sequence[Row]]
    objective: Objective
    along: Along
    told: Sequence[Confirmation]
    #: Who cannot win, with the reason.
    barred: Mapping[int, str]

    @property
    def unit(self) -> str:
        unit = _UNITS.get(self.objective.metric.name, "")
        simulated = any(row.trial.simulated for row in self.rows)
        return f" {'simulated ' if simulated else ''}{unit}".rstrip()

    def settings(self, trial: int) -> str:
        base = self.trials[0][0].trial if 0 in self.trials else None
        common = {**base.requested_flags, **base.requested_env} if base else {}
        return settings_text(self.trials[trial][0], common)

    @property
    def load(self) -> Load:
        return self.objective.metric.load

    @property
    def where(self) -> str:
        return f"by {self.objective.metric}"

    @property
    def baseline_out(self) -> str:
        """A sentence with a space before it where the baseline cannot win, else nothing."""
        return f" The baseline cannot win: {self.barred[0]}." if 0 in self.barred else ""

    @property
    def refuted(self) -> str:
        """The same of finalists that fresh starts refute, which were the search's best before."""
        afresh = _started_afresh(self.trials)
        return "".join(f" Trial {trial} is refuted: {why}." for trial, why in self.barred.items() if trial in afresh)

    @property
    def tried(self) -> int:
        return sum(group[0].trial.role == "candidate" for group in self.trials.values())


def _confirmed(view: _View, own: Confirmation) -> Answer:
    gain = ratio_text(own.ratio)
    of = "" if own.baseline_breaks is None else " that keep the constraints"
    figures = f"It gives {number(own.value)}{view.unit}, {gain} against the baseline's {number(own.baseline)}"
    how = f"in {own.rounds} rounds of fresh starts"
    sure = "confirmed" if own.baseline_breaks is None else "confirmed to keep the constraints"
    sentences = (
        f"The best of {_settings(view.tried)} tried{of} {view.where} is trial {own.trial}: {view.settings(own.trial)}.",
        f"{figures}, {sure} {how}.{view.baseline_out}{view.refuted}",
        crossovers(view.along),
    )
    return Answer("confirmed", f"{_points(own.ratio)} % at {view.load.label}, {sure}", sentences, own.trial)


def _searched(view: _View, best: int) -> Answer:
    score = view.objective.metric
    settings = f"The best of {_settings(view.tried)} tried {view.where} is trial {best}: {view.settings(best)}."
    value = view.along.value(best, score.load)
    ratio = view.along.ratio(best, 0, score.load, len(view.along.contenders(score.load)))
    assert value is not None
    base = view.along.value(0, score.load)
    if base is None:
        told = f"It gives {number(value.value)}{view.unit}; without a measured baseline its gain cannot be said."
        told += view.refuted
        return Answer("alone", "Best found, nothing to compare", (settings, told), best)
    figures = f"{number(value.value)}{view.unit} against the baseline's {number(base.value)}"
    if ratio is None:
        told = f"It gives {figures}; 0 has no ratio, so by how much cannot be said. Unconfirmed.{view.refuted}"
        sentences = (settings, told, crossovers(view.along))
        return Answer("unconfirmed", f"Best at {score.load.label}, unconfirmed", sentences, best)
    figures += f", {ratio_text(ratio)}"
    if 0 in view.barred:
        told = f"It gives {figures}. Unconfirmed: one start.{view.baseline_out}{view.refuted}"
        headline = f"{_points(ratio)} % at {score.load.label}, unconfirmed, and within the constraints"
        return Answer("unconfirmed", headline, (settings, told, crossovers(view.along)), best)
    if ratio.holds(1.0):
        told = f"It gives {figures}: a tie, no gain can be told.{view.refuted}"
        return Answer(
            "tie",
            f"No gain can be told at {score.load.label}",
            (settings, told, crossovers(view.along)),
            best,
        )
    doubt = ", and what starts differ by was not measured" if view.along.floors[score.load] is None else ""
    told = f"It gives {figures}. Unconfirmed: the best of a search looks better than it is{doubt}.{view.refuted}"
    sentences = (settings, told, crossovers(view.along))
    return Answer("unconfirmed", f"{_points(ratio)} % at {score.load.label}, unconfirmed", sentences, best)


def _baseline(view: _View, found: Sequence[Finding]) -> Answer:
    load = view.load
    base = view.along.value(0, load)
    # In the search it may have had none, only beside the finalists.
    figure = "no figure of the search" if base is None else f"{number(base.value)}{view.unit}"
    closest = view.along.best_candidate(load)
    if view.told:
        sign = -1 if view.objective.direction == "maximize" else 1
        top = min(view.told, key=lambda c: sign * c.value)
        closest = top.trial
        ratio: Interval | None = top.ratio
        how = f" in {top.rounds} rounds of fresh starts, {ratio_text(top.ratio)}"
        gap = f"; a gap of {100 * top.gap:.1f} % would have been found nine times in ten"
    elif closest is not None:
        ratio, gap = view.along.ratio(closest, 0, load, len(view.along.contenders(load))), ""
        how = f", {ratio_text(ratio)} in a single start" if ratio else " in a single start"
    elif any(view.barred):
        first = f"Nothing that can win beats the baseline's {figure} {view.where}.{view.refuted}"
        return Answer("baseline", f"Nothing beats the baseline at {load.label}", (first,), 0)
    else:
        state = "no other setting could be compared" if view.tried else "nothing else was measured yet"
        return Answer("alone", "Only the baseline", (f"The baseline gives {figure} {view.where}; {state}.",), 0)
    of = f"of {_settings(view.tried)} tried the best, trial {closest},"
    if tie := ratio is not None and ratio.holds(1.0):
        first = f"No gain over the baseline can be told {view.where} ({figure}): {of} ties with it{how}{gap}."
        headline = f"No gain can be told at {load.label}"
    else:
        # 0 has no ratio.
        worse = "is no better" if ratio is None else "is worse"
        first = f"Nothing beats the baseline {view.where} ({figure}): {of} {worse}{how}."
        headline = f"Nothing beats the baseline at {load.label}"
    why = _why(found, load, tie=tie, drafts=view.trials[closest][0].trial.speculative)
    sentences = (f"{first}{view.refuted}", *([why] if why else []), crossovers(view.along))
    return Answer("tie" if tie else "baseline", headline, sentences, 0)


def _why(found: Sequence[Finding], load: Load, *, tie: bool, drafts: bool) -> str | None:
    """Of a tie what starts differ by. Of drafters that lose at the score's load for want of acceptance the best, where
    no plain setting comes closer (`drafts`); else another reason, if any.
    """
    if tie:
        return next((f.text for f in found if f.kind == "noise_floor"), None)
    short = [
        f
        for f in found
        if f.kind == "break_even"
        and f.data["concurrency"] == load.concurrency
        and f.data["verdict"] == "costs"
        and f.data["accept_length"] < f.data["break_even"]
    ]
    if short and drafts:
        return max(short, key=lambda f: float(f.data["gain_percent"])).text
    return next((f.text for kind in _WHY for f in found if f.kind == kind), None)


def _started_afresh(trials: Mapping[int, Sequence[Row]]) -> set[int]:
    return {of for rows in trials.values() if rows[0].trial.role == "confirmation" and (of := rows[0].trial.repeats)}


def _nothing(trials: Mapping[int, Sequence[Row]], out: Mapping[int, str]) -> Answer:
    if out:
        who = [f"{'the baseline' if n == 0 else f'trial {n}'}: {why}" for n, why in sorted(out.items())]
        more = f"; {len(who) - _SHOWN} more" if len(who) > _SHOWN else ""
        first = f"No setting can win, of {len(trials)} trial(s): {'; '.join(who[:_SHOWN])}{more}."
        return Answer("nothing", "No setting keeps the constraints", (first,), None)
    if not trials:
        return Answer(
            "nothing", "Nothing measured yet", ("Nothing was measured yet: no trial has a level on disk.",), None
        )
    ends = Counter(group[0].outcome.state for group in trials.values())
    counted = ", ".join(f"{count} {state}" for state, count in ends.most_common())
    first = f"No setting has a score: of {len(trials)} trial(s), {counted}."
    kinds = Counter(g[0].outcome.failure_kind for g in trials.values() if g[0].outcome.failure_kind)
    if not kinds:
        return Answer("nothing", "No score yet", (first,), None)
    kind, count = kinds.most_common(1)[0]
    message = next((g[0].outcome.failure_message for g in trials.values() if g[0].outcome.failure_kind == kind), None)
    why = f"Most often the cause was {kind} ({count})" + (f": {message}" if message else ".")
    return Answer("nothing", "No setting has a score", (first, why), None)


def _settings(count: int) -> str:
    return f"{count} setting{'' if count == 1 else 's'}"


def _points(ratio: Interval) -> str:
    return percent(ratio.mean)
