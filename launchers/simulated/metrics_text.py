"""/metrics: the engine's counters in the Prometheus text form, under SGLang 0.5.23's names and labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from launchers.simulated.engine import Engine
from launchers.simulated.settings import Settings
from launchers.simulated.statistics import Finished, Histogram

Labels = Mapping[str, str]


@dataclass(frozen=True)
class HttpCounts:
    """Requests by endpoint and method, responses by endpoint, method and status."""

    requests: Mapping[tuple[str, str], int]
    responses: Mapping[tuple[str, str, int], int]


def metrics_text(settings: Settings, engine: Engine, http: HttpCounts) -> str:
    """The page. Counters of requests grow when a request has finished, as SGLang's do."""
    page = _Page()
    model = {"engine_type": "unified", "model_name": settings.served_model_name}
    scheduler = model | {"moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}
    _requests(page, engine.statistics.by_streaming, model)
    _scheduler(page, settings, engine, scheduler)
    for (endpoint, method), count in http.requests.items():
        labels = {"endpoint": endpoint, "method": method}
        page.sample("http_requests_total", "counter", "HTTP requests by endpoint.", labels, count)
    for (endpoint, method, status), count in http.responses.items():
        labels = {"endpoint": endpoint, "method": method, "status_code": str(status)}
        page.sample("http_responses_total", "counter", "HTTP responses by status.", labels, count)
    return page.text()


def _requests(page: _Page, totals: Mapping[bool, Finished], model: Labels) -> None:
    streaming = {flag: {**model, "is_streaming": str(flag).lower()} for flag in totals}
    seen = {flag: done for flag, done in totals.items() if done.requests}
    counters = (
        ("prompt_tokens_total", "Prompt tokens of finished requests.", "prompt_tokens"),
        ("generation_tokens_total", "Output tokens of finished requests.", "generation_tokens"),
        ("cached_tokens_total", "Prompt tokens found in the prefix cache.", "cached_tokens"),
        ("num_requests_total", "Finished requests.", "requests"),
    )
    for name, text, field in counters:
        for flag, done in seen.items():
            page.sample(name, "counter", text, streaming[flag], getattr(done, field))
    verified = sum(done.verify_steps for done in seen.values())
    if verified:
        # The one counter without a label for streaming (metrics_collector.py of 0.5.23).
        page.sample("spec_verify_calls_total", "counter", "Verify steps of finished requests.", model, verified)
    histograms = (
        ("time_to_first_token_seconds", "Time to first token in seconds.", "ttft"),
        ("inter_token_latency_seconds", "Time between tokens in seconds.", "itl"),
        ("e2e_request_latency_seconds", "Time from arrival to last token in seconds.", "e2e"),
    )
    for name, text, field in histograms:
        for flag, done in seen.items():
            page.histogram(name, text, streaming[flag], getattr(done, field))


def _scheduler(page: _Page, settings: Settings, engine: Engine, labels: Labels) -> None:
    statistics, pool, tree = engine.statistics, engine.pool, settings.times.tree
    gauges: tuple[tuple[str, str, float], ...] = (
        ("max_total_num_tokens", "Size of the KV pool in tokens.", pool.capacity),
        ("page_size", "KV page size in tokens.", engine.config.page_size),
        ("context_len", "Longest context in tokens.", settings.limits.context_length),
        ("num_running_reqs", "Running requests.", engine.running_count),
        ("num_queue_reqs", "Requests in the waiting queue.", len(engine.waiting)),
        ("num_used_tokens", "KV tokens in use.", pool.used),
        ("token_usage", "Share of the KV pool in use.", pool.usage),
        ("kv_available_tokens", "Free KV tokens.", pool.free),
        ("kv_evictable_tokens", "KV tokens that are only cached.", pool.cache.evictable),
        ("kv_used_tokens", "KV tokens in use.", pool.used),
        ("cache_hit_rate", "Prefix cache hit rate of the last prefill batch.", statistics.cache_hit_rate),
        ("gen_throughput", "Output tokens per second, stale when idle.", statistics.gen_throughput),
        ("new_token_ratio", "Share of remaining output that is reserved.", engine.reserve.ratio),
        ("spec_accept_length", "Tokens per verify step, bonus included.", statistics.spec_accept_length),
        ("spec_accept_rate", "Accepted over proposed drafts.", statistics.spec_accept_rate),
        ("spec_num_steps", "Draft steps.", tree.steps if tree else 0),
        ("spec_num_draft_tokens", "Tokens verified per step.", tree.draft_tokens if tree else 0),
        ("is_cuda_graph", "Whether batches run in CUDA graphs.", float(settings.graphs)),
        ("num_retracted_reqs", "Retracted requests in the queue.", _retracted_waiting(engine)),
    )
    for name, text, value in gauges:
        page.sample(name, "gauge", text, labels, value)
    page.sample("num_retracted_requests_total", "counter", "Retractions.", labels, statistics.retracted)
    page.histogram("queue_time_seconds", "Time in the waiting queue.", labels, statistics.queue_time)


def _retracted_waiting(engine: Engine) -> int:
    return sum(1 for request in engine.waiting if request.retractions)


class _Page:
    def __init__(self) -> None:
        self._families: dict[str, list[str]] = {}

    def sample(self, name: str, kind: str, text: str, labels: Labels, value: float) -> None:
        self._family(name, kind, text).append(f"sglang:{name}{_braces(labels)} {float(value)}")

    def histogram(self, name: str, text: str, labels: Labels, histogram: Histogram) -> None:
        lines = self._family(name, "histogram", text)
        lines.append(f"sglang:{name}_sum{_braces(labels)} {float(histogram.sum)}")
        bounds = [*(str(float(b)) for b in histogram.bounds), "+Inf"]
        for bound, count in zip(bounds, histogram.cumulative(), strict=True):
            lines.append(f"sglang:{name}_bucket{_braces({**labels, 'le': bound})} {float(count)}")
        lines.append(f"sglang:{name}_count{_braces(labels)} {float(histogram.count)}")

    def _family(self, name: str, kind: str, text: str) -> list[str]:
        if name not in self._families:
            self._families[name] = [f"# HELP sglang:{name} {text}", f"# TYPE sglang:{name} {kind}"]
        return self._families[name]

    def text(self) -> str:
        return "".join(f"{line}\n" for lines in self._families.values() for line in lines)


def _braces(labels: Labels) -> str:
    return "{" + ",".join(_escaped(sorted(labels.items()))) + "}"


def _escaped(items: Iterable[tuple[str, str]]) -> Iterable[str]:
    for name, value in items:
        text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        yield f'{name}="{text}"'
