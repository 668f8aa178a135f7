"""How much of a decode step is communication, from trials that differ in NCCL's variables alone. Pure."""

from __future__ import annotations

from orchestrator.analysis.causes.effects import only_nccl
from orchestrator.analysis.causes.evidence import Evidence, difference, differing_text, users
from orchestrator.analysis.causes.step_time import StepTime, StepTimes
from orchestrator.analysis.causes.words import ms_text
from orchestrator.analysis.comparisons import percent
from orchestrator.analysis.finding import Finding, rows_behind


def communication(steps: StepTimes, only: int | None = None) -> list[Finding]:
    """For each load the NCCL setting that made the baseline's step shortest; of the trial `only` where one is named."""
    evidence = steps.evidence
    found = []
    for load in evidence.ladder:
        tuned = _tuned(steps, load, only)
        if tuned:
            found.append(_told(min(tuned, key=lambda one: (one.cycle_ms, one.row.trial.trial)), len(tuned), evidence))
    return [finding for finding in found if finding is not None]


def _tuned(steps: StepTimes, load: int, only: int | None) -> list[StepTime]:
    """Plain levels that differ from the baseline's in NCCL's variables alone and ran as many requests at once."""
    evidence, found = steps.evidence, []
    base = evidence.baseline
    if base is None:
        return []
    for row in evidence.compared_of(only):
        if row.trial.speculative or users(row) != load or row.trial.repeats is not None:
            continue
        differ = difference(evidence.settings(row, cap=False), evidence.settings(base, cap=False))
        step = steps.of(row)
        if differ and only_nccl(differ) and step is not None and step.plain is not None and step.batch == load:
            found.append(step)
    return found


def _told(step: StepTime, tried: int, evidence: Evidence) -> Finding | None:
    base, ratio = evidence.baseline, evidence.against_baseline(step.row)
    if base is None or ratio is None or step.plain is None or step.extra_ms is None:
        return None
    load, trial = users(step.row), step.row.trial.trial
    differ = difference(evidence.settings(step.row, cap=False), evidence.settings(base, cap=False))
    names = differing_text((name, values[0]) for name, values in differ.items())
    data = {
        **step.data,
        "settings": {name: values[0] for name, values in differ.items()},
        "removed_ms": -step.extra_ms,
        "gain_percent": 100 * (ratio.mean - 1),
        "tried": tried,
    }
    behind = rows_behind([step.row, *step.plain.rows])
    of = f"trial {trial}{f', the shortest of {tried}' if tried > 1 else ''}"
    if ratio.holds(1.0) or step.extra_ms >= 0 or ratio.mean <= 1:
        text = f"NCCL at C={load}: no setting tried gains what could be told; {names} comes closest ({of})."
        return Finding("communication_untold", text, data, behind)
    share = -step.extra_ms / step.plain.ms
    text = (
        f"NCCL at C={load}: {names} takes a decode step from {ms_text(step.plain.ms)} to {ms_text(step.cycle_ms)} "
        f"({of}; throughput {percent(ratio.mean)} %). Nothing else differs, so at least {ms_text(-step.extra_ms)}, "
        f"{100 * share:.0f} %, of the baseline's step at batch {step.batch} is communication."
    )
    costs = _costs(step, evidence)
    if costs:
        text += f" Elsewhere it costs: {', '.join(f'{percent(cost)} % at C={at}' for at, cost in costs.items())}."
    return Finding("communication", text, data | {"share": share, "costs": costs}, behind)


def _costs(step: StepTime, evidence: Evidence) -> dict[int, float]:
    """Loads at which the same trial is slower than the baseline beyond doubt: its throughput over the baseline's."""
    found = {}
    for row in evidence.trials[step.row.trial.trial]:
        ratio = evidence.against_baseline(row) if row in evidence.compared_set else None
        if ratio is not None and ratio.mean < 1 and not ratio.holds(1.0):
            found[users(row)] = ratio.mean
    return found
