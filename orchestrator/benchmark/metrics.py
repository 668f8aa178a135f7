"""The metrics of a level, computed from its records: pure functions, one formula each.

Nothing measured is None, never 0. A failed request gives no token and no latency.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from orchestrator.benchmark.acceptance import Acceptance, from_counters, from_ranks, from_responses
from orchestrator.benchmark.intervals import FEWEST_BATCHES, batch_means_interval
from orchestrator.benchmark.records import Distribution, LevelMetrics, LevelRecord, RequestRecord

#: Pieces that a level's window is cut into at most.
_BATCHES = 64


def level_metrics(record: LevelRecord, ranks: Sequence[Mapping[str, Any] | None] = ()) -> LevelMetrics:
    """All metrics of a level. Cancelled requests are neither successes nor failures; `ranks` see `acceptance`."""
    over = [r for r in record.requests if r.error_kind != "cancelled"]
    measured = [r for r in over if not r.warmup]
    good = [r for r in measured if r.succeeded]
    failures = [r for r in over if not r.succeeded]
    duration_s = record.span_s[1] - record.span_s[0]
    tokens = _total(r.output_tokens for r in good)
    window_s = None if record.window_s is None else record.window_s[1] - record.window_s[0]
    accepted = acceptance(record, ranks)
    return LevelMetrics(
        load=record.load,
        requests_total=len(measured),
        requests_failed=len(measured) - len(good),
        window_s=window_s,
        duration_s=duration_s,
        output_tokens_per_s=window_tokens_per_s(good, record.window_s),
        output_tokens_per_s_half_width=window_half_width(good, record.window_s),
        output_tokens_per_s_whole=_rate(tokens, duration_s),
        requests_per_s=_rate(len(good) or None, duration_s),
        ttft_ms=distribution(_ms(ttft_s(r) for r in good)),
        tpot_ms=distribution(_ms(tpot_s(r) for r in good)),
        itl_ms=distribution(_ms(gap for r in good for gap in gaps_s(r))),
        e2e_ms=distribution(_ms(r.finished_s - r.started_s for r in good)),
        accept_length=accepted.length if accepted else None,
        accept_source=accepted.source if accepted else None,
        accept_partial=accepted.partial if accepted else None,
        prompt_tokens=_total(r.prompt_tokens for r in good),
        cached_tokens=_total(r.cached_tokens for r in good),
        output_tokens=tokens,
        first_error=min(failures, key=lambda r: r.finished_s).error if failures else None,
        errors_by_kind=dict(Counter(r.error_kind or "unknown" for r in failures)),
    )


def window_tokens_per_s(requests: Iterable[RequestRecord], window_s: tuple[float, float] | None) -> float | None:
    """Output tokens received inside the window (after its start, up to its end), per second of it.

    A request that began before the window or ends after it counts with the tokens that came inside.
    """
    if window_s is None:
        return None
    start_s, end_s = window_s
    tokens = sum(_tokens_until(r, end_s) - _tokens_until(r, start_s) for r in requests)
    return _rate(tokens or None, end_s - start_s)


def window_half_width(requests: Sequence[RequestRecord], window_s: tuple[float, float] | None) -> float | None:
    """Half of the 95 % interval of `window_tokens_per_s`, by batch means: what this one start's own unrest makes of it.

    None for fewer than 32 events in the window. How much the next start would differ is not in it.
    """
    if window_s is None:
        return None
    start_s, end_s = window_s
    events = sum(_events_until(r, end_s) - _events_until(r, start_s) for r in requests)
    # At least four events in each on average, so that where they fall does not count; a power of two, to be halved.
    batches = min(_BATCHES, 2 ** int(math.log2(max(1, events // 4))))
    if batches < FEWEST_BATCHES or end_s <= start_s:
        return None
    length_s = (end_s - start_s) / batches
    until = [math.fsum(_tokens_until(r, start_s + n * length_s) for r in requests) for n in range(batches + 1)]
    found = batch_means_interval([(later - earlier) / length_s for earlier, later in pairwise(until)])
    return None if found is None else found.high - found.mean


def _events_until(request: RequestRecord, at_s: float) -> int:
    return bisect.bisect_right(request.event_s, at_s)


def _tokens_until(request: RequestRecord, at_s: float) -> float:
    events = _events_until(request, at_s)
    return request.event_tokens[events - 1] if events else 0.0


def ttft_s(request: RequestRecord) -> float | None:
    """Time to first token: sent to the first event with output."""
    return request.event_s[0] - request.started_s if request.event_s else None


def tpot_s(request: RequestRecord) -> float | None:
    """Time per output token after the first; None for an answer of one token or in one event."""
    tokens = request.output_tokens or 0
    if tokens < 2 or len(request.event_s) < 2:
        return None
    return (request.event_s[-1] - request.event_s[0]) / (tokens - 1)


def gaps_s(request: RequestRecord) -> list[float]:
    """Gaps between events. An event is a chunk, not a token."""
    return [later - earlier for earlier, later in pairwise(request.event_s)]


def acceptance(record: LevelRecord, ranks: Sequence[Mapping[str, Any] | None] = ()) -> Acceptance | None:
    """Acceptance length by the best source there is; `ranks` as /server_info tells them after the level."""
    told = ((r.output_tokens, r.spec_verify_steps) for r in record.requests if r.succeeded and not r.warmup)
    return from_counters(record.counters_before, record.counters_after) or from_responses(told) or from_ranks(ranks)


def distribution(values: Iterable[float]) -> Distribution | None:
    """Mean and percentiles by linear interpolation between the closest ranks; None for no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Distribution(
        math.fsum(ordered) / len(ordered),
        _percentile(ordered, 50),
        _percentile(ordered, 90),
        _percentile(ordered, 99),
    )


def metric_value(metrics: LevelMetrics, name: str, stat: str | None = None) -> float | None:
    """One metric by name: ("ttft_ms", "p99") or ("output_tokens_per_s", None). None where not measured.

    Raises ValueError for a name or statistic that does not exist.
    """
    if name not in LevelMetrics.__dataclass_fields__:
        raise ValueError(f"there is no metric {name!r}")
    value = getattr(metrics, name)
    if value is None:
        return None
    if isinstance(value, Distribution):
        if stat not in Distribution.__dataclass_fields__:
            raise ValueError(f"{name} has no statistic {stat!r}; it has mean, p50, p90, p99")
        return float(getattr(value, stat))
    if stat is not None or not isinstance(value, int | float):
        raise ValueError(f"{name} has no statistic {stat!r}")
    return float(value)


def _percentile(ordered: Sequence[float], percent: float) -> float:
    rank = (len(ordered) - 1) * percent / 100
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def _rate(count: float | None, seconds: float) -> float | None:
    return count / seconds if count is not None and seconds > 0 else None


def _ms(seconds: Iterable[float | None]) -> list[float]:
    return [s * 1000 for s in seconds if s is not None]


def _total(counts: Iterable[int | None]) -> int | None:
    present = [c for c in counts if c is not None]
    return sum(present) if present else None
