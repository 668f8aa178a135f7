"""The server's own counters, and the reset of its prefix cache between levels. The calls never raise."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from typing import Literal

import requests
from prometheus_client.parser import text_string_to_metric_families

_PREFIXES = ("sglang:", "sglang_")
_RISING = ("_total", "_count")
_COUNTERS = (*_RISING, "_sum")
_LEFT_OUT = ("_bucket", "_created")
_BUCKET = re.compile(r"[\w:]+_bucket\{")
#: Prometheus' own, of a server with one process; the only one kept that is not SGLang's.
START_TIME = "process_start_time_seconds"
#: Gauges that add up over the workers of a server (data-parallel ranks); of the others the largest is kept.
_ADDITIVE_GAUGES = frozenset(
    {"gen_throughput", "num_used_tokens", "kv_used_tokens", "kv_available_tokens", "kv_evictable_tokens"}
)

Flush = Literal["flushed", "unknown"]


def scrape(base_url: str, *, timeout_s: float = 5.0, api_key: str | None = None) -> dict[str, float]:
    """Counters and gauges of /metrics by name without prefix; {} where they are not to be had.

    Counters and the sums and counts of histograms are added up over labels. Values that are not finite
    are left out.
    """
    text = page(base_url, timeout_s=timeout_s, api_key=api_key)
    try:
        return {} if text is None else parse_metrics(text)
    except ValueError:
        return {}


def page(base_url: str, *, timeout_s: float = 5.0, api_key: str | None = None) -> str | None:
    """The text of /metrics; None where it is not to be had."""
    try:
        with _session(api_key) as session:
            answer = session.get(f"{base_url.rstrip('/')}/metrics", timeout=timeout_s)
        return answer.text if answer.status_code == 200 else None
    except requests.RequestException:
        return None


def parse_metrics(text: str) -> dict[str, float]:
    """The server's own metrics in Prometheus' text format, combined over labels.

    Raises ValueError for text of another format.
    """
    values: dict[str, float] = {}
    # Half of the lines, which are not kept, take most of the parser's time.
    wanted = "\n".join(line for line in text.split("\n") if not _BUCKET.match(line))
    for family in text_string_to_metric_families(wanted):
        for sample in family.samples:
            prefix = next((p for p in _PREFIXES if sample.name.startswith(p)), None)
            own = sample.name == START_TIME
            if (prefix is None and not own) or not math.isfinite(sample.value):
                continue
            name = sample.name[len(prefix or "") :]
            if name.endswith(_LEFT_OUT):
                continue
            old = values.get(name)
            if old is None:
                values[name] = sample.value
            elif _adds_up(name, family.type):
                values[name] = old + sample.value
            else:
                values[name] = max(old, sample.value)
    return values


def _adds_up(name: str, kind: str) -> bool:
    if name.endswith(_COUNTERS) or kind in ("counter", "histogram", "summary"):
        return True
    # num_running_reqs, num_queue_reqs and their like.
    return name.endswith("_reqs") or name in _ADDITIVE_GAUGES


def delta(before: Mapping[str, float], after: Mapping[str, float], name: str) -> float | None:
    """How far counter `name` went up; None where it is missing after, or fell (the server restarted).

    A counter that appears in between began at 0: Prometheus clients show one only once it has counted.
    An empty `before` is no scrape at all, and gives None.
    """
    if not before or name not in after:
        return None
    rise = after[name] - before.get(name, 0.0)
    return rise if rise >= 0 else None


def restarted(before: Mapping[str, float], after: Mapping[str, float]) -> str | None:
    """What shows that the server began anew in between; None where nothing does.

    Its process start time where it tells one, else a counter that fell: those of one process never do. The sum of a
    histogram may, of values below 0.
    """
    was, now = before.get(START_TIME), after.get(START_TIME)
    if was is not None and now is not None and was != now:
        return "its start time changed"
    for name, value in before.items():
        later = after.get(name, value)
        # Sums over ranks may differ in their last digits. Names come last: few values fall, and a report of a thousand
        # trials asks this of every level many times.
        if later < value and later < value - 1e-6 * abs(value) and name.endswith(_RISING):
            return f"its counter {name} fell"
    return None


def flush_cache(
    base_url: str,
    *,
    deadline_s: float = 30.0,
    poll_s: float = 0.2,
    timeout_s: float = 30.0,
    api_key: str | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Flush:
    """Empty the prefix cache: `flushed` when the server confirmed it, else `unknown`.

    SGLang 0.5.23 answers 200 when it flushed and 400 while requests are in flight, with the same text: the
    status alone tells. A busy server is asked again until `deadline_s` is over.
    """
    end = clock() + deadline_s
    with _session(api_key) as session:
        while True:
            try:
                answer = session.post(f"{base_url.rstrip('/')}/flush_cache", timeout=timeout_s)
            except requests.RequestException:
                return "unknown"
            if answer.status_code == 200:
                return "flushed"
            if answer.status_code != 400 or clock() >= end:
                return "unknown"
            sleep(poll_s)


def _session(api_key: str | None) -> requests.Session:
    session = requests.Session()
    # No proxies and no .netrc: the server is on this node, and its key is given or there is none.
    session.trust_env = False
    if api_key is not None:
        session.headers["Authorization"] = f"Bearer {api_key}"
    return session
