"""When the requests of an open loop are to be sent: seeded, whatever the server does. Pure."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from orchestrator.workload import Arrivals


def arrivals_s(arrivals: Arrivals, request_rate: float, key: str) -> Iterator[float]:
    """Endless turns in seconds from the beginning of the level that `key` names; the same arguments, the same turns.

    The gaps have the mean 1 / `request_rate` and are independent, of gamma distribution with the shape `burstiness`
    (1 is a Poisson process, below 1 comes in bursts, above 1 evens out), as in the benchmarks of SGLang and vLLM:
    `gamma(shape=burstiness, scale=1 / (request_rate * burstiness))`. `constant` has equal gaps.
    """
    if arrivals.kind == "constant":
        return (n / request_rate for n in itertools.count())
    rng = random.Random(f"{arrivals.seed}/{key}")
    shape = arrivals.burstiness
    gaps = (rng.gammavariate(shape, 1.0 / (request_rate * shape)) for _ in itertools.count())
    return itertools.accumulate(gaps)
