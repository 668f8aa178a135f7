"""Requests that waited instead of running: the cap on running requests, and the KV memory. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.analysis.causes.evidence import Evidence, users
from orchestrator.analysis.causes.step_time import kv_short, running_batch, tokens_a_request
from orchestrator.analysis.comparisons import ratio_text
from orchestrator.analysis.effective import MAX_RUNNING
from orchestrator.analysis.finding import Finding, ladder_of, rows_behind, trials_text
from orchestrator.analysis.rows import Row
from orchestrator.benchmark.intervals import Interval
from orchestrator.offered_load import Load


def caps(evidence: Evidence) -> list[Finding]:
    """Loads with more users than a server runs at once: what was measured there holds a queue."""
    found = []
    for concurrency in ladder_of(evidence.rows):
        level = [r for r in evidence.rows if r.level and r.level.load == Load(concurrency)]
        bound = [row for row in level if row.admission_limited]
        if bound:
            found.append(_cap(concurrency, bound, len(level), evidence))
    return found


def _cap(concurrency: int, bound: Sequence[Row], measured: int, evidence: Evidence) -> Finding:
    by_trial = {r.trial.trial: cap for r in bound if (cap := r.start.effective_max_running_requests) is not None}
    unasked = [row.trial.trial for row in bound if row.trial.requested_flags.get(MAX_RUNNING) is None]
    low, high = min(by_trial.values()), max(by_trial.values())
    waiting = f"{concurrency - low}" if low == high else f"{concurrency - high} to {concurrency - low}"
    text = (
        f"At C={concurrency} {MAX_RUNNING} was {low if low == high else f'{low} to {high}'} in {len(by_trial)} of "
        f"{measured} trials ({trials_text(by_trial)}): {waiting} of {concurrency} requests queued, and what was "
        "measured holds that queue."
    )
    if unasked:
        by_speculation = [r for r in bound if r.trial.trial in unasked and r.trial.speculative]
        whose = "SGLang itself set it so" + (" because it speculated" if len(by_speculation) == len(unasked) else "")
        text += f" Nobody asked for that in {trials_text(unasked)}: {whose}."
    waits = {r.trial.trial: share for r in bound if (share := _queued_share(r)) is not None}
    if waits:
        least, most = min(waits.values()), max(waits.values())
        shares = (
            f"{100 * least:.0f}"
            if round(100 * least) == round(100 * most)
            else f"{100 * least:.0f} to {100 * most:.0f}"
        )
        text += f" A request spent {shares} % of its time in the queue."
    data = {"concurrency": concurrency, "caps": by_trial, "unasked": unasked, "queued_share": waits}
    unbound = _unbound(concurrency, evidence)
    costs = [cost for row in bound if (cost := _cost(row, unbound, evidence)) is not None]
    behind = list(bound)
    if costs:
        worst, row, other = min(costs, key=lambda cost: cost[0].mean)
        who = f"trial {row.trial.trial} against {other.trial.trial}{', the most' if len(costs) > 1 else ''}"
        text += f" Of trials that differ in it alone, it moved throughput by {ratio_text(worst)} ({who})."
        data["cap_moved_percent"] = 100 * (worst.mean - 1)
        behind += evidence.behind(row, other)
    return Finding("admission_limited", text, data, rows_behind(behind))


def _queued_share(row: Row) -> float | None:
    """The share of a request's time that it waited in the server's queue; None where it is not told."""
    metrics = row.level.metrics if row.level else None
    if metrics is None or metrics.queue_time_ms is None or metrics.e2e_ms is None or metrics.e2e_ms.mean <= 0:
        return None
    share = metrics.queue_time_ms / metrics.e2e_ms.mean
    return share if share <= 1 else None


def _unbound(concurrency: int, evidence: Evidence) -> dict[str, Row]:
    """Rows that ran all users at once, by their settings apart from the cap; the earliest of equals."""
    found: dict[str, Row] = {}
    for row in evidence.compared:
        if users(row) == concurrency and running_batch(row) == concurrency:
            found.setdefault(evidence.key(row, cap=False), row)
    return found


def _cost(row: Row, unbound: Mapping[str, Row], evidence: Evidence) -> tuple[Interval, Row, Row] | None:
    """Throughput against a trial that has all settings but the cap in common and ran all users; and whose."""
    other = unbound.get(evidence.key(row, cap=False)) if row in evidence.compared_set else None
    ratio = None if other is None else evidence.against(row, other)
    if other is None or ratio is None or ratio.holds(1.0):
        return None
    return ratio, row, other


def memory(evidence: Evidence) -> list[Finding]:
    """Levels in which requests lost their place, or may have waited, for want of KV memory."""
    found = []
    for row in evidence.rows:
        if row.level is None:
            continue
        lost, label = row.level.retracted_requests, row.level.load.label
        need = _need(row)
        if not lost and need is None:
            continue
        trial = row.trial.trial
        if lost:
            text = f"Trial {trial} at {label}: {lost} request(s) lost their KV memory and began anew"
            text += f": {need}." if need else "."
        else:
            text = f"Trial {trial} at {label}: {need}; none lost its place, so some may have waited for room."
        data = {"trial": trial, "level": label, "retracted": lost}
        kind = "retracted_requests" if lost else "kv_short"
        found.append(Finding(kind, text, data, rows_behind([row])))
    return found


def _need(row: Row) -> str | None:
    """What the KV pool has against what the running requests need; None where it is enough or not known."""
    cap = row.start.effective_max_running_requests
    if row.level is None or row.level.load.concurrency is None or cap is None:
        return None
    batch, each = min(users(row), cap), tokens_a_request(row)
    if each is None or not kv_short(row, batch):
        return None
    return (
        f"{batch} requests of {each:,.0f} tokens need {batch * each:,.0f} in the KV pool at their ends, and it has "
        f"{row.start.effective_kv_tokens:,}"
    )
