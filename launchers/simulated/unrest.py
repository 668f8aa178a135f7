"""No two starts of a server are alike, and no two steps: where memory landed, clocks, what else the machine does. Pure.

How much is the profile's, relative to the performance model's times, which stay the mean.
"""

from __future__ import annotations

import random

from launchers.simulated.engine import StepTimes
from launchers.simulated.profile import Unrest


class RestlessTimes:
    """The step times of one start: its own pace, and each step's jitter. Both are lognormal."""

    def __init__(self, times: StepTimes, unrest: Unrest, rng: random.Random) -> None:
        """`rng` draws the pace of this start at once."""
        self._times = times
        self._step_sd = unrest.step_sd
        self._rng = rng
        #: What every step of this start is stretched by.
        self.pace = rng.lognormvariate(0.0, unrest.start_sd)

    @property
    def speculative(self) -> bool:
        """Whether a decode step drafts and verifies."""
        return self._times.speculative

    def prefill_s(self, new_tokens: int, requests: int) -> float:
        """One prefill batch."""
        return self._stretched(self._times.prefill_s(new_tokens, requests))

    def decode_s(self, batch: int, context_tokens: int) -> float:
        """One decode step."""
        return self._stretched(self._times.decode_s(batch, context_tokens))

    def accept_tokens(self, rng: random.Random) -> int:
        """Tokens one request gains in one step."""
        return self._times.accept_tokens(rng)

    def _stretched(self, seconds: float) -> float:
        return seconds * self.pace * (self._rng.lognormvariate(0.0, self._step_sd) if self._step_sd else 1.0)
