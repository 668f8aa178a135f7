"""The batching engine stepped by hand on a made-up clock."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launchers.simulated.admission import TokenReserve
from launchers.simulated.engine import Engine, EngineConfig
from launchers.simulated.request import Finish, Request
from launchers.simulated.statistics import DecodeReport, PrefillReport, Retraction
from launchers.simulated.tokens import TokenSource


@dataclass
class FixedTimes:
    """1 ms per prefill token, 10 ms per decode step; every verify step brings `gain` tokens."""

    gain: int = 1
    decode_batches: list[tuple[int, int]] = field(default_factory=list)

    @property
    def speculative(self) -> bool:
        return self.gain > 1

    def prefill_s(self, new_tokens: int, requests: int) -> float:
        return 0.001 * new_tokens

    def decode_s(self, batch: int, context_tokens: int) -> float:
        self.decode_batches.append((batch, context_tokens))
        return 0.01

    def accept_tokens(self, rng: random.Random) -> int:
        return self.gain


@dataclass
class Seen:
    """An observer that keeps what it is told."""

    prefills: list[PrefillReport] = field(default_factory=list)
    decodes: list[DecodeReport] = field(default_factory=list)
    retractions: list[Retraction] = field(default_factory=list)

    def prefill(self, report: PrefillReport) -> None:
        self.prefills.append(report)

    def decode(self, report: DecodeReport) -> None:
        self.decodes.append(report)

    def retraction(self, report: Retraction) -> None:
        self.retractions.append(report)


class Run:
    """An engine with its clock, and the growth of every request with its time."""

    def __init__(self, gain: int = 1, **config: object) -> None:
        self.times = FixedTimes(gain)
        self.seen = Seen()
        sizes: dict[str, object] = {"kv_tokens": 10_000, "max_running_requests": 8} | config
        self.engine = Engine(EngineConfig(**sizes), self.times, self.seen)  # type: ignore[arg-type]
        self.now_s = 0.0
        self.events: list[tuple[float, str, int]] = []

    def submit(self, rid: str, prompt: range, new: int, end_chance: float = 0.0) -> Request:
        source = TokenSource(hash(tuple(prompt)), 1000, end_chance)
        request = Request(rid, prompt, new, source, random.Random(0), arrived_s=self.now_s)
        request.on_tokens = lambda r, n: self.events.append((self.now_s, r.rid, n))
        self.engine.submit(request)
        return request

    def step(self) -> float | None:
        """One step; its length, or None with nothing to do."""
        step = self.engine.plan(self.now_s)
        if step is None:
            return None
        self.now_s += step.duration_s
        self.engine.finish(step, self.now_s)
        return step.duration_s

    def until_idle(self, most: int = 100_000) -> None:
        while self.step() is not None:
            most -= 1
            assert most, "the engine never gets idle"
        assert self.engine.busy == 0, "requests are stuck"


def test_one_request_takes_its_prefill_and_one_step_for_each_further_token() -> None:
    run = Run()
    request = run.submit("a", range(100), 5)
    run.until_idle()
    assert [n for _, _, n in run.events] == [1] * 5
    assert [t for t, _, _ in run.events] == pytest.approx([0.1, 0.11, 0.12, 0.13, 0.14])
    assert request.finish is Finish.LENGTH
    assert len(request.output_ids) == 5


def test_prefill_goes_before_decode() -> None:
    run = Run()
    run.submit("a", range(100), 50)
    run.step()
    run.step()
    run.submit("b", range(1000, 1200), 2)
    assert run.step() == pytest.approx(0.2), "the newcomer's prompt is computed, the running one waits"
    assert run.step() == pytest.approx(0.01)
    assert run.times.decode_batches[-1][0] == 2, "then both decode together"


def test_no_more_than_max_running_requests_run_and_the_rest_wait_in_order() -> None:
    run = Run(max_running_requests=2)
    requests = [run.submit(str(i), range(i * 100, i * 100 + 10), 4) for i in range(5)]
    most = 0
    while run.step() is not None:
        most = max(most, run.engine.running_count)
    assert most == 2
    finished = sorted(requests, key=lambda r: (r.finished_s, r.rid))
    assert [r.rid for r in finished] == ["0", "1", "2", "3", "4"]


def test_a_long_prompt_is_prefilled_in_chunks_between_which_nothing_decodes() -> None:
    run = Run(chunked_prefill_size=64)
    request = run.submit("a", range(150), 1)
    lengths = [run.step() for _ in range(3)]
    assert lengths == pytest.approx([0.064, 0.064, 0.022])
    assert request.finish is Finish.LENGTH
    assert [p.new_tokens for p in run.seen.prefills] == [64, 64, 22]
    assert [p.pending_tokens for p in run.seen.prefills] == [86, 22, 0]
    assert [p.new_requests for p in run.seen.prefills] == [1, 0, 0]


def test_a_batch_is_bounded_by_max_prefill_tokens_but_one_request_always_goes() -> None:
    run = Run(chunked_prefill_size=None, max_prefill_tokens=100)
    run.submit("long", range(300), 1)
    run.submit("b", range(1000, 1060), 1)
    run.submit("c", range(2000, 2060), 1)
    run.until_idle()
    assert [p.new_tokens for p in run.seen.prefills] == [300, 60, 60]


def test_a_repeated_prompt_is_found_in_the_cache_but_for_its_last_token() -> None:
    run = Run()
    run.submit("a", range(100), 3)
    run.until_idle()
    again = run.submit("b", range(100), 3)
    run.until_idle()
    assert again.cached_tokens == 99
    assert run.seen.prefills[-1].new_tokens == 1
    assert run.engine.statistics.cache_hit_rate == pytest.approx(0.99)


def test_without_radix_cache_nothing_is_reused() -> None:
    run = Run(radix_cache=False)
    for rid in "ab":
        request = run.submit(rid, range(100), 3)
        run.until_idle()
    assert request.cached_tokens == 0
    assert run.engine.pool.free == 10_000


def test_the_same_prompt_gets_the_same_text_with_and_without_speculation() -> None:
    plain, spec = Run(), Run(gain=3, tokens_per_step=4, draft_steps=3)
    texts = []
    for run in (plain, spec):
        run.submit("other", range(500, 540), 7)
        request = run.submit("a", range(100), 20)
        run.until_idle()
        texts.append(request.output_ids)
    assert texts[0] == texts[1]


def test_a_verify_step_brings_its_tokens_as_one_growth_and_never_too_many() -> None:
    run = Run(gain=4, tokens_per_step=4, draft_steps=3)
    request = run.submit("a", range(10), 7)
    run.until_idle()
    assert [n for _, _, n in run.events] == [1, 4, 2]
    assert request.verify_steps == 2
    assert len(request.output_ids) == 7


def test_kv_slots_come_back_whatever_happened() -> None:
    run = Run(kv_tokens=600, max_running_requests=8)
    for i in range(12):
        run.submit(str(i), range(i * 1000, i * 1000 + 100), 90)
    run.until_idle()
    pool = run.engine.pool
    assert pool.owned == 0
    assert pool.cache.protected == 0
    assert pool.free + pool.cache.evictable == 600
    assert run.engine.flush()
    assert pool.free == 600


def test_a_full_pool_retracts_the_request_with_least_output_and_it_still_ends_well() -> None:
    run = Run(kv_tokens=520, max_running_requests=4, schedule_conservativeness=0.05)
    requests = [run.submit(str(i), range(i * 1000, i * 1000 + 100), 150) for i in range(4)]
    run.until_idle()
    assert run.seen.retractions, "four requests of 250 tokens do not fit into 520"
    assert sum(r.retractions for r in requests) == sum(r.requests for r in run.seen.retractions)
    assert all(len(r.output_ids) == 150 and r.finish is Finish.LENGTH for r in requests)
    assert all(r.ratio_after > r.ratio_before for r in run.seen.retractions)


def test_a_retracted_request_is_not_told_twice_of_a_token() -> None:
    run = Run(kv_tokens=520, max_running_requests=4, schedule_conservativeness=0.05)
    for i in range(4):
        run.submit(str(i), range(i * 1000, i * 1000 + 100), 150)
    run.until_idle()
    told = {rid: sum(n for _, r, n in run.events if r == rid) for rid in "0123"}
    assert told == dict.fromkeys("0123", 150)


def test_admission_keeps_room_for_what_runs() -> None:
    run = Run(kv_tokens=1000, max_running_requests=8)
    run.submit("a", range(100), 800)
    run.step()
    run.submit("b", range(2000, 2300), 200)
    run.step()
    assert [r.rid for r in run.engine.waiting] == ["b"], "0.7 x 799 tokens are held back for a"


def test_an_aborted_request_frees_its_kv_and_is_not_counted() -> None:
    run = Run()
    a = run.submit("a", range(100), 500)
    b = run.submit("b", range(1000, 1100), 20)
    for _ in range(3):
        run.step()
    run.engine.abort(a)
    run.until_idle()
    assert a.finish is Finish.ABORT
    assert b.finish is Finish.LENGTH
    assert run.engine.pool.used == 0
    assert run.engine.statistics.by_streaming[False].requests == 1


def test_a_waiting_request_and_one_in_the_midst_of_its_prompt_can_be_aborted() -> None:
    run = Run(chunked_prefill_size=50, max_running_requests=1)
    chunked = run.submit("a", range(200), 5)
    waiting = run.submit("b", range(1000, 1100), 5)
    run.step()
    run.engine.abort(waiting)
    run.engine.abort(chunked)
    run.until_idle()
    assert chunked.finish is waiting.finish is Finish.ABORT
    assert run.engine.pool.used == 0


def test_flush_is_refused_while_requests_are_inside() -> None:
    run = Run()
    run.submit("a", range(10), 5)
    assert not run.engine.flush()
    run.step()
    assert not run.engine.flush()
    run.until_idle()
    assert run.engine.flush()
    again = run.submit("b", range(10), 1)
    run.until_idle()
    assert again.cached_tokens == 0


def test_acceptance_is_absent_until_forty_steps_and_forgotten_by_a_flush() -> None:
    run = Run(gain=3, tokens_per_step=4, draft_steps=3)
    run.submit("a", range(10), 1 + 3 * 39)
    run.until_idle()
    statistics = run.engine.statistics
    assert statistics.avg_spec_accept_length is None
    run.submit("b", range(10), 1 + 3 * 5)
    run.until_idle()
    assert statistics.avg_spec_accept_length == pytest.approx(3.0)
    assert run.seen.decodes[-1].accept_length == pytest.approx(3.0)
    assert run.seen.decodes[-1].accept_rate == pytest.approx(2 / 3)
    run.engine.flush()
    assert statistics.avg_spec_accept_length is None


def test_counters_add_up_when_requests_have_finished() -> None:
    run = Run(gain=3, tokens_per_step=4, draft_steps=3)
    for i in range(4):
        run.submit(str(i), range(i * 100, i * 100 + 50), 31)
    run.until_idle()
    totals = run.engine.statistics.by_streaming[False]
    assert (totals.requests, totals.prompt_tokens, totals.generation_tokens) == (4, 200, 124)
    assert totals.verify_steps == 40
    assert totals.ttft.count == totals.e2e.count == 4
    assert run.engine.statistics.generated == 124


def test_gen_throughput_is_tokens_over_the_reported_steps() -> None:
    run = Run()
    for i in range(4):
        run.submit(str(i), range(i * 100, i * 100 + 10), 200)
    run.until_idle()
    assert run.seen.decodes[1].tokens_per_s == pytest.approx(400)


def test_eos_ends_some_texts_early_unless_ignored() -> None:
    run = Run(max_running_requests=64, kv_tokens=100_000)
    ending = [run.submit(f"e{i}", range(i, i + 10), 400, end_chance=1 / 50) for i in range(40)]
    whole = [run.submit(f"w{i}", range(i, i + 10), 400) for i in range(5)]
    run.until_idle()
    lengths = [len(r.output_ids) for r in ending]
    assert {r.finish for r in ending} >= {Finish.STOP}
    assert 25 < sum(lengths) / len(lengths) < 100
    assert all(len(r.output_ids) == 400 for r in whole)


def test_mixed_chunks_decode_beside_a_prefill() -> None:
    run = Run(mixed_chunk=True)
    a = run.submit("a", range(100), 50)
    run.step()
    run.submit("b", range(1000, 1100), 5)
    before = len(a.output_ids)
    run.step()
    assert len(a.output_ids) == before + 1


def test_reserve_falls_with_steps_and_resets_when_idle() -> None:
    reserve = TokenReserve(1.0)
    assert reserve.ratio == pytest.approx(0.7)
    for _ in range(1000):
        reserve.decay()
    assert reserve.ratio == pytest.approx(0.098)
    reserve.reset()
    assert reserve.ratio == pytest.approx(0.7)


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(1, 120), st.integers(1, 80), st.booleans()),
        min_size=1,
        max_size=25,
    ),
    st.integers(220, 900),
    st.sampled_from([None, 16, 64]),
    st.booleans(),
    st.integers(1, 4),
)
def test_every_request_ends_and_no_slot_is_lost(
    asked: list[tuple[int, int, int, bool]], kv_tokens: int, chunk: int | None, radix: bool, gain: int
) -> None:
    run = Run(
        gain=gain,
        tokens_per_step=gain,
        draft_steps=gain,
        kv_tokens=kv_tokens,
        chunked_prefill_size=chunk,
        radix_cache=radix,
        max_running_requests=6,
        schedule_conservativeness=0.1,
    )
    requests = []
    for i, (family, prompt, new, aborted) in enumerate(asked):
        requests.append(run.submit(str(i), range(family * 1000, family * 1000 + prompt), new))
        run.step()
        pool = run.engine.pool
        assert pool.owned >= 0
        assert pool.free >= 0
        if aborted:
            run.engine.abort(requests[-1])
    run.until_idle()
    assert all(r.finish is not None for r in requests)
    for request, (_, _, new, _) in zip(requests, asked, strict=True):
        assert request.finish is Finish.ABORT or len(request.output_ids) == new
    pool = run.engine.pool
    assert pool.owned == pool.cache.protected == 0
    assert pool.free + pool.cache.evictable == kv_tokens


def test_lpm_takes_the_longest_cached_prefix_first() -> None:
    finished: dict[str, list[str]] = {}
    for policy in ("fcfs", "lpm"):
        run = Run(schedule_policy=policy, max_running_requests=1)
        run.submit("first", range(100), 1)
        run.until_idle()
        requests = [run.submit("new", range(1000, 1100), 2), run.submit("cached", range(100), 2)]
        run.until_idle()
        finished[policy] = [r.rid for r in sorted(requests, key=lambda r: r.finished_s or 0.0)]
    assert finished == {"fcfs": ["new", "cached"], "lpm": ["cached", "new"]}
