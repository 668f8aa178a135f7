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
from orchestrator.benchmark.datasets.prompts import Prompts
from orchestrator.benchmark.records import LevelMetrics, LevelRecord
from orchestrator.workload import Api, Workload

#: warm: more prompt tokens were found cached than the workload has in common, flush or not; flushed: the flush was
#: confirmed (status 200 while idle); unique: it was not, but no more was found cached than that; unknown: the flush was
#: not confirmed, and nobody tells what was cached.
CacheState = Literal["flushed", "unique", "warm", "unknown"]

#: Above this share of prompt tokens found in the prefix cache a level is warm, beyond what its workload has in common:
#: prompts share no more than the tokens they begin with, which are so many where they are short, and in a chat those of
#: the template's own words before them too.
MAX_CACHED_SHARE = 0.05
_BEGINNING_TOKENS, _TEMPLATE_TOKENS = 8, 128
#: Above this share of failed requests a level's numbers describe the failures: what is refused costs no time.
MAX_FAILED_SHARE = 0.01
#: Of an open loop's requests, by how many the number in flight may grow.
_FALLEN_BEHIND = 0.05


def failed_share(metrics: LevelMetrics) -> float:
    """Failed requests over all measured ones; 0 where there was none."""
    return metrics.requests_failed / metrics.requests_total if metrics.requests_total else 0.0


def server_failed(
    metrics: LevelMetrics, before: Mapping[str, float], after: Mapping[str, float], gave_up: str | None = None
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
    if metrics.ended_by == "prompts" and metrics.window_s is None:
        return "its prompts were used up before it had warmed up: give more of them, or measure less (workload.level)"
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
    state: CacheState,
    client_limited: str | None,
    before: Mapping[str, float],
    after: Mapping[str, float],
    gave_up: str | None = None,
) -> str | None:
    """Why the level's numbers may not be compared, every reason there is; None where they may.

    `gave_up`: see `server_failed`. `client_limited` is what `client_limit` said. What is not known (of a file of an
    earlier version, or a level too short to tell) is no reason, but for the cache.
    """
    found = []
    if (failure := server_failed(metrics, before, after, gave_up)) is not None:
        found.append(failure)
    if gave_up is None and (nothing := unmeasured(metrics)) is not None:
        found.append(nothing)
    if state == "warm":
        share = cached_share(metrics, before, after)
        told = "" if share is None else f": {100 * share:.0f} % of their tokens were found there"
        found.append(f"prompts were in the prefix cache before{told}")
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
    flush: Flush,
    metrics: LevelMetrics,
    before: Mapping[str, float],
    after: Mapping[str, float],
    allowed: float = MAX_CACHED_SHARE,
) -> CacheState:
    """State of the prefix cache before a level, from the flush and from what the level found cached.

    `allowed` is the share of prompt tokens that it may find: see `allowed_share`.
    """
    share = cached_share(metrics, before, after)
    if share is not None and share > allowed:
        return "warm"
    if flush == "flushed":
        return "flushed"
    return "unknown" if share is None else "unique"


def cached_share(metrics: LevelMetrics, before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    """Share of the prompt tokens that were found cached; None where nobody tells.

    The answers tell cached tokens where the server reports them, its counters otherwise.
    """
    cached: float | None = metrics.cached_tokens
    prompt: float | None = metrics.prompt_tokens
    if cached is None:
        cached = delta(before, after, "cached_tokens_total")
        prompt = delta(before, after, "prompt_tokens_total")
    return None if cached is None or not prompt else cached / prompt


def allowed_share(record: LevelRecord, prompts: Prompts | None, api: Api) -> float:
    """The share of prompt tokens that a level may find cached though it began cold: what its prompts have in common by
    themselves (a shared prefix, or that of a file), those that came again as `reuse` asks, and their first tokens.
    """
    measured = [r for r in record.requests if r.succeeded and not r.warmup and r.prompt_tokens]
    tokens = sum(r.prompt_tokens or 0 for r in measured)
    if not tokens:
        return MAX_CACHED_SHARE
    expected = 0.0
    if prompts is not None:
        again = math.inf if prompts.unique is None else prompts.unique
        expected = (
            sum((1.0 if r.index >= again else prompts.shared) * (r.prompt_tokens or 0) for r in measured) / tokens
        )
    beginning = _BEGINNING_TOKENS
    if api == "chat":
        # What every prompt found is the template's, within reason; where answers do not tell it, as much as that.
        beginning += min(
            _TEMPLATE_TOKENS, *(_TEMPLATE_TOKENS if r.cached_tokens is None else r.cached_tokens for r in measured)
        )
    return expected + max(MAX_CACHED_SHARE, beginning * len(measured) / tokens)
