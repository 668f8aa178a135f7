"""What a user should know at the end without asking, in sentences computed from the rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from orchestrator.analysis import server_findings as server
from orchestrator.analysis.finding import Finding, ladder_of, settings_text
from orchestrator.analysis.rows import Row, all_simulated


def findings(rows: Iterable[Row]) -> list[Finding]:
    """All findings of a study, the most important first.

    Raises ValueError for simulated and measured rows together.
    """
    rows = list(rows)
    unit = "simulated tok/s" if all_simulated(rows) else "tok/s"
    return [
        *against_baseline(rows, unit),
        *speculation(rows, unit),
        *server.outputs(rows),
        *server.admission(rows),
        *server.settings(rows),
        *server.memory(rows),
        *server.failures(rows),
        *server.failed_requests(rows),
        *server.warm_levels(rows),
        *server.repeated_prompts(rows),
        *server.partial_acceptance(rows),
        *server.leftovers(rows),
        *server.disagreements(rows),
    ]


def against_baseline(rows: Sequence[Row], unit: str = "tok/s") -> list[Finding]:
    """Best candidate against the baseline at each concurrency, by output tokens/s in full concurrency."""
    baselines = [row for row in rows if row.trial.role == "baseline"]
    candidates = [row for row in rows if row.trial.role == "candidate"]
    base: dict[int, float] = {}
    unrest: dict[int, float] = {}
    for concurrency in ladder_of(rows):
        found = _rates(baselines, concurrency)
        if found:
            base[concurrency] = median(rate for _, rate in found)
            unrest[concurrency] = max(_half_width(row) for row, _ in found)
    if not base:
        text = "There is no measured baseline: how much the best setting gains cannot be said."
        return [Finding("no_baseline", text)] if rows else []
    best = {concurrency: top for concurrency in base if (top := _best(candidates, concurrency))}
    if not best:
        return [Finding("no_candidate", "No setting but the baseline was measured.")]
    if all(rate <= base[concurrency] for concurrency, (_, rate) in best.items()):
        closest = ", ".join(
            f"at C={concurrency} trial {row.trial.trial} comes closest ({_percent(rate, base[concurrency])})"
            for concurrency, (row, rate) in best.items()
        )
        text = f"Nothing beats the baseline: {closest}."
        return [Finding("nothing_beats_baseline", text, {"baseline": base, "best": _figures(best)})]
    common = {**baselines[0].trial.requested_flags, **baselines[0].trial.requested_env}
    return [
        _gain(row, rate, base[concurrency], unrest[concurrency], unit, settings_text(row, common))
        for concurrency, (row, rate) in best.items()
    ]


def _gain(row: Row, rate: float, base: float, base_half_width: float, unit: str, settings: str) -> Finding:
    assert row.level is not None
    concurrency, accepted = row.level.concurrency, row.level.metrics.accept_length
    unrest = math.hypot(_half_width(row), base_half_width)
    data = {
        "concurrency": concurrency,
        "trial": row.trial.trial,
        "output_tokens_per_s": rate,
        "baseline_output_tokens_per_s": base,
        "gain_percent": _gain_percent(rate, base),
        "unrest_percent": 100 * unrest / base,
        "accept_length": accepted,
        "settings": settings,
    }
    if rate <= base:
        text = (
            f"At C={concurrency} nothing beats the baseline's {_number(base)} {unit}; "
            f"trial {row.trial.trial} comes closest ({_percent(rate, base)})."
        )
        return Finding("baseline_best", text, data)
    within = f"{100 * unrest / base:.1f} %"
    if rate - base <= unrest:
        text = (
            f"At C={concurrency} no gain can be told: the best, trial {row.trial.trial}, gives {_number(rate)} {unit}, "
            f"{_percent(rate, base)} on the baseline's {_number(base)}, and within the two starts throughput is known "
            f"to no better than ±{within}. Longer levels (workload.level) would tell."
        )
        return Finding("gain_within_unrest", text, data)
    text = (
        f"At C={concurrency} trial {row.trial.trial} gives {_number(rate)} {unit}, "
        f"{_percent(rate, base)}{f' (±{within} within the starts)' if unrest else ''} on the baseline's {_number(base)}"
        f"{'' if accepted is None else f', accept length {accepted:.2f}'}: {settings}. Unconfirmed: one start of each."
    )
    return Finding("beats_baseline", text, data)


def speculation(rows: Sequence[Row], unit: str = "tok/s") -> list[Finding]:
    """Best speculative against best plain setting at each concurrency; nothing where it was never tried."""
    speculative = [row for row in rows if row.trial.speculative]
    plain = [row for row in rows if not row.trial.speculative]
    if not speculative:
        return []
    pairs: dict[int, tuple[Row, float, float]] = {}
    unrest: dict[int, float] = {}
    for concurrency in ladder_of(rows):
        fast, reference = _best(speculative, concurrency), _best(plain, concurrency)
        if fast and reference:
            pairs[concurrency] = (*fast, reference[1])
            unrest[concurrency] = math.hypot(_half_width(fast[0]), _half_width(reference[0]))
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
    pays = [c for c, (_, rate, reference) in pairs.items() if rate - reference > unrest[c]]
    ties = [c for c, (_, rate, reference) in pairs.items() if c not in pays and reference - rate <= unrest[c]]
    costs = [c for c in pairs if c not in pays + ties]
    if not pays:
        may_pay = any(pairs[c][1] > pairs[c][2] for c in ties)
        verdict = "No gain by speculation can be told" if may_pay else "Speculation did not pay"
        text = f"{verdict}: the best of {tried} speculative trial(s) against the best plain one "
        text += f"gives {_listed(pairs, costs)}."
        return [Finding("speculation_untold" if may_pay else "speculation_lost", text, {"levels": levels})]
    text = f"Speculation pays at {_listed(pairs, pays)}"
    text += f", makes no difference beyond the starts' own unrest at {_listed(pairs, ties)}" if ties else ""
    text += f" and costs at {_listed(pairs, costs)}" if costs else "" if ties else ", at every concurrency measured"
    text += ", best speculative against best plain setting. Unconfirmed: one start of each."
    return [Finding("speculation_mixed" if costs or ties else "speculation_won", text, {"levels": levels})]


def _listed(pairs: Mapping[int, tuple[Row, float, float]], ladder: Sequence[int]) -> str:
    parts = []
    for concurrency in ladder:
        row, rate, reference = pairs[concurrency]
        accepted = row.level.metrics.accept_length if row.level else None
        tail = "" if accepted is None else f", accept length {accepted:.2f}"
        parts.append(f"C={concurrency} ({_percent(rate, reference)}{tail})")
    return ", ".join(parts)


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


def _half_width(row: Row) -> float:
    """What the level's own unrest makes of its throughput; 0 where that is not known."""
    return (row.level.metrics.output_tokens_per_s_half_width or 0.0) if row.level else 0.0


def _figures(best: Mapping[int, tuple[Row, float]]) -> dict[int, dict[str, float]]:
    return {c: {"trial": row.trial.trial, "output_tokens_per_s": rate} for c, (row, rate) in best.items()}


def _gain_percent(value: float, base: float) -> float:
    return 100 * (value / base - 1)


def _percent(value: float, base: float) -> str:
    return f"{_gain_percent(value, base):+.1f} %"


def _number(value: float) -> str:
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"
