"""What NCCL's variables did to a decode step, from trials that differ in them and in no other that acts. Pure.

What a setting took off a step is consistent with having been communication, and at most a part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.analysis.causes.effects import only_nccl
from orchestrator.analysis.causes.evidence import Evidence, difference, differing_text, users
from orchestrator.analysis.causes.step_time import StepTime, StepTimes
from orchestrator.analysis.causes.words import ms_text
from orchestrator.analysis.comparisons import ratio_text
from orchestrator.analysis.effective import MAX_RUNNING
from orchestrator.analysis.finding import Finding, rows_behind
from orchestrator.analysis.gains import Gain


@dataclass(frozen=True, slots=True)
class _Tuned:
    """A level with other NCCL variables than the baseline's, and its throughput beside it."""

    step: StepTime
    plain_ms: float
    gain: Gain

    @property
    def removed_ms(self) -> float:
        return self.plain_ms - self.step.cycle_ms

    @property
    def faster(self) -> bool:
        """Beyond doubt, and by shorter steps."""
        return self.gain.verdict == "better" and self.removed_ms > 0


def communication(steps: StepTimes, only: int | None = None) -> list[Finding]:
    """For each load the NCCL setting that made the baseline's step shortest, of those that are faster beyond doubt if
    there are any; of the trial `only` where one is named.
    """
    found = []
    for load in steps.evidence.ladder:
        tuned = _tuned(steps, load, only)
        if tuned:
            best = min(tuned, key=lambda one: (not one.faster, one.step.cycle_ms, one.step.row.trial.trial))
            found.append(_told(best, tuned, steps.evidence))
    return found


def _tuned(steps: StepTimes, load: int, only: int | None) -> list[_Tuned]:
    """Plain levels that differ from the baseline's in NCCL's variables alone, but for a cap that admits all."""
    evidence, found = steps.evidence, []
    base = evidence.baseline
    if base is None:
        return []
    for row in evidence.compared_of(only):
        if row.trial.speculative or users(row) != load or row.trial.repeats is not None:
            continue
        differ = difference(evidence.settings(row, cap=False), evidence.settings(base, cap=False))
        step, gain = steps.of(row), evidence.gain(row)
        if differ and only_nccl(differ) and step is not None and step.plain is not None and step.batch == load and gain:
            found.append(_Tuned(step, step.plain.ms, gain))
    return found


def _told(one: _Tuned, tuned: Sequence[_Tuned], evidence: Evidence) -> Finding:
    step, gain, base = one.step, one.gain, evidence.baseline
    assert base is not None
    assert step.plain is not None
    load, trial = users(step.row), step.row.trial.trial
    differ = difference(evidence.settings(step.row), evidence.settings(base))
    names = differing_text((name, values[0]) for name, values in differ.items() if name != MAX_RUNNING)
    of = f"trial {trial}" + (f", whose step is the shortest of {len(tuned)} tried" if len(tuned) > 1 else "")
    measured = f"{ratio_text(gain.judged)} on the baseline {gain.how}"
    measured += "" if evidence.floor(load) else ", and what starts differ by is not known"
    data = {
        **step.data,
        "settings": {name: values[0] for name, values in differ.items()},
        "removed_ms": one.removed_ms,
        "gain_percent": 100 * (gain.judged.mean - 1),
        "gain_low_percent": 100 * (gain.judged.low - 1),
        "gain_high_percent": 100 * (gain.judged.high - 1),
        "tried": len(tuned),
    }
    behind = rows_behind([*evidence.behind(step.row), *step.plain.rows])
    if not one.faster:
        text = f"NCCL at C={load}: whether its variables make a step shorter cannot be told"
        if gain.verdict == "worse":
            text = f"NCCL at C={load}: no setting tried is faster than the baseline"
        return Finding("communication_untold", f"{text}: {names}, {measured} ({of}).", data, behind)
    share = one.removed_ms / one.plain_ms
    chosen = ", and the best of several looks better than it is" if len(tuned) > 1 and gain.fresh is None else ""
    text = (
        f"NCCL at C={load}: with {names} throughput is {measured}, a decode step {ms_text(step.cycle_ms)} instead of "
        f"{ms_text(one.plain_ms)} ({of}{chosen}). {_else(differ.get(MAX_RUNNING))} That is consistent with "
        f"{ms_text(one.removed_ms)}, {100 * share:.0f} %, of the baseline's step at batch {step.batch} having been "
        "communication."
    )
    costs = _costs(step, evidence)
    if costs:
        told = ", ".join(f"{ratio_text(cost.judged)} at C={at}" for at, cost in costs.items())
        text += f" Elsewhere it costs: {told}."
    data |= {"share": share, "costs": {at: cost.judged.mean for at, cost in costs.items()}}
    return Finding("communication", text, data, behind)


def _else(cap: tuple[object, object] | None) -> str:
    """What differs besides NCCL's variables."""
    if cap is None:
        return "No other setting differs."
    asked = "not set" if cap[0] is None else f"{cap[0]}"
    usual = "not set" if cap[1] is None else f"{cap[1]}"
    return (
        f"Of other settings {MAX_RUNNING} differs ({asked}, the baseline's {usual}), and both ran all requests at once."
    )


def _costs(step: StepTime, evidence: Evidence) -> dict[int, Gain]:
    """Loads at which the same trial is slower than the baseline beyond doubt."""
    gains = {users(row): evidence.gain(row) for row in evidence.compared_of(step.row.trial.trial)}
    return {load: gain for load, gain in gains.items() if gain is not None and gain.verdict == "worse"}
