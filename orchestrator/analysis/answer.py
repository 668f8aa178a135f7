"""The answer in three sentences: what is best, by how much and how surely, and where along the ladder that changes.

Pure. "Nothing beats the baseline" is an answer, and so is "nothing was measured yet".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from orchestrator.analysis.comparisons import number, percent
from orchestrator.analysis.finding import Finding, settings_text
from orchestrator.analysis.noise import gap_found
from orchestrator.analysis.objectives import Constraint, Objective
from orchestrator.analysis.rows import Row, by_trial
from orchestrator.analysis.settings_at import Along, along
from orchestrator.analysis.winner import Confirmation, confirmations, winner
from orchestrator.benchmark.intervals import Interval
from orchestrator.offered_load import Load

#: confirmed: a setting beats the baseline in fresh starts; unconfirmed: it does in the search; tie: it cannot be told
#: from it; baseline: nothing beats it; alone: there is nothing to compare; nothing: no score at all.
Verdict = Literal["confirmed", "unconfirmed", "tie", "baseline", "alone", "nothing"]

_UNITS = {"output_tokens_per_s": "tok/s", "total_tokens_per_s": "tok/s"}
#: Findings that say why nothing beats the baseline where no break-even does, the most telling first.
_WHY = ("speculation_lost", "speculation_untold", "noise_floor")
#: How surely the gap that is told would have been found.
_POWER = 0.9


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
    view = _View(rows, trials, objective, along(rows, objective, ladder))
    if best is None:
        return _nothing(trials)
    own = next((c for c in confirmations(rows, objective) if c.trial == best), None)
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
    def tried(self) -> int:
        return sum(group[0].trial.role == "candidate" for group in self.trials.values())


def _confirmed(view: _View, own: Confirmation) -> Answer:
    gain = _gain(own.ratio)
    sentences = (
        f"The best of {_settings(view.tried)} tried {view.where} is trial {own.trial}: {view.settings(own.trial)}.",
        f"It gives {number(own.value)}{view.unit}, {gain} against the baseline's {number(own.baseline)}, confirmed in "
        f"{own.rounds} rounds of fresh starts.",
        crossovers(view.along, view.objective),
    )
    return Answer("confirmed", f"{_points(own.ratio)} % at {view.load.label}, confirmed", sentences, own.trial)


def _searched(view: _View, best: int) -> Answer:
    score = view.objective.metric
    settings = f"The best of {_settings(view.tried)} tried {view.where} is trial {best}: {view.settings(best)}."
    value, ratio = view.along.value(best, score.load), view.along.ratio(best, 0, score.load)
    base = view.along.value(0, score.load)
    assert value is not None
    if base is None:
        told = f"It gives {number(value.value)}{view.unit}; without a measured baseline its gain cannot be said."
        return Answer("alone", "Best found, nothing to compare", (settings, told), best)
    figures = f"{number(value.value)}{view.unit} against the baseline's {number(base.value)}"
    if ratio is None:
        told = f"It gives {figures}; 0 has no ratio, so by how much cannot be said. Unconfirmed."
        sentences = (settings, told, crossovers(view.along, view.objective))
        return Answer("unconfirmed", f"Best at {score.load.label}, unconfirmed", sentences, best)
    figures += f", {_gain(ratio)}"
    if ratio.holds(1.0):
        told = f"It gives {figures}: a tie, no gain can be told."
        return Answer(
            "tie",
            f"No gain can be told at {score.load.label}",
            (settings, told, crossovers(view.along, view.objective)),
            best,
        )
    doubt = ", and what starts differ by was not measured" if view.along.floors[score.load] is None else ""
    told = f"It gives {figures}. Unconfirmed: the best of a search looks better than it is{doubt}."
    sentences = (settings, told, crossovers(view.along, view.objective))
    return Answer("unconfirmed", f"{_points(ratio)} % at {score.load.label}, unconfirmed", sentences, best)


def _baseline(view: _View, found: Sequence[Finding]) -> Answer:
    load = view.objective.metric.load
    base = view.along.value(0, load)
    # In the search it may have had none, only beside the finalists.
    figure = "no figure of the search" if base is None else f"{number(base.value)}{view.unit}"
    told = confirmations(view.rows, view.objective)
    closest = view.along.best_candidate(load)
    if told:
        sign = -1 if view.objective.direction == "maximize" else 1
        top = min(told, key=lambda c: sign * c.value)
        tie = top.verdict == "tie"
        how = "ties with it" if tie else "is worse"
        told_apart = f"{100 * gap_found(top.floor, top.rounds, _POWER):.1f} %"
        gap = f"; a gap of {told_apart} would have been found nine times in ten" if tie else ""
        first = (
            f"Nothing beats the baseline {view.where}: of {_settings(view.tried)} tried the best, trial {top.trial}, "
            f"{how} in {top.rounds} rounds of fresh starts, {_gain(top.ratio)}{gap}."
        )
    elif closest is not None:
        ratio = view.along.ratio(closest, 0, load)
        gain = "" if ratio is None else f", {_gain(ratio)}"
        first = (
            f"Nothing beats the baseline {view.where} ({figure}): the best of {_settings(view.tried)} tried is trial "
            f"{closest}{gain}."
        )
    else:
        state = "no other setting could be compared" if view.tried else "nothing else was measured yet"
        return Answer("alone", "Only the baseline", (f"The baseline gives {figure} {view.where}; {state}.",), 0)
    why = _why(found, load)
    sentences = (first, *([why] if why else []), crossovers(view.along, view.objective))
    return Answer("baseline", f"Nothing beats the baseline at {load.label}", sentences, 0)


def _why(found: Sequence[Finding], load: Load) -> str | None:
    """Of the drafters that lose at the score's load for want of acceptance the best; else another reason, if any."""
    short = [
        f
        for f in found
        if f.kind == "break_even"
        and f.data["concurrency"] == load.concurrency
        and f.data["verdict"] == "costs"
        and f.data["accept_length"] < f.data["break_even"]
    ]
    if short:
        return max(short, key=lambda f: float(f.data["gain_percent"])).text
    return next((f.text for kind in _WHY for f in found if f.kind == kind), None)


def _nothing(trials: Mapping[int, Sequence[Row]]) -> Answer:
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


def crossovers(found: Along, objective: Objective) -> str:
    """Who leads at which load, and where one overtakes another."""
    leaders = [(load, found.leader(load)) for load in found.ladder if found.value(0, load) is not None]
    if len(leaders) < 2:
        return "Only one load was measured beside the baseline: where settings overtake each other cannot be said."
    parts = []
    for leader, loads in _runs(leaders):
        at = _loads(loads)
        if leader is None:
            parts.append(f"no gain over the baseline can be told at {at}")
        elif leader == 0:
            parts.append(f"the baseline leads at {at}")
        else:
            gains = [r for load in loads if (r := found.judged(leader, load)) is not None]
            ends = dict.fromkeys(percent(end(g.mean for g in gains)) for end in (min, max))
            span = " to ".join(ends) + " %"
            parts.append(f"trial {leader} leads at {at} ({span})")
    text = "Along the ladder " + _joined(parts)
    crossed = [c for a, b in pairwise(_told(leaders)) if (c := _crossing(found, a, b)) is not None]
    if crossed:
        return f"{text}; {_joined(crossed)}."
    alone = {leader for _, leader in leaders}
    return text + ("; no setting overtakes another." if len(alone) == 1 and None not in alone else ".")


def _crossing(found: Along, low: tuple[Load, int], high: tuple[Load, int]) -> str | None:
    """Where the leader at `high` overtakes the one at `low`; None for one and the same."""
    (start, a), (end, b) = low, high
    if a == b:
        return None
    between = [load for load in found.ladder if start <= load <= end]
    name = f"{_name(b)} overtakes {_name(a)} between {start.label} and {end.label}"
    logs = []
    for load in between:
        ratio = found.ratio(b, a, load)
        if ratio is None or load.concurrency is None:
            return name
        logs.append((math.log(load.concurrency), math.log(ratio.mean) * (1 if found.more_is_better else -1)))
    changes = [(p, q) for p, q in pairwise(logs) if p[1] < 0 <= q[1]]
    if len(changes) != 1:
        return name
    (x0, y0), (x1, y1) = changes[0]
    at = math.exp(x0 + (x1 - x0) * -y0 / (y1 - y0))
    return f"{name}, at about C={at:.0f}"


def _told(leaders: Iterable[tuple[Load, int | None]]) -> list[tuple[Load, int]]:
    """Of each run of one leader the ends, ties left out."""
    told = [(load, leader) for load, leader in leaders if leader is not None]
    return [
        one
        for i, one in enumerate(told)
        if i in (0, len(told) - 1) or one[1] != told[i - 1][1] or one[1] != told[i + 1][1]
    ]


def _runs(leaders: Iterable[tuple[Load, int | None]]) -> list[tuple[int | None, list[Load]]]:
    runs: list[tuple[int | None, list[Load]]] = []
    for load, leader in leaders:
        if runs and runs[-1][0] == leader:
            runs[-1][1].append(load)
        else:
            runs.append((leader, [load]))
    return runs


def _loads(loads: Sequence[Load]) -> str:
    labels = [load.label for load in loads]
    return labels[0] if len(labels) == 1 else f"{labels[0]} to {labels[-1]}"


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _settings(count: int) -> str:
    return f"{count} setting{'' if count == 1 else 's'}"


def _name(trial: int) -> str:
    return f"trial {trial}" if trial else "the baseline"


def _points(ratio: Interval) -> str:
    return percent(ratio.mean)


def _gain(ratio: Interval) -> str:
    if ratio.low == ratio.high:
        return f"{percent(ratio.mean)} %"
    return f"{percent(ratio.mean)} % ({percent(ratio.low)} to {percent(ratio.high)} %)"
