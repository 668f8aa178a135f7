"""A closed loop over the pure performance model: what a load generator would measure, by calculation."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from launchers.sglang.rules import judge
from launchers.simulated.performance import PerformanceModel
from launchers.simulated.profile import Profile, Unrest
from launchers.simulated.unrest import RestlessTimes


@dataclass
class _Request:
    user: int
    number: int
    asked_s: float
    admitted_s: float = 0.0
    first_s: float = 0.0
    done: int = 0


@dataclass(frozen=True)
class Measured:
    output_tokens_per_s: float
    accept_length: float
    #: Means over the measured requests, the first of each user left out.
    queue_ms: float
    ttft_ms: float
    tpot_ms: float
    e2e_ms: float


def model_of(profile: Profile, flags: Mapping[str, Any], env: Mapping[str, str]) -> tuple[PerformanceModel, int]:
    """The model of a configuration after the server's own rewrites, and how many requests run at once."""
    everything = {"tp-size": profile.hardware.gpus, "model-path": profile.model, **flags}
    verdict = judge(everything, env)
    assert verdict.rejected is None, verdict.rejected
    asked = verdict.canonical_flags.get("max-running-requests", profile.engine.default_max_running_requests)
    model = PerformanceModel(profile, verdict.canonical_flags, verdict.canonical_env)
    return model, min(int(asked), profile.engine.kv_tokens // 2)


def closed_loop(
    profile: Profile,
    flags: Mapping[str, Any],
    env: Mapping[str, str],
    *,
    concurrency: int,
    prompt_tokens: int,
    output_tokens: int,
    requests_per_user: int = 3,
    seed: int = 0,
    pace: float = 1.0,
    restless: bool = False,
) -> Measured:
    """Prefill first, whole prompts up to the chunk size, then decode steps; each user asks anew at once.

    Throughput is over the window from the moment every user is past its first request (the warm-up)
    until the first user has none left, as the load generator defines it. Every step is `pace` times as long; with
    `restless` this is one start among others, by the profile's unrest.
    """
    model, running_limit = model_of(profile, flags, env)
    rng = random.Random(seed)
    times = RestlessTimes(model, profile.unrest if restless else Unrest(), rng)
    per_batch = max(1, profile.engine.chunked_prefill_size // prompt_tokens)
    waiting = [_Request(user, 0, 0.0) for user in range(concurrency)]
    running: list[_Request] = []
    clock_s, left = 0.0, requests_per_user * concurrency
    warming = concurrency
    window: list[float] = []
    tokens, steps, gained_all = 0, 0, 0
    times_s: list[tuple[float, float, float, float]] = []

    def gain(request: _Request, gained: int) -> None:
        nonlocal tokens, warming, left
        gained = min(gained, output_tokens - request.done)
        request.done += gained
        tokens += gained * (len(window) == 1)
        if request.done < output_tokens:
            return
        running.remove(request)
        if request.number:
            decode_s = (clock_s - request.first_s) / (output_tokens - 1)
            asked_s = request.asked_s
            times_s.append((request.admitted_s - asked_s, request.first_s - asked_s, decode_s, clock_s - asked_s))
        if request.number == 0:
            warming -= 1
            if warming == 0:
                window.append(clock_s)
        if left:
            left -= 1
            waiting.append(_Request(request.user, request.number + 1, clock_s))
        elif len(window) == 1:
            window.append(clock_s)

    while len(window) < 2:
        batch = waiting[: min(per_batch, running_limit - len(running))]
        if batch:
            del waiting[: len(batch)]
            for request in batch:
                request.admitted_s = clock_s
            clock_s += pace * times.prefill_s(len(batch) * prompt_tokens, len(batch))
            running += batch
            for request in batch:
                request.first_s = clock_s
                gain(request, 1)
            continue
        context = sum(prompt_tokens + request.done for request in running)
        clock_s += pace * times.decode_s(len(running), context)
        for request in list(running):
            gained = model.accept_tokens(rng)
            gained_all, steps = gained_all + gained, steps + 1
            gain(request, gained)
    means_ms = [1000 * fmean(values) for values in zip(*times_s, strict=True)]
    return Measured(tokens / (window[1] - window[0]), gained_all / steps if steps else 1.0, *means_ms)
