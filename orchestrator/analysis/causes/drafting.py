"""What drafting deeper, or by another drafter, brings. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launchers.sglang.rewrites import STEPS, TOPK
from orchestrator.analysis.causes.cycle_parts import speculative_steps
from orchestrator.analysis.causes.drafts import draft_tokens, drafter, most_tokens, setting
from orchestrator.analysis.causes.evidence import Evidence, users
from orchestrator.analysis.causes.step_time import StepTime, StepTimes
from orchestrator.analysis.causes.words import ms_text
from orchestrator.analysis.comparisons import ratio_text
from orchestrator.analysis.finding import Finding, rows_behind, trials_text
from orchestrator.benchmark.intervals import Interval

#: Below this chance that the first drafted token is accepted, a drafter does not fit its model.
_UNFIT = 0.3
#: By which share two cycles may differ and be called as long.
_AS_LONG = 0.05


def depths(steps: StepTimes) -> list[Finding]:
    """For each drafter what more steps brought and cost at the smallest load, from trials that differ in it alone."""
    names, groups = steps.evidence.drafters, dict[tuple[Any, ...], list[StepTime]]()
    for step in speculative_steps(steps):
        key = (drafter(step.row), setting(step.row, TOPK), users(step.row), step.batch, _rest(step, steps))
        if setting(step.row, STEPS) is not None:
            groups.setdefault(key, []).append(step)
    found: dict[str, Finding] = {}
    for (of, topk, load, *_), several in sorted(groups.items(), key=lambda item: (item[0][1] or 0, item[0][2])):
        # With a tree the tokens to verify are chosen apart from the steps.
        chain = [step for step in several if topk == 1]
        chain.sort(key=lambda step: setting(step.row, STEPS) or 0)
        if len(chain) > 1 and setting(chain[0].row, STEPS) != setting(chain[-1].row, STEPS):
            found.setdefault(names[of], _deeper(names[of], load, chain[0], chain[-1], steps.evidence))
    return list(found.values())


def _deeper(name: str, load: int, low: StepTime, high: StepTime, evidence: Evidence) -> Finding:
    tokens, time = high.accept_length / low.accept_length - 1, high.cycle_ms / low.cycle_ms - 1
    ratio = evidence.against(high.row, low.row)
    if ratio.holds(1.0):
        end = "which of the two outweighs the other cannot be told"
    else:
        end = "deeper brings more than it costs" if ratio.mean > 1 else "deeper costs more than it brings"
    steps = [setting(one.row, STEPS) for one in (low, high)]
    text = (
        f"{name} at C={load}: with {steps[1]} steps instead of {steps[0]} it gets {high.accept_length:.2f} tokens a "
        f"cycle instead of {low.accept_length:.2f} ({100 * tokens:+.0f} %), and a cycle takes {ms_text(high.cycle_ms)} "
        f"instead of {ms_text(low.cycle_ms)} ({100 * time:+.0f} %): {end}, throughput {ratio_text(ratio)} "
        f"(trials {low.row.trial.trial} and {high.row.trial.trial})."
    )
    data = {"drafter": name, "concurrency": load, "steps": steps, "levels": [low.data, high.data]} | _told(ratio)
    return Finding("draft_depth", text, data, rows_behind([low.row, high.row]))


def drafters_compared(steps: StepTimes) -> list[Finding]:
    """The drafters beside each other at one shape of the draft, and those that do not fit the model."""
    names, groups = steps.evidence.drafters, dict[tuple[Any, ...], dict[str, StepTime]]()
    for step in speculative_steps(steps):
        shape = (setting(step.row, STEPS), setting(step.row, TOPK), draft_tokens(step.row))
        groups.setdefault((users(step.row), step.batch, shape, _rest(step, steps)), {}).setdefault(
            names[drafter(step.row)], step
        )
    best = max(groups.items(), key=lambda item: (len(item[1]), -item[0][0]), default=None)
    found = []
    if best is not None and len(best[1]) > 1:
        (load, _, (depth, topk, _), _), alike = best
        found.append(_beside(load, depth, topk, alike, steps.evidence))
    return found + _unfit(steps, names)


def _told(ratio: Interval) -> dict[str, object]:
    """Of two trials' throughput what their interval tells."""
    verdict = "tie" if ratio.holds(1.0) else "more" if ratio.mean > 1 else "less"
    return {"throughput_percent": 100 * (ratio.mean - 1), "verdict": verdict}


def _beside(
    load: int, depth: int | None, topk: int | None, alike: Mapping[str, StepTime], evidence: Evidence
) -> Finding:
    ranked = sorted(((n.rsplit(" ", 1)[-1], s) for n, s in alike.items()), key=lambda item: -item[1].accept_length)
    (first, good), (last, poor) = ranked[0], ranked[-1]
    got = ", ".join(f"{name} gets {step.accept_length:.2f}" for name, step in ranked)
    text = f"Drafters at C={load}, each with {depth} steps of topk {topk}: {got} tokens a cycle"
    cycles = f"({ms_text(poor.cycle_ms)} and {ms_text(good.cycle_ms)})"
    ratio = evidence.against(poor.row, good.row)
    if ratio.holds(1.0):
        text += f". Which of {last} and {first} is faster cannot be told: {ratio_text(ratio)}"
    elif ratio.mean < 1 and abs(poor.cycle_ms / good.cycle_ms - 1) <= _AS_LONG:
        text += (
            f". Their cycles are about as long {cycles} and {last} gives {ratio_text(ratio)} on {first}'s throughput, "
            "which is consistent with acceptance alone making the difference"
        )
    else:
        text += f". {last} gives {ratio_text(ratio)} on {first}'s throughput, their cycles being {cycles[1:-1]} long"
    trials = sorted(step.row.trial.trial for _, step in ranked)
    drafters = {n: s.data for n, s in ranked}
    data = {"concurrency": load, "steps": depth, "topk": topk, "drafters": drafters} | _told(ratio)
    return Finding("drafters", f"{text} ({trials_text(trials)}).", data, rows_behind(s.row for _, s in ranked))


def _unfit(steps: StepTimes, names: Mapping[Any, str]) -> list[Finding]:
    chances: dict[str, list[tuple[float, StepTime]]] = {}
    for step in speculative_steps(steps):
        most = most_tokens(step.row)
        if most is not None and most > 1 and drafter(step.row)[1] is not None:
            # Of a tree it is the chance of any of a position's candidates: more than that of the first.
            chance = first_chance(step.accept_length, most - 1)
            chances.setdefault(names[drafter(step.row)], []).append((chance, step))
    found = []
    for name, several in chances.items():
        chance, step = max(several, key=lambda one: one[0])
        if chance < _UNFIT:
            text = (
                f"{name}: at best about {100 * chance:.0f} % of its drafted tokens are accepted, one after the other "
                f"(accept length {step.accept_length:.2f} with {setting(step.row, STEPS)} steps, trial "
                f"{step.row.trial.trial}). So few are consistent with a drafter that does not fit the model: trained "
                "for another one, or fed by the wrong layers (eagle_aux_hidden_state_layer_ids in its config)."
            )
            found.append(Finding("drafter_unfit", text, {"drafter": name, "chance": chance}, rows_behind([step.row])))
    return found


def first_chance(accept_length: float, steps: int) -> float:
    """The chance of a drafted token, the same at each position, that gives this accept length: the root of
    1 + p + ... + p^steps = accept_length, from 0 to 1, by bisection.
    """
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        if sum(middle**i for i in range(steps + 1)) < accept_length:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _rest(step: StepTime, steps: StepTimes) -> str:
    return steps.evidence.key(step.row, speculation=False, cap=False)
