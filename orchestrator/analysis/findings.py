"""What a user should know at the end without asking, in sentences computed from the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from orchestrator.analysis.rows import Row, all_simulated, by_trial


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence, its class, and the figures it was made from."""

    kind: str
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)


def findings(rows: Iterable[Row]) -> list[Finding]:
    """All findings of a study, the most important first.

    Raises ValueError for simulated and measured rows together.
    """
    rows = list(rows)
    unit = "simulated tok/s" if all_simulated(rows) else "tok/s"
    return [
        *against_baseline(rows, unit),
        *speculation(rows, unit),
        *admission(rows),
        *failures(rows),
        *failed_requests(rows),
        *warm_levels(rows),
    ]


def against_baseline(rows: Sequence[Row], unit: str = "tok/s") -> list[Finding]:
    """Best candidate against the baseline at each concurrency, by output tokens/s in full concurrency."""
    baselines = [row for row in rows if row.trial.role == "baseline"]
    candidates = [row for row in rows if row.trial.role == "candidate"]
    base: dict[int, float] = {}
    for concurrency in _ladder(rows):
        rates = [rate for _, rate in _rates(baselines, concurrency)]
        if rates:
            base[concurrency] = median(rates)
    if not base:
        text = "There is no measured baseline: how much the best setting gains cannot be said."
        return [Finding("no_baseline", text)] if rows else []
    best = {concurrency: found for concurrency in base if (found := _best(candidates, concurrency))}
    if not best:
        return [Finding("no_candidate", "No setting but the baseline was measured.")]
    if all(rate <= base[concurrency] for concurrency, (_, rate) in best.items()):
        closest = ", ".join(
            f"at C={concurrency} trial {row.trial.trial} comes closest ({_percent(rate, base[concurrency])})"
            for concurrency, (row, rate) in best.items()
        )
        text = f"Nothing beats the baseline: {closest}."
        return [Finding("nothing_beats_baseline", text, {"baseline": base, "best": _figures(best)})]
    return [_gain(concurrency, *best[concurrency], base[concurrency], unit) for concurrency in best]


def _gain(concurrency: int, row: Row, rate: float, base: float, unit: str) -> Finding:
    data = {
        "concurrency": concurrency,
        "trial": row.trial.trial,
        "output_tokens_per_s": rate,
        "baseline_output_tokens_per_s": base,
        "gain_percent": _gain_percent(rate, base),
    }
    if rate <= base:
        text = (
            f"At C={concurrency} nothing beats the baseline's {_number(base)} {unit}; "
            f"trial {row.trial.trial} comes closest ({_percent(rate, base)})."
        )
        return Finding("baseline_best", text, data)
    text = (
        f"At C={concurrency} trial {row.trial.trial} gives {_number(rate)} {unit}, "
        f"{_percent(rate, base)} on the baseline's {_number(base)}. Unconfirmed: one start of each."
    )
    return Finding("beats_baseline", text, data)


def speculation(rows: Sequence[Row], unit: str = "tok/s") -> list[Finding]:
    """Best speculative against best plain setting at each concurrency; nothing where it was never tried."""
    speculative = [row for row in rows if row.trial.speculative]
    plain = [row for row in rows if not row.trial.speculative]
    if not speculative:
        return []
    pairs: dict[int, tuple[Row, float, float]] = {}
    for concurrency in _ladder(rows):
        fast, reference = _best(speculative, concurrency), _best(plain, concurrency)
        if fast and reference:
            pairs[concurrency] = (*fast, reference[1])
    tried = len({row.trial.trial for row in speculative})
    if not pairs:
        text = f"Speculation was tried in {tried} trial(s), and none can be compared with a plain setting."
        return [Finding("speculation_not_compared", text, {"trials": tried})]
    levels = {
        concurrency: {
            "trial": row.trial.trial,
            "output_tokens_per_s": rate,
            "plain_output_tokens_per_s": reference,
            "gain_percent": _gain_percent(rate, reference),
            "accept_length": row.level.metrics.accept_length if row.level else None,
        }
        for concurrency, (row, rate, reference) in pairs.items()
    }
    pays = [c for c, (_, rate, reference) in pairs.items() if rate > reference]
    costs = [c for c in pairs if c not in pays]
    if not pays:
        text = f"Speculation did not pay: the best of {tried} speculative trial(s) against the best plain one "
        text += f"gives {_listed(pairs, costs)}."
        return [Finding("speculation_lost", text, {"levels": levels})]
    text = f"Speculation pays at {_listed(pairs, pays)}"
    text += f" and costs at {_listed(pairs, costs)}" if costs else ", at every concurrency measured"
    text += ", best speculative against best plain setting. Unconfirmed: one start of each."
    return [Finding("speculation_mixed" if costs else "speculation_won", text, {"levels": levels})]


def _listed(pairs: Mapping[int, tuple[Row, float, float]], ladder: Sequence[int]) -> str:
    parts = []
    for concurrency in ladder:
        row, rate, reference = pairs[concurrency]
        accepted = row.level.metrics.accept_length if row.level else None
        tail = "" if accepted is None else f", accept length {accepted:.2f}"
        parts.append(f"C={concurrency} ({_percent(rate, reference)}{tail})")
    return ", ".join(parts)


def admitted_requests(row: Row) -> int | None:
    """How many requests the server runs at once, all data-parallel ranks together; None where not known.

    Read back where possible: the top-level max_running_requests of /server_info is what was asked for, the
    effective one stands per rank in internal_states (SGLang 0.5.23).
    """
    effective = row.start.effective_settings
    key = "effective_max_running_requests_per_dp"
    ranks = effective.get("internal_states")
    if isinstance(ranks, list):
        caps = [rank[key] for rank in ranks if isinstance(rank, Mapping) and isinstance(rank.get(key), int)]
        # A rank that says nothing would make the sum too small.
        if caps and len(caps) == len(ranks):
            return int(sum(caps))
    if isinstance(effective.get(key), int):
        return int(effective[key]) * int(effective.get("dp_size") or 1)
    for name, settings in (
        ("effective_max_running_requests", effective),
        ("max_running_requests", effective),
        ("max-running-requests", effective),
        ("max-running-requests", row.trial.canonical_flags),
    ):
        if isinstance(settings.get(name), int):
            return int(settings[name])
    return None


def admission(rows: Sequence[Row]) -> list[Finding]:
    """Levels with more users than the server runs at once: what they measured holds a queue."""
    found = []
    for concurrency in _ladder(rows):
        caps: dict[int, int] = {}
        level = [row for row in rows if row.level and row.level.concurrency == concurrency]
        for row in level:
            cap = admitted_requests(row)
            if cap is not None and cap < concurrency:
                caps[row.trial.trial] = cap
        if caps:
            low, high = min(caps.values()), max(caps.values())
            cap_text = str(low) if low == high else f"{low} to {high}"
            text = (
                f"At C={concurrency}, {len(caps)} of {len(level)} trials measured the queue: "
                f"the server ran at most {cap_text} requests at once ({_trials(caps)})."
            )
            found.append(Finding("admission_limited", text, {"concurrency": concurrency, "caps": caps}))
    return found


def failures(rows: Sequence[Row]) -> list[Finding]:
    """Trials that failed or cannot run, one finding a class."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for group in by_trial(rows).values():
        outcome = group[0].outcome
        if outcome.state in ("failed", "infeasible"):
            groups.setdefault((outcome.state, outcome.failure_kind or "unknown"), []).append(group[0])
    found = []
    for (state, kind), members in sorted(groups.items()):
        trials = [row.trial.trial for row in members]
        what = "failed" if state == "failed" else "cannot run"
        message = next((r.outcome.failure_message for r in members if r.outcome.failure_message), None)
        text = f"{len(trials)} trial(s) {what} ({kind}): {_trials(trials)}."
        text += f" The first: {message}" if message else ""
        found.append(Finding("failed_trials", text, {"state": state, "failure": kind, "trials": trials}))
    return found


def failed_requests(rows: Sequence[Row]) -> list[Finding]:
    """Levels in which requests failed."""
    found = []
    for row in rows:
        if row.level is None or not row.level.metrics.requests_failed:
            continue
        metrics = row.level.metrics
        kinds = ", ".join(f"{kind} {count}" for kind, count in Counter(metrics.errors_by_kind).most_common())
        text = (
            f"Trial {row.trial.trial} at C={metrics.concurrency}: {metrics.requests_failed} of "
            f"{metrics.requests_total} requests failed{f' ({kinds})' if kinds else ''}"
            f"{'' if row.level.comparable else '; its numbers are not compared'}."
        )
        text += f" The first: {metrics.first_error}" if metrics.first_error else ""
        data = {
            "trial": row.trial.trial,
            "concurrency": metrics.concurrency,
            "failed": metrics.requests_failed,
            "total": metrics.requests_total,
        }
        found.append(Finding("failed_requests", text, data))
    return found


def warm_levels(rows: Sequence[Row]) -> list[Finding]:
    """Levels that did not begin with a cache known to be cold."""
    found = []
    for state, text in (
        ("warm", "began with prompts in the prefix cache; their numbers are not compared"),
        ("unknown", "began without a confirmed flush of the prefix cache"),
    ):
        levels = [
            (row.trial.trial, row.level.concurrency)
            for row in rows
            if row.level is not None and row.level.cache_state == state
        ]
        if levels:
            sentence = f"{len(levels)} level(s) {text} ({_trials({trial for trial, _ in levels})})."
            found.append(Finding(f"cache_{state}", sentence, {"levels": levels}))
    return found


def _ladder(rows: Iterable[Row]) -> list[int]:
    return sorted({row.level.concurrency for row in rows if row.level is not None})


def _rates(rows: Iterable[Row], concurrency: int) -> list[tuple[Row, float]]:
    """Rows of complete trials at this concurrency with their throughput, where it may be compared."""
    return [
        (row, rate)
        for row in rows
        if row.outcome.state == "complete"
        and row.level is not None
        and row.level.concurrency == concurrency
        and (rate := row.output_tokens_per_s) is not None
    ]


def _best(rows: Iterable[Row], concurrency: int) -> tuple[Row, float] | None:
    # The earliest trial of equals.
    return max(_rates(rows, concurrency), key=lambda found: (found[1], -found[0].trial.trial), default=None)


def _figures(best: Mapping[int, tuple[Row, float]]) -> dict[int, dict[str, float]]:
    return {c: {"trial": row.trial.trial, "output_tokens_per_s": rate} for c, (row, rate) in best.items()}


def _gain_percent(value: float, base: float) -> float:
    return 100 * (value / base - 1)


def _percent(value: float, base: float) -> str:
    return f"{_gain_percent(value, base):+.1f} %"


def _number(value: float) -> str:
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def _trials(numbers: Iterable[int]) -> str:
    listed = sorted(numbers)
    names = ", ".join(map(str, listed[:8])) + (", ..." if len(listed) > 8 else "")
    return f"trial{'s' if len(listed) > 1 else ''} {names}"
