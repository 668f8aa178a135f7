"""What single settings did, from trials that have all others in common; and settings that did nothing. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.analysis.baseline import BASELINE
from orchestrator.analysis.causes.evidence import Evidence, users
from orchestrator.analysis.causes.step_time import running_batch
from orchestrator.analysis.comparisons import percent, ratio_text
from orchestrator.analysis.effective import MAX_RUNNING
from orchestrator.analysis.finding import Finding, rows_behind, rows_of, trials_text
from orchestrator.analysis.rows import Row
from orchestrator.benchmark.intervals import Interval

#: Share of prompt tokens found in the prefix cache from which on it is worth a word.
_CACHED = 0.05


#: All settings but one, and how many requests ran at once.
Key = tuple[tuple[tuple[str, str], ...], Any]


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two rows of one load that differ in one setting alone."""

    row: Row
    other: Row
    ratio: Interval


def effects(evidence: Evidence) -> list[Finding]:
    """For each setting that trials differ in alone, what it did at each load; those without effect last."""
    found = [_effect(of[0], by_load, evidence) for of, by_load in sorted(_pairs(evidence).items())]
    return sorted(found, key=lambda finding: finding.kind == "no_effect")


def _pairs(evidence: Evidence) -> dict[tuple[str, str, str], dict[int, list[_Pair]]]:
    """By setting, its value and the value it is held against: pairs by load."""
    base = evidence.baseline
    usual = evidence.settings(base) if base is not None else {}
    alike: dict[tuple[int, str, Key], dict[str, list[Row]]] = {}
    names = sorted({name for row in evidence.compared for name in evidence.settings(row)})
    for row in evidence.compared:
        if row.trial.role == "confirmation":
            continue
        own, batch = evidence.settings(row), running_batch(row)
        texts = [(name, repr(own.get(name))) for name in names if name != MAX_RUNNING]
        admitted = own.get(MAX_RUNNING) if batch is None else batch
        for name in names:
            rest = tuple(text for text in texts if text[0] != name)
            # A cap that admits all is no difference to another that does.
            key: Key = (rest, None if name == MAX_RUNNING else admitted)
            alike.setdefault((users(row), name, key), {}).setdefault(repr(own.get(name)), []).append(row)
    found: dict[tuple[str, str, str], dict[int, list[_Pair]]] = {}
    for (load, name, _), by_value in alike.items():
        if len(by_value) < 2:
            continue
        first = repr(usual.get(name))
        reference = first if first in by_value else min(by_value)
        # The baseline, where it is among them, has the most starts.
        other = min(by_value[reference], key=lambda row: (row.trial.role not in BASELINE, row.trial.trial))
        for value, rows in by_value.items():
            if value != reference:
                of = (name, value, reference)
                pairs = [_Pair(row, other, evidence.against(row, other)) for row in rows]
                found.setdefault(of, {}).setdefault(load, []).extend(pairs)
    return found


def _effect(name: str, by_load: Mapping[int, Sequence[_Pair]], evidence: Evidence) -> Finding:
    pairs = [pair for several in by_load.values() for pair in several]
    value, reference = (evidence.settings(row).get(name) for row in (pairs[0].row, pairs[0].other))
    trials = sorted({pair.row.trial.trial for pair in pairs})
    against = sorted({pair.other.trial.trial for pair in pairs})
    who = f"{trials_text(trials)} against {', '.join(map(str, against))}"
    ratios = {load: together([pair.ratio for pair in several]) for load, several in sorted(by_load.items())}
    told = {load: ratio for load, ratio in ratios.items() if not ratio.holds(1.0)}
    what = f"{name}: {_shown(value)} instead of {_shown(reference)}"
    data = {
        "name": name,
        "value": value,
        "instead_of": reference,
        "trials": trials,
        "against": against,
        "percent": {load: 100 * (ratio.mean - 1) for load, ratio in ratios.items()},
        "told": sorted(told),
    }
    behind = rows_behind(row for pair in pairs for row in evidence.behind(pair.row, pair.other))
    if not told:
        spans = ", ".join(f"{_span(ratio)} at C={load}" for load, ratio in ratios.items())
        text = f"{what} has no effect that can be told: {spans} ({who}, all else equal)."
        return Finding("no_effect", text, data, behind)
    parts = [
        f"{ratio_text(ratio)} at C={load}" if load in told else f"nothing to tell at C={load}"
        for load, ratio in ratios.items()
    ]
    text = f"{what} moved throughput by {', '.join(parts)} ({who}, all else equal)."
    return Finding("setting_effect", text, data, behind)


def together(ratios: Sequence[Interval]) -> Interval:
    """The geometric mean of independent ratios, with the interval that theirs leave it."""
    centre = math.fsum(math.log(ratio.mean) for ratio in ratios) / len(ratios)
    half = math.sqrt(math.fsum(math.log(ratio.high / ratio.mean) ** 2 for ratio in ratios)) / len(ratios)
    return Interval(math.exp(centre), math.exp(centre - half), math.exp(centre + half))


def dropped(evidence: Evidence) -> list[Finding]:
    """Settings that were asked for and that the canonical configuration leaves out: they do nothing there."""
    groups: dict[str, list[int]] = {}
    for trial, rows in evidence.trials.items():
        info = rows[0].trial
        asked = {k for k, v in {**info.requested_flags, **info.requested_env}.items() if v is not None}
        for name in sorted(asked - {*info.canonical_flags, *info.canonical_env}):
            groups.setdefault(name, []).append(trial)
    return [
        Finding(
            "inert_setting",
            f"{name} does nothing in {trials_text(trials)}: with the other settings there it is without effect, and "
            "the server is the same without it.",
            {"name": name, "trials": trials},
            rows_of(evidence.rows, trials),
        )
        for name, trials in sorted(groups.items())
    ]


def prefix_cache(evidence: Evidence) -> list[Finding]:
    """Loads at which the prefix cache answered a part of the prompts, and where trials differ in that."""
    found = []
    for load in evidence.ladder:
        shares = {
            row.trial.trial: share
            for row in evidence.compared
            if users(row) == load and (share := _cached_share(row)) is not None
        }
        if not shares or max(shares.values()) < _CACHED:
            continue
        low, high = min(shares.values()), max(shares.values())
        text = f"At C={load} {_shares(low, high)} % of the prompts' tokens came out of the prefix cache"
        if high - low >= _CACHED:
            most = [trial for trial, share in shares.items() if share > high - _CACHED]
            text += f", most in {trials_text(most)}: a part of what trials differ by there may be that"
        behind = rows_behind(row for row in evidence.compared if users(row) == load)
        found.append(Finding("prefix_cache", f"{text}.", {"concurrency": load, "shares": shares}, behind))
    return found


def _cached_share(row: Row) -> float | None:
    metrics = row.level.metrics if row.level else None
    if metrics is None or metrics.cached_tokens is None or not metrics.prompt_tokens:
        return None
    return metrics.cached_tokens / metrics.prompt_tokens


def _shares(low: float, high: float) -> str:
    least, most = f"{100 * low:.0f}", f"{100 * high:.0f}"
    return most if least == most else f"{least} to {most}"


def _span(ratio: Interval) -> str:
    if ratio.low == ratio.high:
        return f"{percent(ratio.mean)} %"
    return f"{percent(ratio.low)} to {percent(ratio.high)} %"


def _shown(value: Any) -> str:
    return "left out" if value is None else str(value)


def only_nccl(names: Iterable[str]) -> bool:
    """Whether these settings are NCCL's alone."""
    return all(name.startswith("NCCL_") for name in names)
