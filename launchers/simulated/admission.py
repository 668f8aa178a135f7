"""Which waiting requests a prefill batch takes: token budgets, chunks, and tokens kept for those running."""

from __future__ import annotations

from collections.abc import Sequence

from launchers.simulated.kv_pool import KVPool
from launchers.simulated.request import Request

#: Output tokens beyond this are not counted on at admission (SGLang 0.5.23, schedule_policy.py).
_MAX_EXPECTED_OUTPUT = 4096


class TokenReserve:
    """SGLang's new_token_ratio: the share of its remaining output that is kept free for a running request.

    Starts at 0.7, falls to 14 % of that over 600 decode steps, rises after a retraction.
    """

    def __init__(self, conservativeness: float) -> None:
        self._start = min(0.7 * conservativeness, 1.0)
        self._least = min(self._start * 0.14, 1.0)
        self._decay = (self._start - self._least) / 600
        self.ratio = self._start

    def reset(self) -> None:
        """Back to the start: the engine is idle or was flushed."""
        self.ratio = self._start

    def decay(self) -> None:
        """One decode step went well."""
        self.ratio = max(self.ratio - self._decay, self._least)

    def raise_after_retraction(self, running: Sequence[Request]) -> None:
        """From what those still running have generated, with 20 steps in hand."""
        generated = sum(len(r.output_ids) for r in running)
        in_all = sum(r.max_new_tokens for r in running)
        self.ratio = min(1.0, (generated + 20 * len(running)) / (in_all + 1))

    def held_for(self, running: Sequence[Request]) -> float:
        """Tokens kept free for them."""
        return self.ratio * sum(min(r.remaining, _MAX_EXPECTED_OUTPUT) for r in running)


class Admission:
    """One prefill batch being put together; `taken` lists requests with the tokens to compute."""

    def __init__(self, pool: KVPool, reserved: float, batch_tokens: int, chunk_tokens: int | None) -> None:
        self._pool = pool
        self._reserved = reserved
        self._batch_left = batch_tokens
        self._chunk_left = chunk_tokens
        self.taken: list[tuple[Request, int]] = []
        self.cached_tokens = 0
        self.admitted = 0
        #: The request taken only in part.
        self.unfinished: Request | None = None

    def continue_chunk(self, request: Request) -> Request | None:
        """Take the next chunk of a prompt begun before; the request if still more is left."""
        left = request.sequence_length - request.prefilled
        tokens = left if self._chunk_left is None else min(left, self._chunk_left)
        if not self._pool.make_room(tokens):
            return request
        self._take(request, tokens)
        if request.prefilled < request.sequence_length:
            return request
        self._reserved += min(request.remaining, _MAX_EXPECTED_OUTPUT)
        return None

    def admit(self, request: Request) -> bool:
        """Take a waiting request, whole or its first chunk; False if it does not fit now."""
        if self._batch_left <= 0 or (self._chunk_left is not None and self._chunk_left <= 0):
            return False
        cached = self._pool.take_prefix(request)
        new = request.sequence_length - cached
        output = min(request.remaining, _MAX_EXPECTED_OUTPUT)
        tokens = new if self._chunk_left is None else min(new, self._chunk_left)
        fits = new + output <= self._pool.available - self._reserved
        too_long = self.taken and tokens > self._batch_left
        if not fits or too_long or not self._pool.make_room(tokens):
            self._pool.release(request, keep=False)
            request.prefilled = 0
            return False
        self.admitted += 1
        self.cached_tokens += cached
        if request.cached_tokens is None:
            request.cached_tokens = cached
        self._take(request, tokens)
        if tokens < new:
            self.unfinished = request
        else:
            self._reserved += output
        return True

    def _take(self, request: Request, tokens: int) -> None:
        self._pool.take(request, tokens)
        self.taken.append((request, tokens))
        self._batch_left -= tokens
        if self._chunk_left is not None:
            self._chunk_left -= tokens
