"""Where a speculative cycle's time goes: plain step, drafting, verifying, as far as the trials tell. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from launchers.sglang.rewrites import STEPS
from orchestrator.analysis.causes.drafts import draft_tokens, drafter, setting
from orchestrator.analysis.causes.evidence import users
from orchestrator.analysis.causes.step_time import StepTime, StepTimes
from orchestrator.analysis.causes.words import ms_text
from orchestrator.analysis.finding import Finding, rows_behind, trials_text
from orchestrator.benchmark.intervals import student_t


def speculative_steps(steps: StepTimes) -> list[StepTime]:
    """Of the search's speculative levels those whose plain step is known."""
    rows = (row for row in steps.evidence.compared if row.trial.speculative and row.trial.repeats is None)
    return [step for row in rows if (step := steps.of(row)) is not None and step.plain is not None]


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
