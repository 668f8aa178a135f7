"""Whether a level's numbers may be compared, and why not. Pure.

A level is invalid where what it measured is something else than the server under the load that was asked for: requests
that failed, a prefix cache that held the prompts, the load generator at its own limit, a server that began anew, or
one that was offered more than it can do; and where it measured nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from orchestrator.benchmark.counters import Flush, delta, restarted
from orchestrator.benchmark.records import LevelMetrics
from orchestrator.workload import Workload

#: flushed: the flush was confirmed (status 200 while idle); unique: it was not, but (almost) no prompt token was found
#: cached; warm: some were; unknown: the flush was not confirmed, and nobody tells what was cached.
CacheState = Literal["flushed", "unique", "warm", "unknown"]

#: Above this share of prompt tokens found in the prefix cache, a level that no confirmed flush preceded is warm:
#: prompts share no more than the tokens they begin with.
MAX_CACHED_SHARE = 0.05
#: Above this share of failed requests a level's numbers describe the failures: what is refused costs no time.
MAX_FAILED_SHARE = 0.01
#: Of an open loop's requests, by how many the number in flight may grow.
_FALLEN_BEHIND = 0.05


def failed_share(metrics: LevelMetrics) -> float:
    """Failed requests over all measured ones; 0 where there was none."""
    return metrics.requests_failed / metrics.requests_total if metrics.requests_total else 0.0


def server_failed(
    metrics: LevelMetrics, gave_up: str | None, before: Mapping[str, float], after: Mapping[str, float]
) -> str | None:
    """Why the server is to blame that a level is invalid: it failed requests, or began anew. None where it is not.

    `gave_up` is why the level was given up, see `LevelRecord`; a level without measured requests blames nobody.
    """
    if gave_up is not None:
        return f"the level was given up: {gave_up}"
    if failed_share(metrics) > MAX_FAILED_SHARE:
        first = f": {metrics.first_error}" if metrics.first_error else ""
        return f"{metrics.requests_failed} of {metrics.requests_total} requests failed{first}"
    fell = restarted(before, after)
    return None if fell is None else f"the server was started anew within the level ({fell})"


def unmeasured(metrics: LevelMetrics) -> str | None:
    """Why nothing was measured, though the level ran to its end; None where something was."""
    if metrics.requests_total:
        return None
    failed = f" (before, requests failed: {metrics.first_error})" if metrics.first_error else ""
    if metrics.load.closed:
        return f"no request was measured{failed}"
    return (
        f"no request's turn came within the window, between the end of the warm-up and level.max_s{failed}: give a "
        "longer max_s, or more requests per second"
    )


def invalid_reason(
    metrics: LevelMetrics,
    gave_up: str | None,
    state: CacheState,
    client_limited: str | None,
    before: Mapping[str, float],
    after: Mapping[str, float],
) -> str | None:
    """Why the level's numbers may not be compared, every reason there is; None where they may.

    `gave_up`: see `server_failed`. `client_limited` is what `client_limit` said. What is not known (of a file of an
    earlier version, or a level too short to tell) is no reason, but for the cache.
    """
    found = []
    if (failure := server_failed(metrics, gave_up, before, after)) is not None:
        found.append(failure)
    if gave_up is None and (nothing := unmeasured(metrics)) is not None:
        found.append(nothing)
    if state == "warm":
        found.append("prompts were in the prefix cache before")
    elif state == "unknown":
        found.append("the flush of the prefix cache was not confirmed, and the server does not tell what was cached")
    if client_limited is not None:
        found.append(client_limited)
    if (behind := overloaded(metrics)) is not None:
        found.append(behind)
    return "; ".join(found) or None


def overloaded(metrics: LevelMetrics) -> str | None:
    """Why an open loop's figures are those of its length: the server fell behind what was offered. None where not.

    The number in flight grew by more than a twentieth of the requests, and beyond chance: of arrivals by Poisson it is
    one of its own root, at either end.
    """
    opened, closed = metrics.in_flight_at_open, metrics.in_flight_at_close
    if opened is None or closed is None:
        return None
    grown = closed - opened
    if grown <= max(_FALLEN_BEHIND * metrics.requests_total, 3 * math.sqrt(opened + closed)):
        return None
    return (
        f"the server fell behind the offered load: {opened} requests were in flight at the window's start, {closed} at "
        "its end, so that latencies grow with its length"
    )


def client_limit(metrics: LevelMetrics, workload: Workload) -> str | None:
    """Why the load generator, not the server, is what was measured; None where it is not, or nobody knows."""
    rate, send_lag_ms = metrics.load.request_rate, metrics.send_lag_ms_p99
    cpu, lag_ms = metrics.client_cpu_share, metrics.client_lag_ms
    found = []
    if cpu is not None and cpu > workload.level.max_client_cpu:
        found.append(f"the load generator was the limit: it used {cpu:.2f} of its core")
    if lag_ms is not None and lag_ms > workload.level.max_client_lag_ms:
        found.append(f"the load generator's event loop ran {lag_ms:.0f} ms late (p99)")
    if rate is not None and send_lag_ms is not None and send_lag_ms > workload.arrivals.lag_limit_ms(rate):
        found.append(f"the load generator fell behind its schedule: it sent {send_lag_ms:.0f} ms late (p99)")
    return "; ".join(found) or None


def cache_state(
    flush: Flush, metrics: LevelMetrics, before: Mapping[str, float], after: Mapping[str, float]
) -> CacheState:
    """State of the prefix cache before a level, from the flush and from what the level found cached.

    The answers tell cached tokens where the server reports them, its counters otherwise.
    """
    if flush == "flushed":
        return "flushed"
    cached: float | None = metrics.cached_tokens
    prompt: float | None = metrics.prompt_tokens
    if cached is None:
        cached = delta(before, after, "cached_tokens_total")
        prompt = delta(before, after, "prompt_tokens_total")
    if cached is None or not prompt:
        return "unknown"
    return "warm" if cached / prompt > MAX_CACHED_SHARE else "unique"
