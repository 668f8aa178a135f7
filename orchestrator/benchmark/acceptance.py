"""Acceptance length: output tokens per verify step of speculative decoding, bonus token included. Pure.

Three sources, the best first. The server's counters hold every token and every verify step of the window: in
SGLang 0.5.23 both are counted when a request finishes, in one process for all data-parallel ranks
(observability/metrics_collector.py). The answers tell the same per request. What the ranks say of themselves is a
mean since the last flush, refreshed every 40 steps, and a rank may say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.benchmark.counters import delta

Source = Literal["counters", "responses", "ranks"]


@dataclass(frozen=True, slots=True)
class Acceptance:
    """An acceptance length and where it comes from."""

    length: float
    source: Source
    #: Some data-parallel ranks said nothing: the mean is that of the others.
    partial: bool = False


def from_counters(before: Mapping[str, float], after: Mapping[str, float]) -> Acceptance | None:
    """Tokens over verify steps of the window; None where a counter is missing or fell (the server restarted)."""
    steps = delta(before, after, "spec_verify_calls_total")
    tokens = delta(before, after, "generation_tokens_total")
    return Acceptance(tokens / steps, "counters") if steps and tokens else None


def from_responses(told: Iterable[tuple[int | None, int | None]]) -> Acceptance | None:
    """From (output tokens, verify steps) of each answer; those that tell no steps are left out.

    The sum of tokens over the sum of steps, which weighs each answer by its steps: a mean of ratios would
    weigh short answers like long ones.
    """
    pairs = [(tokens, steps) for tokens, steps in told if tokens and steps]
    return Acceptance(sum(t for t, _ in pairs) / sum(s for _, s in pairs), "responses") if pairs else None


def from_ranks(states: Sequence[Mapping[str, Any] | None]) -> Acceptance | None:
    """The mean over the data-parallel ranks that tell one; `partial` where others do not."""
    told = [state.get("avg_spec_accept_length") if state else None for state in states]
    lengths = [float(v) for v in told if isinstance(v, int | float) and math.isfinite(v) and v > 0]
    if not lengths:
        return None
    return Acceptance(math.fsum(lengths) / len(lengths), "ranks", partial=len(lengths) < len(states))
