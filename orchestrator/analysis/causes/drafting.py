"""Where a speculative cycle's time goes and what drafting deeper, or by another drafter, brings. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from launchers.sglang.rewrites import STEPS, TOPK
from orchestrator.analysis.causes.drafts import draft_tokens, drafter, most_tokens, setting
from orchestrator.analysis.causes.evidence import Evidence, users
from orchestrator.analysis.causes.step_time import StepTime, StepTimes
from orchestrator.analysis.causes.words import ms_text
from orchestrator.analysis.comparisons import ratio_text
from orchestrator.analysis.finding import Finding, rows_behind, trials_text
from orchestrator.benchmark.intervals import Interval, student_t

#: Below this chance that the first drafted token is accepted, a drafter does not fit its model.
_UNFIT = 0.3
#: By which share two cycles may differ and be called as long.
_AS_LONG = 0.05


def speculative_steps(steps: StepTimes) -> list[StepTime]:
    """Of the search's speculative levels those whose plain step is known."""
    rows = (row for row in steps.evidence.compared if row.trial.speculative and row.trial.repeats is None)
    return [step for row in rows if (step := steps.of(row)) is not None and step.plain is not None]


# ---- the parts of a cycle ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """A part's milliseconds, with half of their 95 % interval."""

    ms: float
    half: float

    @property
    def told(self) -> bool:
        """Whether it is above 0 beyond doubt."""
        return self.ms > self.half

    @property
    def text(self) -> str:
        """`1.1 ms (0.9 to 1.3)`."""
        digits = 0 if abs(self.ms) >= 20 else 1 if abs(self.ms) >= 1 else 2
        return f"{self.ms:.{digits}f} ms ({self.ms - self.half:.{digits}f} to {self.ms + self.half:.{digits}f})"


def parts(steps: StepTimes) -> list[Finding]:
    """For each algorithm how a cycle divides into plain step, drafting and verifying, at the loads where the trials
    tell it: by least squares over trials that differ in steps and draft tokens alone.
    """
    groups: dict[tuple[str, str], dict[int, list[StepTime]]] = {}
    for step in speculative_steps(steps):
        rest = steps.evidence.key(step.row, speculation=False, cap=False)
        by_load = groups.setdefault((drafter(step.row)[0], rest), {})
        by_load.setdefault(users(step.row), []).append(step)
    found, algorithms = [], dict.fromkeys(algorithm for algorithm, _ in groups)
    for algorithm in algorithms:
        told = [f for (own, _), by_load in groups.items() if own == algorithm and (f := _divided(algorithm, by_load))]
        found += told or [_undivided(algorithm, [b for (own, _), b in groups.items() if own == algorithm])]
    return found


def _divided(algorithm: str, by_load: Mapping[int, Sequence[StepTime]]) -> Finding | None:
    fits = {load: fit for load, several in sorted(by_load.items()) if (fit := _fit(several)) is not None}
    if not fits:
        return None
    used = [step for load in fits for step in by_load[load]]
    trials = sorted({step.row.trial.trial for step in used})
    models = {drafter(step.row) for step in used}
    sentences = [_fit_text(load, by_load[load], fits[load]) for load in dict.fromkeys((min(fits), max(fits)))]
    taken = f", their {len(models)} drafters taken for equally large" if len(models) > 1 else ""
    text = (
        f"Where a cycle of {algorithm} goes: {'; '.join(sentences)} (least squares over {trials_text(trials)}{taken})."
    )
    data = {
        "algorithm": algorithm,
        "trials": trials,
        "levels": {
            load: {"plain_step_ms": _plain_ms(by_load[load])}
            | {name: dataclasses.asdict(part) for name, part in fit.items()}
            for load, fit in fits.items()
        },
    }
    return Finding("cycle_parts", text, data, rows_behind(step.row for step in used))


def _fit(several: Sequence[StepTime]) -> dict[str, Part] | None:
    """Milliseconds beyond a plain step: in each cycle, a draft step, a verified token.

    With one token to verify for each step the two are one. None where the trials do not tell.
    """
    shapes = [(setting(s.row, STEPS), draft_tokens(s.row), s.extra_ms, s.batch) for s in several]
    known = [(s, t, ms) for s, t, ms, batch in shapes if s and t and ms is not None and batch == several[0].batch]
    for names, columns in (
        (("cycle", "step", "token"), [[1, s, t] for s, t, _ in known]),
        (("cycle", "step with its token"), [[1, s] for s, t, _ in known if t == s + 1]),
    ):
        times = [ms for s, t, ms in known if len(names) == 3 or t == s + 1]
        freedom = len(times) - len(names)
        if freedom < 1:
            continue
        design = np.array(columns, dtype=float)
        if np.linalg.matrix_rank(design) < len(names):
            continue
        values = np.linalg.lstsq(design, np.array(times), rcond=None)[0]
        left = float(np.sum((np.array(times) - design @ values) ** 2)) / freedom
        spread = student_t(freedom) * np.sqrt(left * np.diag(np.linalg.inv(design.T @ design)))
        return {name: Part(float(v), float(h)) for name, v, h in zip(names, values, spread, strict=True)}
    return None


def _fit_text(load: int, several: Sequence[StepTime], fit: Mapping[str, Part]) -> str:
    what = {
        "cycle": "in every cycle",
        "step": "for each draft step",
        "token": "for each token verified of a request",
        "step with its token": "for each draft step and the token that it adds to verify, which cannot be told apart",
    }
    told = [f"{part.text} {what[name]}" for name, part in fit.items() if part.told]
    untold = [what[name] for name, part in fit.items() if not part.told]
    text = f"at C={load} a plain step is {ms_text(_plain_ms(several))}"
    text += f", and on top come {', '.join(told)}" if told else ""
    return text + (f", nothing that can be told {' nor '.join(untold)}" if untold else "")


def _plain_ms(several: Sequence[StepTime]) -> float:
    plain = several[0].plain
    assert plain is not None
    return plain.ms


def _undivided(algorithm: str, groups: Sequence[Mapping[int, Sequence[StepTime]]]) -> Finding:
    trials = sorted({s.row.trial.trial for by_load in groups for several in by_load.values() for s in several})
    text = (
        f"How the extra time of a cycle of {algorithm} divides into drafting and verifying these trials do not tell: "
        f"that takes at least four that differ in nothing but steps and draft tokens ({trials_text(trials)} differ in "
        "more, or are fewer)."
    )
    behind = rows_behind(s.row for by_load in groups for several in by_load.values() for s in several)
    return Finding("cycle_undivided", text, {"algorithm": algorithm, "trials": trials}, behind)


# ---- depth and drafters -----------------------------------------------------------------------------------------


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


__all__ = ["depths", "drafters_compared", "first_chance", "parts", "speculative_steps"]
