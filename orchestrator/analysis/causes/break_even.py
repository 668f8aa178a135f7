"""Why speculation pays or costs: the tokens a cycle that it takes against those that it got, load by load. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.analysis.causes.drafts import drafter, most_tokens
from orchestrator.analysis.causes.evidence import (
    Evidence,
    difference,
    differing_text,
    users,
)
from orchestrator.analysis.causes.step_time import PlainStep, StepTime, StepTimes
from orchestrator.analysis.causes.words import figure, ms_text
from orchestrator.analysis.comparisons import ratio_text
from orchestrator.analysis.finding import Finding, rows_behind, trials_text
from orchestrator.analysis.rows import Row
from orchestrator.benchmark.intervals import Interval


@dataclass(frozen=True, slots=True)
class Judged:
    """A speculative level: its cycle, and its throughput against the same settings without speculation."""

    step: StepTime
    #: Over the throughput of `beside`.
    ratio: Interval
    #: The plain row of the same settings and load that ran the most users; None where only the baseline is there.
    beside: Row | None
    #: Over the baseline's throughput.
    gain: Interval

    @property
    def row(self) -> Row:
        """The row."""
        return self.step.row

    @property
    def verdict(self) -> str:
        """`pays`, `costs`, or `tie` where nothing can be told."""
        if self.ratio.holds(1.0):
            return "tie"
        return "pays" if self.ratio.mean > 1 else "costs"

    @property
    def data(self) -> dict[str, object]:
        """The figures."""
        return {
            **self.step.data,
            "verdict": self.verdict,
            "most_tokens": most_tokens(self.row),
            "against": self.beside.trial.trial if self.beside else 0,
            "ratio_percent": 100 * (self.ratio.mean - 1),
            "ratio_low_percent": 100 * (self.ratio.low - 1),
            "ratio_high_percent": 100 * (self.ratio.high - 1),
            "gain_percent": 100 * (self.gain.mean - 1),
        }


Speculated = dict[str, dict[int, list[Judged]]]


def speculated(steps: StepTimes, only: int | None = None) -> Speculated:
    """Every speculative level that can be judged, by drafter and concurrency, the fastest first in each; of the trial
    `only` where one is named.
    """
    evidence, found = steps.evidence, dict[str, dict[int, list[Judged]]]()
    names = evidence.drafters
    for row in evidence.compared_of(only):
        if not row.trial.speculative or row.trial.repeats is not None:
            continue
        step, gain = steps.of(row), evidence.against_baseline(row)
        if step is not None and step.plain is not None and gain is not None:
            beside = steps.without_speculation(row)
            ratio = gain if beside is None else evidence.against(row, beside)
            judged = Judged(step, ratio, beside, gain)
            found.setdefault(names[drafter(row)], {}).setdefault(users(row), []).append(judged)
    for by_load in found.values():
        for several in by_load.values():
            several.sort(key=lambda one: (-one.gain.mean, one.row.trial.trial))
    return dict(sorted(found.items(), key=lambda item: -max(several[0].gain.mean for several in item[1].values())))


def break_evens(steps: StepTimes, only: int | None = None) -> list[Finding]:
    """A sentence for each drafter at each concurrency, of its best trial there."""
    return [
        break_even(name, judged, steps)
        for name, by_load in speculated(steps, only).items()
        for _, judged in sorted(by_load.items())
    ]


def break_even(name: str, judged: Sequence[Judged], steps: StepTimes) -> Finding:
    """The sentence of the first; the others are in the data."""
    best = judged[0]
    step, plain = best.step, best.step.plain
    assert plain is not None
    assert step.break_even is not None
    load, most, trial = users(best.row), most_tokens(best.row), best.row.trial.trial
    of = "" if most is None else f" of at most {most}"
    text = (
        f"{name} at C={load}: {step.accept_length:.2f} tokens a cycle{of}; break-even here is about "
        f"{figure(step.break_even)}, because a cycle took {ms_text(step.cycle_ms)}, {_times(step.break_even)} at batch "
        f"{step.batch} ({ms_text(plain.ms)}{_whose(plain, best.row, steps.evidence)})"
    )
    if step.batch < load:
        text += f"; and max_running_requests was {step.batch}, so {load - step.batch} of {load} requests queued"
    of = f"trial {trial}, the best of {len(judged)}" if len(judged) > 1 else f"trial {trial}"
    text += f". {_verdict(best, steps.evidence)} ({of})."
    text += _contradiction(best) + doubt(best, steps.evidence)
    data = {**best.data, "drafter": name, "others": [one.data for one in judged[1:]]}
    return Finding("break_even", text, data, rows_behind(behind(best, steps.evidence)))


def behind(one: Judged, evidence: Evidence) -> Iterable[Row]:
    """The rows that its cycle, its plain step and its verdict rest on."""
    plain = one.step.plain
    return [*evidence.behind(one.row, one.beside), *(plain.rows if plain else ())]


def _verdict(one: Judged, evidence: Evidence) -> str:
    whom = "the baseline" if one.beside is None else f"trial {one.beside.trial.trial}, the same without speculation"
    told = evidence.gain(one.row) if one.beside is None else None
    whom += f" {told.how}" if told is not None and told.fresh is not None else ""
    single = "" if evidence.floor(users(one.row)) else ", by single starts of which nobody knows how far they differ"
    gain = f"{ratio_text(one.ratio)} against {whom}{single}"
    if one.verdict == "tie":
        return f"{gain}: a tie"
    return gain + (": it pays" if one.verdict == "pays" else ": no speedup")


def _whose(plain: PlainStep, row: Row, evidence: Evidence) -> str:
    """Where the plain step was measured."""
    base = evidence.baseline
    where = ""
    if plain.how == "interpolated":
        ladder = sorted({users(r) for r in plain.rows})
        where = f" between C={ladder[0]} and C={ladder[-1]}"
    if base is not None and base.trial.trial in plain.trials:
        return f", the baseline's{where}"
    others = {r.trial.trial for r in plain.rows if r.trial.role == "candidate"}
    return f", of {trials_text(others or plain.trials)}{where}"


def _contradiction(best: Judged) -> str:
    """Where the throughput went against what the cycles say."""
    step = best.step
    pays = step.pace is not None and step.pace > 1
    if best.verdict == "tie" or pays == (best.verdict == "pays"):
        return ""
    if pays and step.batch < users(best.row):
        return " By its cycles alone it would pay: what it loses, it loses in the queue."
    return (
        " Its cycles say otherwise, so what moved its throughput lies outside of them, or in the unrest of one start."
    )


def doubt(one: Judged, evidence: Evidence) -> str:
    """Of other settings that the trial has otherwise than what its cycle is compared with; empty for none."""
    plain = one.step.plain
    if plain is None or plain.same_settings:
        return ""
    mine = evidence.settings(one.row, speculation=False, cap=False)
    theirs = evidence.settings(plain.rows[0], speculation=False, cap=False)
    differ = differing_text((name, values[0]) for name, values in difference(mine, theirs).items())
    return f" It differs in {differ} too, so not all of this need be the speculation's." if differ else ""


def _times(ratio: float) -> str:
    return f"about {figure(ratio)} plain steps" if ratio >= 1.05 else "about as long as a plain step"
