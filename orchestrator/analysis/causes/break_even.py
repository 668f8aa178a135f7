"""Why speculation pays or costs: the tokens a cycle that it takes against those that it got, load by load. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from launchers.sglang.rewrites import DRAFT_PATH, DRAFT_TOKENS, STEPS
from orchestrator.analysis.causes.evidence import (
    Evidence,
    difference,
    differing_text,
    users,
)
from orchestrator.analysis.causes.step_time import PlainStep, StepTime, StepTimes
from orchestrator.analysis.comparisons import percent
from orchestrator.analysis.finding import Finding, rows_behind, trials_text
from orchestrator.analysis.rows import Row
from orchestrator.benchmark.intervals import Interval

#: By which share an acceptance may differ over the loads and still be called the same.
_STEADY = 0.15


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
    names = drafters(evidence.rows)
    for row in evidence.compared:
        if not row.trial.speculative or row.trial.repeats is not None or only not in (None, row.trial.trial):
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
    text += _contradiction(best) + _doubt(best, plain, steps.evidence)
    data = {**best.data, "drafter": name, "others": [one.data for one in judged[1:]]}
    behind = rows_behind([best.row, *plain.rows])
    return Finding("break_even", text, data, behind)


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
    loads = f"from C={users(first.row)} to C={users(last.row)}"
    got = f"{low.accept_length:.2f} tokens a cycle at C={users(first.row)} and {high.accept_length:.2f}"
    got += f" at C={users(last.row)}"
    if max(lengths) <= (1 + _STEADY) * min(lengths):
        ends = dict.fromkeys((f"{min(lengths):.2f}", f"{max(lengths):.2f}"))
        got = f"{' to '.join(ends)} tokens a cycle, whatever the load"
    moved = "rises" if high.break_even > low.break_even else "falls"
    single = "" if all(evidence.floor(users(one.row)) for one in chosen) else ", by single starts"
    ends = f"{figure(low.break_even)} to {figure(high.break_even)}"
    text = f"{name} {_where(chosen)}{single}. It gets {got}; break-even {moved} {loads} from about {ends}"
    text += _extra(low, high)
    trial = first.row.trial.trial
    text += f" (trial {trial})."
    data = {
        "drafter": name,
        "trial": trial,
        "levels": [one.data for one in chosen],
        "verdicts": {users(one.row): one.verdict for one in chosen},
    }
    return Finding("crossover", text, data, rows_behind(row for one in chosen for row in _behind(one)))


def _behind(one: Judged) -> Iterable[Row]:
    return (one.row, *(one.step.plain.rows if one.step.plain else ()))


def _where(chosen: Sequence[Judged]) -> str:
    """`pays at C=1 and C=4, not from C=8 on`; `pays nowhere`."""
    pays = [users(one.row) for one in chosen if one.verdict == "pays"]
    costs = [users(one.row) for one in chosen if one.verdict == "costs"]
    ties = [users(one.row) for one in chosen if one.verdict == "tie"]
    tied = f", at {_loads(ties)} no difference can be told" if ties else ""
    if not pays:
        return f"pays at no load{tied}"
    if not costs:
        return f"pays at {_loads(pays)}{tied}" if ties else "pays at every load"
    if max(pays) < min(costs):
        up_to = f"at C={pays[0]}" if len(pays) == 1 else f"up to C={max(pays)}"
        return (
            f"crosses over between C={max(pays)} and C={min(costs)}: it pays {up_to}{tied} and costs from "
            f"C={min(costs)} on"
        )
    return f"pays at {_loads(pays)} and costs at {_loads(costs)}{tied}"


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


def _verdict(one: Judged, evidence: Evidence) -> str:
    whom = "the baseline" if one.beside is None else f"trial {one.beside.trial.trial}, the same without speculation"
    single = "" if evidence.floor(users(one.row)) else ", by single starts of which nobody knows how far they differ"
    gain = f"{percent(one.ratio.mean)} % against {whom}{single}"
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


def _doubt(best: Judged, plain: PlainStep, evidence: Evidence) -> str:
    """Other settings that the trial has otherwise than what its cycle is compared with."""
    if plain.same_settings:
        return ""
    mine = evidence.settings(best.row, speculation=False, cap=False)
    theirs = evidence.settings(plain.rows[0], speculation=False, cap=False)
    differ = differing_text((name, values[0]) for name, values in difference(mine, theirs).items())
    return f" It differs in {differ} too, so not all of this need be the speculation's." if differ else ""


def drafter(row: Row) -> tuple[str, str | None]:
    """Algorithm and draft model of a speculative row."""
    flags = row.trial.canonical_flags
    path = flags.get(DRAFT_PATH)
    return str(flags.get("speculative-algorithm")), None if path is None else str(path)


def drafters(rows: Iterable[Row]) -> dict[tuple[str, str | None], str]:
    """A short name of each: `EAGLE3 with Kimi-K2-eagle3`; whole paths where two end alike."""
    known = dict.fromkeys(drafter(row) for row in rows if row.trial.speculative)
    ends = [path.rstrip("/").rsplit("/", 1)[-1] for _, path in known if path]
    names = {}
    for algorithm, path in known:
        end = "" if path is None else path.rstrip("/").rsplit("/", 1)[-1]
        short = end if ends.count(end) <= len({a for a, p in known if p == path}) else path
        names[algorithm, path] = f"{algorithm} with {short}" if path else algorithm
    return names


def setting(row: Row, name: str) -> int | None:
    """A speculative number as in force, else as the rules know it."""
    value = row.start.effective_settings.get(name, row.trial.canonical_flags.get(name))
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def draft_tokens(row: Row) -> int | None:
    """Tokens that a cycle verifies of each request."""
    return setting(row, DRAFT_TOKENS)


def most_tokens(row: Row) -> int | None:
    """The most that a cycle can yield a request: the longest path of drafted tokens, and the model's own token."""
    steps, tokens = setting(row, STEPS), draft_tokens(row)
    if steps is None:
        return tokens
    return steps + 1 if tokens is None else min(steps + 1, tokens)


def figure(value: float) -> str:
    """About two digits after the point for small numbers, one for large."""
    return f"{value:.1f}" if value >= 3 else f"{value:.2f}"


def _times(ratio: float) -> str:
    return f"about {figure(ratio)} plain steps" if ratio >= 1.05 else "about as long as a plain step"


def ms_text(value: float) -> str:
    """`93 ms`, `1.1 ms`."""
    return f"{value:.0f} ms" if value >= 20 else f"{value:.1f} ms" if value >= 1 else f"{value:.2f} ms"


def _loads(ladder: Sequence[int]) -> str:
    names = [f"C={c}" for c in sorted(ladder)]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
