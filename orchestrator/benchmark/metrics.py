"""The metrics of a level, computed from its records: pure functions, one formula each.

Nothing measured is None, never 0. A failed request gives no token and no latency. Throughput is what came inside the
window, of a closed loop without the part of a wave that it begins with, whenever its request was sent. Latencies are
those of requests that ended inside: later ones saw the load fall.

Sources of the formulas: TTFT, TPOT, ITL and E2E as in sglang.bench_serving and vLLM's benchmark_serving; normalized
latency as in Orca (OSDI '22) and vLLM (SOSP '23); goodput as in DistServe (OSDI '24).
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.benchmark.acceptance import Acceptance, from_counters, from_ranks, from_responses
from orchestrator.benchmark.counters import delta
from orchestrator.benchmark.distribution import Counts, Values, distribution, weighted_distribution
from orchestrator.benchmark.intervals import FEWEST_BATCHES, batch_means_interval
from orchestrator.benchmark.precision import batches_of
from orchestrator.benchmark.records import Distribution, LevelMetrics, LevelRecord, RequestRecord
from orchestrator.benchmark.waves import Window, wave_edges, wave_interval
from orchestrator.workload import Slo

#: How much of a request may lie after the window: users in step end a little after the first of them.
_LATE_SHARE = 0.05


def level_metrics(
    record: LevelRecord, ranks: Sequence[Mapping[str, Any] | None] = (), slo: Slo | None = None
) -> LevelMetrics:
    """All metrics of a level. Cancelled requests are neither successes nor failures; `ranks` see `acceptance`.

    Goodput is None without `slo`.
    """
    over = [r for r in record.requests if r.error_kind != "cancelled"]
    measured = [r for r in over if not r.warmup]
    whole = [r for r in over if r.succeeded]
    good = [r for r in measured if r.succeeded]
    failures = [r for r in over if not r.succeeded]
    duration_s = record.span_s[1] - record.span_s[0]
    tokens, prompts = _total(r.output_tokens for r in good), _total(r.prompt_tokens for r in good)
    window, users = record.window_s, record.load.concurrency
    edges_s = wave_edges((r.finished_s for r in whole), window, users) if window and users else []
    steady = (edges_s[0], edges_s[-1]) if edges_s else window
    seen = ended_inside(measured, window, users or 1)
    seen_whole = [r for r in seen if r.succeeded]
    accepted = acceptance(record, ranks)
    before, after = record.counters_before, record.counters_after
    lag = distribution(_ms(r.started_s - r.targeted_s for r in measured if r.targeted_s is not None))
    conduct = record.conduct
    gaps, tokens_of_gaps = _gaps_inside(whole if window else good, window)
    return LevelMetrics(
        load=record.load,
        requests_total=len(measured),
        requests_failed=len(measured) - len(good),
        window_s=None if steady is None else steady[1] - steady[0],
        duration_s=duration_s,
        output_tokens_per_s=window_tokens_per_s(whole, steady),
        output_tokens_per_s_half_width=window_half_width(whole, steady, edges_s),
        output_tokens_per_s_whole=_rate(tokens, duration_s),
        total_tokens_per_s=window_total_tokens_per_s(whole, steady),
        total_tokens_per_s_whole=_rate(None if tokens is None or prompts is None else tokens + prompts, duration_s),
        requests_per_s=_rate(len(good) or None, duration_s),
        offered_requests_per_s=_in_window(
            (r.started_s if r.targeted_s is None else r.targeted_s for r in over), steady
        ),
        completed_requests_per_s=_in_window((r.finished_s for r in whole), steady) if whole else None,
        goodput_requests_per_s=goodput(measured, steady, slo, closed=record.load.closed),
        slo_attainment=attainment(seen, slo),
        in_flight_at_open=None if users or window is None else in_flight(over, window[0]),
        in_flight_at_close=None if users or window is None else in_flight(over, window[1]),
        ttft_ms=distribution(_ms(ttft_s(r) for r in begun_inside(good, window, users or 1))),
        tpot_ms=distribution(_ms(tpot_s(r) for r in seen_whole)),
        itl_ms=distribution(1000 * gaps),
        itl_per_token_ms=weighted_distribution(1000 * gaps / tokens_of_gaps, tokens_of_gaps),
        e2e_ms=distribution(_ms(r.finished_s - r.started_s for r in seen_whole)),
        normalized_latency_ms=distribution(_ms(normalized_latency_s(r) for r in seen_whole)),
        queue_time_ms=queue_time_ms(before, after),
        accept_length=accepted.length if accepted else None,
        accept_source=accepted.source if accepted else None,
        accept_partial=accepted.partial if accepted else None,
        prompt_tokens=prompts,
        cached_tokens=_total(r.cached_tokens for r in good),
        output_tokens=tokens,
        first_error=min(failures, key=lambda r: r.finished_s).error if failures else None,
        errors_by_kind=dict(Counter(r.error_kind or "unknown" for r in failures)),
        counter_requests=_count(delta(before, after, "num_requests_total")),
        counter_prompt_tokens=_count(delta(before, after, "prompt_tokens_total")),
        counter_output_tokens=_count(delta(before, after, "generation_tokens_total")),
        **_client_counts(record.requests),
        send_lag_ms_p99=lag.p99 if lag else None,
        warmup_s=conduct.warmup_s,
        warmup_stable=conduct.warmup_stable,
        ended_by=conduct.ended_by,
        client_cpu_share=conduct.client_cpu_share,
        client_lag_ms=conduct.client_lag_ms,
    )


def window_tokens_per_s(requests: Iterable[RequestRecord], window_s: Window | None) -> float | None:
    """Output tokens that came inside the window, per second of it.

    A request that began before the window or ends after it counts with what came inside; the tokens of an event that
    came after the edge in the share of the gap before it, since an edge among the events of one step would count them
    by chance.
    """
    if window_s is None:
        return None
    start, end = map(float, _tokens_by(requests, window_s))
    return _rate(end - start or None, window_s[1] - window_s[0])


def window_total_tokens_per_s(requests: Sequence[RequestRecord], window_s: Window | None) -> float | None:
    """Output tokens as `window_tokens_per_s`, and the prompts whose first output came inside: by then they are read.

    None where an answer did not tell its prompt's tokens.
    """
    output = window_tokens_per_s(requests, window_s)
    if window_s is None or output is None:
        return None
    start_s, end_s = window_s
    inside = [r.prompt_tokens for r in requests if r.event_s and start_s < r.event_s[0] <= end_s]
    prompts = [tokens for tokens in inside if tokens is not None]
    return output + sum(prompts) / (end_s - start_s) if len(prompts) == len(inside) else None


def window_half_width(
    requests: Sequence[RequestRecord], window_s: Window | None, edges_s: Sequence[float] = ()
) -> float | None:
    """Half of the 95 % interval of `window_tokens_per_s`: what this one start's own unrest makes of it.

    By the means of equal pieces of the window, or of the waves between `edges_s`, whichever tells more: the first of
    users in step sees their waves for unrest, and of waves there may be few. None for fewer than 32 events in the
    window and fewer than three waves. How much the next start would differ is not in it.
    """
    if window_s is None or window_s[1] <= window_s[0]:
        return None
    batches = batches_of(sum(_events_until(r, window_s[1]) - _events_until(r, window_s[0]) for r in requests))
    found = []
    if batches >= FEWEST_BATCHES:
        found.append(batch_means_interval(_rates(requests, np.linspace(*window_s, batches + 1))))
    if len(edges_s) > 1:
        found.append(wave_interval(_rates(requests, np.asarray(edges_s))))
    return min((interval.high - interval.mean for interval in found if interval is not None), default=None)


def ended_inside(measured: Sequence[RequestRecord], window_s: Window | None, users: int) -> Sequence[RequestRecord]:
    """Those that ended inside the window, or not later than a twentieth of what they took; all where that is fewer
    than one of each user, or there is no window. By ends, not by beginnings: as many long ones as are in a long run.
    """
    if window_s is None:
        return measured
    start_s, end_s = window_s
    inside = [r for r in measured if start_s < r.finished_s <= end_s + _LATE_SHARE * _e2e_s(r)]
    return inside if len(inside) >= users else measured


def begun_inside(good: Sequence[RequestRecord], window_s: Window | None, users: int) -> Sequence[RequestRecord]:
    """Those whose first output came inside the window; all where that is fewer than one of each user, or there is no
    window.
    """
    if window_s is None:
        return good
    inside = [r for r in good if r.event_s and window_s[0] < r.event_s[0] <= window_s[1]]
    return inside if len(inside) >= users else good


def in_flight(requests: Iterable[RequestRecord], at_s: float) -> int:
    """Requests whose turn had come and that had not ended."""
    return sum((r.started_s if r.targeted_s is None else r.targeted_s) <= at_s < r.finished_s for r in requests)


def goodput(
    measured: Sequence[RequestRecord], window_s: Window | None, slo: Slo | None, *, closed: bool
) -> float | None:
    """Requests per second of the window that meet every objective: of a closed loop those that end inside it, of an
    open one those sent inside it. 0 where none does; None without objectives or window.
    """
    if slo is None or window_s is None or not measured:
        return None
    meeting = [r for r in measured if meets(r, slo)]
    if closed:
        return _in_window((r.finished_s for r in meeting), window_s)
    return _rate(len(meeting), window_s[1] - window_s[0])


def attainment(measured: Sequence[RequestRecord], slo: Slo | None) -> float | None:
    """Share of the measured requests that meet every objective, the failed ones among them."""
    if slo is None or not measured:
        return None
    return sum(meets(r, slo) for r in measured) / len(measured)


def meets(request: RequestRecord, slo: Slo) -> bool:
    """Whether the request succeeded within every bound. An answer of one token has no TPOT to be bounded."""
    taken_s = ((ttft_s(request), slo.ttft_ms), (tpot_s(request), slo.tpot_ms), (_e2e_s(request), slo.e2e_ms))
    return request.succeeded and all(
        bound_ms is None or seconds is None or 1000 * seconds <= bound_ms for seconds, bound_ms in taken_s
    )


def _events_until(request: RequestRecord, at_s: float) -> int:
    return bisect.bisect_right(request.event_s, at_s)


def _tokens_by(requests: Iterable[RequestRecord], at_s: Sequence[float] | Values) -> Values:
    """Output tokens of all requests by each time: those of an event come evenly over the gap before it, the first ones
    at once.
    """
    total = np.zeros(len(at_s))
    for request in requests:
        if request.event_s:
            total += np.interp(at_s, request.event_s, request.event_tokens, left=0.0)
    return total


def _rates(requests: Iterable[RequestRecord], edges_s: Values) -> list[float]:
    """Output tokens per second from each edge to the next."""
    return [float(rate) for rate in np.diff(_tokens_by(requests, edges_s)) / np.diff(edges_s)]


def _gaps_inside(requests: Sequence[RequestRecord], window_s: Window | None) -> tuple[Values, Counts]:
    """The gaps that end inside the window, all where there is none, and the tokens that came at the end of each."""
    gaps, tokens = _joined(map(gaps_s, requests), np.float64), _joined(map(tokens_per_gap, requests), np.int64)
    if window_s is None:
        return gaps, tokens
    ends_s = _joined((np.asarray(r.event_s[1:], np.float64) for r in requests), np.float64)
    inside = (window_s[0] < ends_s) & (ends_s <= window_s[1])
    return gaps[inside], tokens[inside]


def ttft_s(request: RequestRecord) -> float | None:
    """Time to first token: sent to the first event with output."""
    return request.event_s[0] - request.started_s if request.event_s else None


def tpot_s(request: RequestRecord) -> float | None:
    """Time per output token after the first; None for an answer of one token or in one event."""
    tokens = request.output_tokens or 0
    if tokens < 2 or len(request.event_s) < 2:
        return None
    return (request.event_s[-1] - request.event_s[0]) / (tokens - 1)


def normalized_latency_s(request: RequestRecord) -> float | None:
    """Time of the whole request over its output tokens: prefill and queue included, unlike TPOT."""
    return _e2e_s(request) / request.output_tokens if request.output_tokens else None


def gaps_s(request: RequestRecord) -> Values:
    """Gaps between events. An event is a chunk, not a token."""
    return np.diff(np.asarray(request.event_s, np.float64))


def tokens_per_gap(request: RequestRecord) -> Counts:
    """Tokens that came at the end of each gap: a gap over them is the inter-token latency, so many times.

    As sglang.bench_serving has it: a chunk of n tokens is n latencies of a n-th of its gap. Where the server told no
    count per event, the tokens of one are a mean and rounded, to one at least.
    """
    return np.maximum(1, np.rint(np.diff(np.asarray(request.event_tokens, np.float64)))).astype(np.int64)


def queue_time_ms(before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    """Mean time that requests waited in the server's queue, by its histogram, warm-up included; None where not told."""
    seconds = delta(before, after, "queue_time_seconds_sum")
    count = delta(before, after, "queue_time_seconds_count")
    return 1000 * seconds / count if seconds is not None and count else None


def accept_rate(accept_length: float | None, draft_steps: int | None) -> float | None:
    """Share of the draft steps of a verify step that are accepted: (accept length - 1) / draft steps, 1 at most.

    The one beside them is the token that the model itself gives. A request's first token comes of no verify step
    and is in the length, by which a perfect drafter comes out a little above 1.
    """
    if accept_length is None or not draft_steps:
        return None
    return min(1.0, max(0.0, (accept_length - 1) / draft_steps))


def acceptance(record: LevelRecord, ranks: Sequence[Mapping[str, Any] | None] = ()) -> Acceptance | None:
    """Acceptance length by the best source there is; `ranks` as /server_info tells them after the level."""
    told = ((r.output_tokens, r.spec_verify_steps) for r in record.requests if r.succeeded and not r.warmup)
    return from_counters(record.counters_before, record.counters_after) or from_responses(told) or from_ranks(ranks)


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


def _client_counts(requests: Sequence[RequestRecord]) -> dict[str, int | None]:
    """What the load generator counted over the level whole; SGLang 0.5.23 counts a request when it ends, so those
    that failed or were cancelled, of which it is not known what the server counted, leave nothing to be compared.
    """
    whole = requests and all(r.succeeded and not r.tokens_estimated for r in requests)
    prompts = [r.prompt_tokens for r in requests if r.prompt_tokens is not None]
    return {
        "client_requests": len(requests) if whole else None,
        "client_prompt_tokens": sum(prompts) if whole and len(prompts) == len(requests) else None,
        "client_output_tokens": sum(r.output_tokens or 0 for r in requests) if whole else None,
    }


def _joined(parts: Iterable[npt.NDArray[Any]], kind: type) -> npt.NDArray[Any]:
    return np.concatenate([np.empty(0, kind), *parts])


def _count(value: float | None) -> int | None:
    return None if value is None else round(value)


def _e2e_s(request: RequestRecord) -> float:
    return request.finished_s - request.started_s


def _in_window(stamps_s: Iterable[float], window_s: Window | None) -> float | None:
    """Stamps per second of the window, from after its start up to its end."""
    if window_s is None:
        return None
    start_s, end_s = window_s
    return _rate(sum(start_s < s <= end_s for s in stamps_s), end_s - start_s)


def _rate(count: float | None, seconds: float) -> float | None:
    return count / seconds if count is not None and seconds > 0 else None


def _ms(seconds: Iterable[float | None]) -> list[float]:
    return [s * 1000 for s in seconds if s is not None]


def _total(counts: Iterable[int | None]) -> int | None:
    present = [c for c in counts if c is not None]
    return sum(present) if present else None
