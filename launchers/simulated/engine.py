"""Continuous batching as SGLang's scheduler does it: decides each step, knows no clock, socket or process.

One loop drives it: `plan` picks the next step and says how long it takes, `finish` ends it. Prefill goes
first; otherwise every running request decodes. Times are seconds of whatever clock the driver passes in.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

from launchers.simulated.admission import Admission, TokenReserve
from launchers.simulated.kv_pool import KVPool
from launchers.simulated.request import Finish, Request
from launchers.simulated.statistics import DecodeReport, PrefillReport, Retraction, Statistics


class StepTimes(Protocol):
    """Length of each kind of step in seconds, and the tokens that a verify step brings."""

    @property
    def speculative(self) -> bool:
        """Whether a decode step drafts and verifies."""

    def prefill_s(self, new_tokens: int, requests: int) -> float:
        """One prefill batch."""

    def decode_s(self, batch: int, context_tokens: int) -> float:
        """One decode step."""

    def accept_tokens(self, rng: random.Random) -> int:
        """Tokens one request gains in one step."""


class Observer(Protocol):
    """Told what the scheduler logs."""

    def prefill(self, report: PrefillReport) -> None:
        """A prefill batch was formed."""

    def decode(self, report: DecodeReport) -> None:
        """Every `decode_log_interval` decode steps."""

    def retraction(self, report: Retraction) -> None:
        """Running requests were put back into the queue: the KV pool was full."""


@dataclass(frozen=True)
class EngineConfig:
    """Sizes in tokens, all resolved: what SGLang would run with."""

    kv_tokens: int
    max_running_requests: int
    #: None: no limit, a prompt is prefilled whole.
    chunked_prefill_size: int | None = 8192
    max_prefill_tokens: int = 16384
    page_size: int = 1
    radix_cache: bool = True
    mixed_chunk: bool = False
    schedule_conservativeness: float = 1.0
    #: "fcfs" keeps arrival order; "lpm" puts the longest cached prefix first.
    schedule_policy: str = "fcfs"
    decode_log_interval: int = 40
    #: Tokens verified for each request in a step; 1 without speculation.
    tokens_per_step: int = 1
    #: Draft steps, for the acceptance rate; None without speculation.
    draft_steps: int | None = None


@dataclass(frozen=True)
class Step:
    """One forward pass: requests with the tokens to prefill, or requests that decode, or (mixed) both."""

    duration_s: float
    prefill: tuple[tuple[Request, int], ...] = ()
    decode: tuple[Request, ...] = ()


class Engine:
    """Waiting and running requests and the KV pool they share."""

    def __init__(self, config: EngineConfig, times: StepTimes, observer: Observer | None = None) -> None:
        self.config = config
        self._times = times
        self._observer = observer
        self.pool = KVPool(config.kv_tokens, config.page_size, config.radix_cache)
        self.reserve = TokenReserve(config.schedule_conservativeness)
        self.statistics = Statistics(config.decode_log_interval, config.draft_steps)
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        #: The request whose prompt is being prefilled in several steps.
        self.chunked: Request | None = None
        self._step: Step | None = None

    def submit(self, request: Request) -> None:
        """Queue a request that has arrived."""
        self.waiting.append(request)

    def abort(self, request: Request) -> None:
        """Stop a request; a running one leaves at the end of the step it is in."""
        if request.finish is None:
            request.aborted = True
            if request in self.waiting:
                self.waiting.remove(request)
                request.finish = Finish.ABORT

    @property
    def busy(self) -> int:
        """Requests inside: waiting and running."""
        return len(self.waiting) + self.running_count

    @property
    def running_count(self) -> int:
        """Requests that hold KV."""
        return len(self.running) + (self.chunked is not None)

    def flush(self) -> bool:
        """Empty the prefix cache; False, and nothing done, while any request is inside."""
        if self.busy:
            return False
        self.pool.flush()
        self.reserve.reset()
        self.statistics.forget_acceptance()
        return True

    def plan(self, now_s: float) -> Step | None:
        """The next step, its KV slots taken; None with nothing to run. `finish` it before planning again."""
        if self.chunked is not None and self.chunked.aborted:
            self._leave(self.chunked, now_s)
            self.chunked = None
        self._drop_aborted(now_s)
        step = self._plan_prefill(now_s) or self._plan_decode()
        if step is None:
            self.reserve.reset()
        self._step = step
        return step

    def finish(self, step: Step, now_s: float) -> None:
        """End the planned step: tokens appear, requests that are done leave."""
        assert step is self._step, "steps are finished in the order they are planned"
        self._step = None
        if step.prefill:
            self._finish_prefill(step, now_s)
        if step.decode:
            self._finish_decode(step, now_s)

    # --- prefill

    def _plan_prefill(self, now_s: float) -> Step | None:
        if not self.waiting and self.chunked is None:
            return None
        config = self.config
        running_before = self.running_count
        if config.schedule_policy == "lpm" and config.radix_cache:
            self.waiting.sort(key=lambda r: -self.pool.cached_prefix(r))
        admission = Admission(
            self.pool,
            reserved=self.reserve.held_for(self.running),
            batch_tokens=config.max_prefill_tokens,
            chunk_tokens=config.chunked_prefill_size,
        )
        if self.chunked is not None:
            self.chunked = admission.continue_chunk(self.chunked)
        while self.waiting and self.chunked is None:
            if len(self.running) + len(admission.taken) >= config.max_running_requests:
                break
            request = self.waiting[0]
            if not admission.admit(request):
                break
            self.waiting.pop(0)
            if request.forward_s is None:
                request.forward_s = now_s
                self.statistics.queued(now_s - request.arrived_s)
            self.chunked = admission.unfinished
        taken = admission.taken
        if not taken:
            return None
        new_tokens = sum(tokens for _, tokens in taken)
        decode: tuple[Request, ...] = ()
        if config.mixed_chunk and self._make_room(len(self.running)):
            decode = tuple(self.running)
        self.statistics.prefilled(new_tokens, admission.cached_tokens)
        if self._observer is not None:
            self._observer.prefill(
                PrefillReport(
                    new_requests=admission.admitted,
                    new_tokens=new_tokens,
                    cached_tokens=admission.cached_tokens,
                    token_usage=self.pool.usage,
                    running=running_before,
                    queued=len(self.waiting),
                    pending_tokens=self._pending_tokens(),
                    tokens_per_s=self.statistics.prefill_rate(new_tokens, now_s),
                )
            )
        duration_s = self._times.prefill_s(new_tokens + len(decode), len(taken) + len(decode))
        return Step(duration_s, tuple(taken), decode)

    def _pending_tokens(self) -> int:
        """Prompt tokens of the chunked request that no step has taken yet."""
        return self.chunked.sequence_length - self.chunked.prefilled if self.chunked else 0

    def _finish_prefill(self, step: Step, now_s: float) -> None:
        for request, _ in step.prefill:
            if request is self.chunked:
                continue
            self.pool.keep_prompt(request)
            if request.aborted:
                self._leave(request, now_s)
                continue
            if request.first_token_s is None:
                request.first_token_s = now_s
            gained = request.gain(1)
            self.statistics.generated += gained
            self.running.append(request)
            if request.on_tokens is not None:
                if request.finish is not None:
                    request.finished_s = now_s
                request.on_tokens(request, gained)
        self._drop_finished(now_s)

    # --- decode

    def _plan_decode(self) -> Step | None:
        if not self.running:
            return None
        if not self._make_room(len(self.running) * self.config.tokens_per_step):
            self._retract()
        batch = tuple(self.running)
        context_tokens = sum(r.sequence_length for r in batch)
        self.reserve.decay()
        return Step(self._times.decode_s(len(batch), context_tokens), decode=batch)

    def _finish_decode(self, step: Step, now_s: float) -> None:
        accept = self._times.accept_tokens if self._times.speculative else None
        total = 0
        any_finished = False
        for request in step.decode:
            if request.aborted:
                any_finished = True
                continue
            if accept is None:
                gained = request.gain(1)
            else:
                gained = request.gain(accept(request.rng))
                request.verify_steps += 1
            request.owned += gained
            total += gained
            if request.finish is not None:
                any_finished = True
                request.finished_s = now_s
            if request.on_tokens is not None:
                request.on_tokens(request, gained)
        self.pool.grew(total)
        report = self.statistics.decoded(len(step.decode), total, now_s, verifying=accept is not None)
        if report is not None and self._observer is not None:
            context = sum(r.sequence_length for r in step.decode)
            self._observer.decode(report.at(len(self.running), context, self.pool.usage, len(self.waiting)))
        if any_finished:
            self._drop_finished(now_s)

    def _make_room(self, tokens: int) -> bool:
        """Evict until that many slots are free; False if they cannot be had."""
        return self.pool.make_room(tokens)

    def _retract(self) -> None:
        """Put back requests, those with the least output and the longest prompt first, until a step fits."""
        before = self.reserve.ratio
        order = sorted(self.running, key=lambda r: (-len(r.output_ids), len(r.input_ids)))
        retracted: list[Request] = []
        while len(order) > 1 and not self._make_room(len(order) * self.config.tokens_per_step):
            request = order.pop()
            self.pool.release(request, keep=False)
            request.retractions += 1
            request.prefilled = 0
            retracted.append(request)
        # One request alone always fits: its length was bounded by the pool when it came in.
        self._make_room(len(order) * self.config.tokens_per_step)
        self.running = [r for r in self.running if r not in retracted]
        self.waiting[:0] = retracted
        self.reserve.raise_after_retraction(self.running)
        self.statistics.retracted += len(retracted)
        if self._observer is not None:
            self._observer.retraction(Retraction(len(retracted), before, self.reserve.ratio))

    # --- leaving

    def _drop_aborted(self, now_s: float) -> None:
        if any(r.aborted for r in self.running):
            self._drop_finished(now_s)

    def _drop_finished(self, now_s: float) -> None:
        staying = []
        for request in self.running:
            if request.finish is None and not request.aborted:
                staying.append(request)
            else:
                self._leave(request, now_s)
        self.running = staying

    def _leave(self, request: Request, now_s: float) -> None:
        self.pool.release(request, keep=True)
        if request.finish is None:
            request.finish = Finish.ABORT
        request.finished_s = now_s
        if request.finish is Finish.ABORT:
            if request.on_tokens is not None:
                request.on_tokens(request, 0)
        elif request.counted:
            self.statistics.finished(request)
