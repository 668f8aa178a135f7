"""How acceptance and break-even go with the load: where each drafter pays, and where it begins to cost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from orchestrator.analysis.causes.break_even import Judged, behind, doubt, speculated
from orchestrator.analysis.causes.drafts import draft_tokens
from orchestrator.analysis.causes.evidence import Evidence, users
from orchestrator.analysis.causes.step_time import StepTime, StepTimes
from orchestrator.analysis.causes.words import figure, ms_text
from orchestrator.analysis.finding import Finding, loads_text, rows_behind
from orchestrator.offered_load import Load

#: By which share an acceptance may differ over the loads and still be called the same.
_STEADY = 0.15


def crossovers(steps: StepTimes, only: int | None = None) -> list[Finding]:
    """For each drafter how acceptance and break-even go with the load, by its best trial over all loads."""
    found = []
    for name, by_load in speculated(steps, only).items():
        chosen = _over_all_loads(by_load)
        if len(chosen) > 1:
            found.append(_crossover(name, chosen, steps.evidence))
    return found


def _over_all_loads(by_load: dict[int, list[Judged]]) -> list[Judged]:
    """The levels of the trial that was best over most loads, by the mean of its gains."""
    trials: dict[int, list[Judged]] = {}
    for _, judged in sorted(by_load.items()):
        for one in judged:
            trials.setdefault(one.row.trial.trial, []).append(one)
    return max(trials.values(), key=lambda ones: (len(ones), fmean(one.gain.mean for one in ones)))


def _crossover(name: str, chosen: Sequence[Judged], evidence: Evidence) -> Finding:
    first, last = chosen[0], chosen[-1]
    low, high = first.step, last.step
    assert low.break_even is not None
    assert high.break_even is not None
    lengths = [one.step.accept_length for one in chosen]
    got = f"{low.accept_length:.2f} tokens a cycle at C={users(first.row)} and {high.accept_length:.2f}"
    got += f" at C={users(last.row)}"
    if max(lengths) <= (1 + _STEADY) * min(lengths):
        ends = dict.fromkeys((f"{min(lengths):.2f}", f"{max(lengths):.2f}"))
        got = f"{' to '.join(ends)} tokens a cycle, whatever the load"
    single = "" if all(evidence.floor(users(one.row)) for one in chosen) else ", by single starts"
    between = (
        f"about {figure(low.break_even)} at C={users(first.row)} and {figure(high.break_even)} at C={users(last.row)}"
    )
    text = f"{name}{_where(chosen)}{single}. It gets {got}; break-even is {between}"
    text += _extra(low, high)
    trial = first.row.trial.trial
    text += f" (trial {trial})."
    # The same of each load, if of any.
    text += next(filter(None, (doubt(one, evidence) for one in chosen)), "")
    data = {
        "drafter": name,
        "trial": trial,
        "levels": [one.data for one in chosen],
        "verdicts": {users(one.row): one.verdict for one in chosen},
    }
    return Finding("crossover", text, data, rows_behind(row for one in chosen for row in behind(one, evidence)))


def _where(chosen: Sequence[Judged]) -> str:
    """What follows the drafter's name: ` pays at C=1 and C=4 and costs at C=8`, `: whether it pays cannot be told`."""
    pays = [users(one.row) for one in chosen if one.verdict == "pays"]
    costs = [users(one.row) for one in chosen if one.verdict == "costs"]
    ties = [users(one.row) for one in chosen if one.verdict == "tie"]
    tied = f", at {loads_text(map(Load, ties))} no difference can be told" if ties else ""
    if not pays and ties:
        costing = f"; it costs at {loads_text(map(Load, costs))}" if costs else ""
        return f": whether it pays cannot be told at {loads_text(map(Load, ties))}{costing}"
    if not pays:
        return f" pays at no load: it costs at {loads_text(map(Load, costs))}"
    if not costs:
        return f" pays at {loads_text(map(Load, pays))}{tied}" if ties else " pays at every load measured"
    if max(pays) < min(costs):
        up_to = f"at C={pays[0]}" if len(pays) == 1 else f"up to C={max(pays)}"
        return (
            f" crosses over between C={max(pays)} and C={min(costs)}: it pays {up_to}{tied} and costs from "
            f"C={min(costs)} on"
        )
    return f" pays at {loads_text(map(Load, pays))} and costs at {loads_text(map(Load, costs))}{tied}"


def _extra(low: StepTime, high: StepTime) -> str:
    """What a cycle takes beyond a plain step at the smallest and the largest batch."""
    if low.extra_ms is None or high.extra_ms is None or high.batch <= low.batch or high.extra_ms <= low.extra_ms:
        return ""
    tokens = draft_tokens(high.row)
    a_request = (high.extra_ms - low.extra_ms) / (high.batch - low.batch)
    text = (
        f", as a cycle takes {ms_text(low.extra_ms)} more than a plain step at batch {low.batch} and "
        f"{ms_text(high.extra_ms)} more at batch {high.batch}: {ms_text(a_request)} for each further request"
    )
    return text + ("" if tokens is None else f", which is consistent with verifying {tokens} tokens of each")
