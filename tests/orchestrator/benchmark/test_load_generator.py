import asyncio
import itertools
import threading
from collections.abc import Awaitable
from typing import Any

import pytest
from aiohttp import web
from stream_server import Answer, StreamServer, completion, event, good, good_answer, stream

from orchestrator.analysis.validity import client_limit, invalid_reason, server_failed
from orchestrator.benchmark import loop
from orchestrator.benchmark.datasets.files import FilePrompts
from orchestrator.benchmark.load import Progress, run_level
from orchestrator.benchmark.metrics import level_metrics
from orchestrator.benchmark.records import LevelRecord
from orchestrator.datasets import JSONL, RandomIds
from orchestrator.offered_load import Load
from orchestrator.workload import Level, Workload

DEADLINE_S = 120


def workload(
    requests_per_user: int = 2,
    *,
    timeout_s: float = 60,
    api: str = "completion",
    request_rate: tuple[float, ...] = (),
    arrivals: Any = None,
    **level: Any,
) -> Workload:
    # A fixed number of requests, unless the test says otherwise.
    level = {"min_s": 0, "max_s": 60, "half_width": None, "warmup_tolerance": None, **level}
    return Workload.model_validate(
        {
            "api": api,
            "dataset": RandomIds(input_tokens=4, output_tokens=4),
            "level": Level(requests_per_user=requests_per_user, **level),
            "request_timeout_s": timeout_s,
            "request_rate": request_rate,
            "arrivals": arrivals or {},
        }
    )


def run(story: Awaitable[Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(DEADLINE_S):
            return await story

    return loop.run(bounded())


def level_of(answer: Answer, asked: Workload, load: int | Load, **options: Any) -> tuple[LevelRecord, StreamServer]:
    async def story() -> tuple[LevelRecord, StreamServer]:
        async with StreamServer(answer) as server:
            options.setdefault("counters", dict)
            return await run_level(server.url, asked, load if isinstance(load, Load) else Load(load), **options), server

    result: tuple[LevelRecord, StreamServer] = run(story())
    return result


@pytest.mark.parametrize("users", [1, 7, 128, 1024])
def test_exactly_the_asked_number_of_requests_is_in_flight(users: int) -> None:
    """Each wave is answered only once all its requests are there: a hidden cap would never get it going."""
    waves: list[asyncio.Barrier] = []

    async def answer(server: StreamServer, request: web.Request, number: int) -> web.StreamResponse:
        if number % users == 0:
            waves.append(asyncio.Barrier(users))
        await waves[number // users].wait()
        return await stream(request, [b"".join(good_answer())])

    record, server = level_of(answer, workload(2), users)
    assert server.most_in_flight == users
    assert len(waves) == 3
    assert record.completed
    assert record.gave_up is None
    metrics = level_metrics(record)
    assert (metrics.requests_total, metrics.requests_failed) == (2 * users, 0)
    assert sum(r.warmup for r in record.requests) == users
    assert {r.user for r in record.requests} == set(range(users))
    assert metrics.output_tokens == 2 * users * 4
    assert metrics.output_tokens_per_s


def test_what_ended_before_every_user_was_warm_is_warm_up() -> None:
    """One user's first request takes as long as four of the other's."""
    slow = asyncio.Event()

    async def answer(server: StreamServer, request: web.Request, number: int) -> web.StreamResponse:
        if number == 0:
            await slow.wait()
        elif number == 5:
            slow.set()
        return await good(server, request, number)

    record, _ = level_of(answer, workload(3), 2)
    assert record.window_s is not None
    measured = [r for r in record.requests if not r.warmup]
    assert len(measured) == 6
    assert len(record.requests) >= 6 + 5
    assert all((r.finished_s > record.window_s[0]) != r.warmup for r in record.requests)


def test_no_prompt_is_sent_twice() -> None:
    _, server = level_of(good, workload(5), 8)
    prompts = [tuple(body["prompt"]) for body in server.bodies]
    assert len(prompts) >= 48
    assert len(set(prompts)) == len(prompts)


def test_the_native_api_is_measured_as_well() -> None:
    async def answer(server: StreamServer, request: web.Request, number: int) -> web.StreamResponse:
        parts = []
        for n in range(1, 5):
            finish = {"type": "length", "length": 4} if n == 4 else None
            meta = {"finish_reason": finish, "completion_tokens": n, "prompt_tokens": 4, "spec_verify_ct": 2}
            parts.append(event({"text": " a" * n, "output_ids": [1] * n, "meta_info": meta}))
        return await stream(request, [*parts, b"data: [DONE]\n\n"])

    record, server = level_of(answer, workload(2, api="native"), 2)
    metrics = level_metrics(record)
    assert (metrics.requests_failed, metrics.output_tokens) == (0, metrics.requests_total * 4)
    assert metrics.accept_length == 2.0
    assert "input_ids" in server.bodies[0]


def test_counters_are_read_before_and_after() -> None:
    readings = itertools.count(1)
    record, _ = level_of(good, workload(1), 1, counters=lambda: {"reading": next(readings)})
    assert (record.counters_before, record.counters_after) == ({"reading": 1}, {"reading": 2})


def test_a_server_without_metrics_gives_no_counters() -> None:
    record, _ = level_of(good, workload(1), 1, counters=None)
    assert (record.counters_before, record.counters_after) == ({}, {})


# Time, by a clock that the server moves


class HandClock:
    """Moves only when told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def answer(self, step_s: float) -> Answer:
        """A server at which every request takes `step_s`."""

        async def answer(server: StreamServer, request: web.Request, number: int) -> web.StreamResponse:
            self.now_s += step_s
            return await good(server, request, number)

        return answer


def test_the_load_goes_on_until_min_s_is_over() -> None:
    clock = HandClock()
    record, _ = level_of(clock.answer(1), workload(2, min_s=9.5), 1, clock=clock)
    assert level_metrics(record).requests_total == 10
    assert record.window_s == (1001, 1011)


def test_no_request_starts_after_max_s() -> None:
    clock = HandClock()
    record, _ = level_of(clock.answer(1), workload(1000, max_s=4.5), 1, clock=clock)
    assert level_metrics(record).requests_total == 5
    assert record.completed
    assert level_metrics(record).output_tokens_per_s == pytest.approx(4)


def test_metrics_are_exact_on_a_clock_of_our_own() -> None:
    clock = HandClock()
    record, _ = level_of(clock.answer(2), workload(3), 1, clock=clock)
    metrics = level_metrics(record)
    assert (metrics.window_s, metrics.duration_s) == (6, 6)
    assert metrics.output_tokens_per_s == 2
    assert metrics.requests_per_s == 0.5
    assert metrics.ttft_ms is not None
    assert metrics.ttft_ms.p99 == 2000


# Stopping


async def hang(server: StreamServer, request: web.Request, number: int) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("users", [1, 64])
def test_a_stop_cancels_what_is_in_flight_and_leaves_nothing_behind(users: int) -> None:
    async def story() -> LevelRecord:
        async with StreamServer(hang) as server:
            record = await run_level(
                server.url,
                workload(),
                Load(users),
                should_stop=lambda: server.in_flight == users,
                counters=dict,
            )
            while server.in_flight:
                await asyncio.sleep(0.001)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            assert not [t for t in others if "_user" in repr(t) or "_everyone" in repr(t)]
        return record

    record: LevelRecord = run(story())
    assert not record.completed
    assert record.window_s is None
    assert [r.error_kind for r in record.requests] == ["cancelled"] * users
    metrics = level_metrics(record)
    assert (metrics.requests_total, metrics.requests_failed, metrics.first_error) == (0, 0, None)


def test_finished_requests_of_a_stopped_level_are_kept() -> None:
    async def answer(server: StreamServer, request: web.Request, number: int) -> web.StreamResponse:
        return await (good if number < 10 else hang)(server, request, number)

    async def story() -> LevelRecord:
        async with StreamServer(answer) as server:
            return await run_level(
                server.url, workload(100), Load(2), should_stop=lambda: server.in_flight == 2, counters=dict
            )

    record: LevelRecord = run(story())
    assert sum(r.succeeded for r in record.requests) == 10
    assert sum(r.error_kind == "cancelled" for r in record.requests) == 2
    assert level_metrics(record).output_tokens_per_s is None


def test_cancelling_the_level_itself_stops_its_users() -> None:
    async def story() -> None:
        async with StreamServer(hang) as server:
            task = asyncio.create_task(run_level(server.url, workload(), Load(4), counters=dict))
            while server.in_flight < 4:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while server.in_flight:
                await asyncio.sleep(0.001)

    run(story())


def test_a_level_stopped_in_its_tail_claims_no_window() -> None:
    """The requests cut off would have had tokens in it."""

    async def answer(server: StreamServer, request: web.Request, number: int) -> web.StreamResponse:
        return await (hang if number == 2 else good)(server, request, number)

    async def story() -> LevelRecord:
        async with StreamServer(answer) as server:
            return await run_level(
                server.url,
                workload(2),
                Load(2),
                should_stop=lambda: server.in_flight == 1 and server.arrived == 6,
                counters=dict,
            )

    record: LevelRecord = run(story())
    assert not record.completed
    assert record.window_s is None
    assert sum(r.succeeded for r in record.requests) == 5


# Failing servers


def test_a_dead_server_is_given_up_soon_without_numbers() -> None:
    async def story() -> LevelRecord:
        async with StreamServer() as server:
            url = server.url
        return await run_level(url, workload(1000, max_s=600), Load(4), counters=dict)

    record: LevelRecord = run(story())
    assert record.gave_up is not None
    assert "in a row failed" in record.gave_up
    assert record.unreachable
    # Three failures each, and no more than one more of each until the stop.
    assert 12 <= len(record.requests) <= 20
    metrics = level_metrics(record)
    assert metrics.requests_failed == metrics.requests_total
    assert metrics.errors_by_kind == {"connect": len([r for r in record.requests if r.error_kind == "connect"])}
    assert "cannot connect" in (metrics.first_error or "")
    for name in ("output_tokens_per_s", "output_tokens_per_s_whole", "requests_per_s", "ttft_ms", "output_tokens"):
        assert getattr(metrics, name) is None


def test_a_server_that_dies_in_the_middle_is_given_up() -> None:
    async def story() -> LevelRecord:
        died = asyncio.Event()

        async def answer(server: StreamServer, request: web.Request, number: int) -> web.StreamResponse:
            if number >= 40:
                died.set()
                await asyncio.Event().wait()
            return await good(server, request, number)

        async with StreamServer(answer) as server:

            async def kill() -> None:
                await died.wait()
                await server.stop()

            killer = asyncio.create_task(kill())
            record = await run_level(server.url, workload(1000, max_s=600), Load(4), counters=dict)
            await killer
            return record

    record: LevelRecord = run(story())
    assert not record.unreachable
    assert record.gave_up is not None
    assert record.gave_up in (server_failed(level_metrics(record), {}, {}, record.gave_up) or "")
    assert sum(r.succeeded for r in record.requests) == 40
    assert level_metrics(record).requests_failed >= 12


def test_a_request_refused_alike_for_every_prompt_ends_the_level_at_once() -> None:
    async def refuse(server: StreamServer, request: web.Request, number: int) -> web.StreamResponse:
        error = {"error": {"object": "error", "type": "BadRequestError", "code": 400, "message": "too long"}}
        return await stream(request, [event(error)])

    record, server = level_of(refuse, workload(1000), 4)
    assert record.gave_up is not None
    assert "too long" in record.gave_up
    assert server.arrived < 20
    metrics = level_metrics(record)
    assert metrics.errors_by_kind["stream_error"] >= 3
    assert metrics.output_tokens_per_s is None


def test_some_failing_requests_are_counted_and_the_rest_measured() -> None:
    async def answer(server: StreamServer, request: web.Request, number: int) -> web.StreamResponse:
        if number % 4 == 3:
            broken = [completion(" a", 1), event({"error": {"message": "boom", "code": 500}})]
            return await stream(request, broken)
        return await good(server, request, number)

    record, _ = level_of(answer, workload(10), 4)
    metrics = level_metrics(record)
    assert record.completed
    assert record.gave_up is None
    failed = [r for r in record.requests if not r.succeeded]
    assert len(failed) == len(record.requests) // 4
    assert metrics.requests_failed == sum(not r.warmup for r in failed)
    assert metrics.output_tokens == 4 * (metrics.requests_total - metrics.requests_failed)


def test_a_hanging_server_fails_by_the_request_timeout() -> None:
    record, _ = level_of(hang, workload(1, timeout_s=0.2), 2)
    assert {r.error_kind for r in record.requests} == {"timeout"}
    assert record.completed


# Progress


def test_progress_tells_what_is_done_and_ends_with_everything() -> None:
    seen: list[Progress] = []
    level_of(good, workload(3), 4, on_progress=seen.append)
    assert (seen[-1].done, seen[-1].total) == (12, 12)
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    assert seen[-1].output_tokens_per_s


def test_progress_comes_while_requests_run_and_has_no_rate_before_there_is_one() -> None:
    reported = threading.Event()
    seen: list[Progress] = []

    def on_progress(progress: Progress) -> None:
        seen.append(progress)
        reported.set()

    async def answer(server: StreamServer, request: web.Request, number: int) -> web.StreamResponse:
        while not reported.is_set():
            await asyncio.sleep(0.01)
        return await good(server, request, number)

    level_of(answer, workload(2), 1, on_progress=on_progress)
    assert (seen[0].done, seen[0].total, seen[0].output_tokens_per_s) == (0, 2, None)


# How long it warms up and measures


def test_a_level_ends_once_its_rate_is_known_well_enough() -> None:
    """A steady server: many more requests are allowed than it takes."""
    pace = asyncio.Semaphore(1)

    async def answer(server: StreamServer, request: web.Request, number: int) -> web.StreamResponse:
        async with pace:
            await asyncio.sleep(0.002)
        return await good(server, request, number)

    asked = workload(1, half_width=0.5, warmup_tolerance=0.5, max_s=60, max_requests_per_user=100_000)
    record, _ = level_of(answer, asked, 4)
    assert record.conduct.ended_by == "precise"
    assert record.conduct.warmup_stable is True
    assert record.conduct.warmup_s
    assert record.conduct.warmup_s >= 0.4
    metrics = level_metrics(record)
    assert metrics.output_tokens_per_s is not None
    assert metrics.output_tokens_per_s_half_width is not None
    # The live check goes by pieces; the figure is computed from the records.
    assert metrics.output_tokens_per_s_half_width / metrics.output_tokens_per_s < 0.75


def test_the_number_of_requests_is_a_limit_as_well() -> None:
    record, _ = level_of(good, workload(1, half_width=1e-9, max_requests_per_user=5), 4)
    assert record.conduct.ended_by == "max_requests"
    assert level_metrics(record).requests_total == 20


def few(count: int, *, reuse: bool = False) -> FilePrompts:
    return FilePrompts(JSONL(path="x", reuse=reuse), [(f"{n} word", 4) for n in range(count)])


def sends_them(asked: Workload, load: int | Load, prompts: FilePrompts) -> tuple[LevelRecord, list[str]]:
    """The level, and the prompts that arrived."""
    arrived: list[str] = []

    async def answer(server: StreamServer, request: web.Request, number: int) -> web.StreamResponse:
        arrived.append((await request.json())["prompt"])
        return await good(server, request, number)

    record, _ = level_of(answer, asked, load, prompts=prompts)
    return record, arrived


def test_a_level_that_has_used_up_its_prompts_ends_there_and_repeats_none() -> None:
    asked = workload(1, half_width=1e-9)
    record, arrived = sends_them(asked, 4, few(50))
    assert len(arrived) == len(set(arrived)) == 50
    assert (record.completed, record.gave_up, record.conduct.ended_by) == (True, None, "prompts")
    metrics = level_metrics(record)
    assert metrics.output_tokens_per_s
    assert invalid_reason(metrics, "flushed", None, {}, {}) is None


def test_prompts_come_again_where_reuse_is_asked_for() -> None:
    asked = workload(1, half_width=1e-9, max_requests_per_user=20)
    record, arrived = sends_them(asked, 4, few(50, reuse=True))
    assert len(arrived) > 80
    assert len(set(arrived)) == 50
    assert record.conduct.ended_by == "max_requests"


def test_a_level_that_needs_every_prompt_and_no_more_ended_by_its_requests() -> None:
    record, arrived = sends_them(workload(3), 4, few(16))
    assert (len(arrived), record.conduct.ended_by) == (16, "requests")


def test_a_level_whose_prompts_are_used_up_while_it_warms_up_measures_nothing() -> None:
    record, arrived = sends_them(workload(1, warmup_tolerance=1e-9), 4, few(30))
    assert (len(arrived), record.conduct.ended_by, record.window_s) == (30, "prompts", None)
    assert "used up before it had warmed up" in (invalid_reason(level_metrics(record), "flushed", None, {}, {}) or "")


def test_an_open_loop_ends_with_its_prompts_too() -> None:
    asked = workload(min_requests=1000, request_rate=(200.0,), arrivals={"kind": "constant"})
    record, arrived = sends_them(asked, Load(request_rate=200.0), few(60))
    assert len(arrived) == len(set(arrived)) == 60
    assert record.conduct.ended_by == "prompts"
    assert record.window_s is not None
    assert record.window_s[1] == record.requests[-1].targeted_s


# An open loop


def test_an_open_loop_sends_each_request_at_its_turn_whatever_the_server_does() -> None:
    """The first answers take as long as dozens of arrivals: a closed loop would wait for them."""
    slow = asyncio.Event()

    async def answer(server: StreamServer, request: web.Request, number: int) -> web.StreamResponse:
        if number == 40:
            slow.set()
        if number < 20:
            await slow.wait()
        return await good(server, request, number)

    asked = workload(min_requests=40, request_rate=(200.0,), arrivals={"kind": "constant"}, warmup_requests_per_user=0)
    record, server = level_of(answer, asked, Load(request_rate=200.0))
    assert server.most_in_flight >= 20
    assert record.completed
    assert record.window_s is not None
    turns_s = [r.targeted_s for r in record.requests]
    assert all(t is not None for t in turns_s)
    gaps_s = [b - a for a, b in itertools.pairwise(turns_s)]  # type: ignore[operator,arg-type]
    assert gaps_s == pytest.approx([1 / 200] * len(gaps_s))
    assert all(r.started_s >= (r.targeted_s or 0) - 1e-3 for r in record.requests)
    measured = [r for r in record.requests if not r.warmup]
    assert len(measured) == 40
    assert record.window_s[1] == measured[-1].targeted_s
    metrics = level_metrics(record)
    assert metrics.offered_requests_per_s == pytest.approx(200, rel=0.05)
    assert metrics.send_lag_ms_p99 is not None
    assert record.conduct.ended_by == "requests"


def test_an_open_loop_whose_turns_are_too_rare_measures_nothing_and_blames_no_server() -> None:
    """The first turn comes before the window opens, the second after it has to be closed: a quarter of an hour later,
    and nobody waits for it.
    """
    arrivals = {"kind": "constant"}
    asked = workload(request_rate=(0.001,), arrivals=arrivals, warmup_requests_per_user=0, max_s=0.3)
    record, server = level_of(good, asked, Load(request_rate=0.001))
    metrics = level_metrics(record)
    assert (server.arrived, metrics.requests_total, record.gave_up) == (1, 0, None)
    assert server_failed(metrics, {}, {}, record.gave_up) is None
    assert "no request's turn came" in (invalid_reason(metrics, "flushed", None, {}, {}) or "")


def test_an_open_loop_warms_up_as_long_as_an_answer_takes() -> None:
    first = asyncio.Event()

    async def answer(server: StreamServer, request: web.Request, number: int) -> web.StreamResponse:
        if number == 30:
            first.set()
        if number == 0:
            await first.wait()
        elif number < 30:
            await asyncio.sleep(0.001)
            await first.wait()
        return await good(server, request, number)

    asked = workload(min_requests=10, request_rate=(200.0,), arrivals={"kind": "constant"})
    record, _ = level_of(answer, asked, Load(request_rate=200.0))
    assert sum(r.warmup for r in record.requests) >= 30
    assert record.conduct.warmup_s
    assert record.conduct.warmup_s >= 30 / 200


def test_an_open_loop_with_no_place_for_the_next_request_says_that_it_fell_behind() -> None:
    async def answer(server: StreamServer, request: web.Request, number: int) -> web.StreamResponse:
        await asyncio.sleep(0.05)
        return await good(server, request, number)

    arrivals = {"kind": "constant", "max_in_flight": 2}
    asked = workload(min_requests=60, request_rate=(200.0,), arrivals=arrivals, warmup_requests_per_user=0)
    record, server = level_of(answer, asked, Load(request_rate=200.0))
    assert server.most_in_flight == 2
    metrics = level_metrics(record)
    assert metrics.send_lag_ms_p99 is not None
    assert metrics.send_lag_ms_p99 > 100
    assert "fell behind its schedule" in (client_limit(metrics, asked) or "")


def test_a_stop_ends_an_open_loop_and_what_is_in_flight() -> None:
    async def story() -> LevelRecord:
        async with StreamServer(hang) as server:
            record = await run_level(
                server.url,
                workload(request_rate=(200.0,)),
                Load(request_rate=200.0),
                should_stop=lambda: server.in_flight >= 10,
                counters=dict,
            )
            while server.in_flight:
                await asyncio.sleep(0.001)
            return record

    record: LevelRecord = run(story())
    assert not record.completed
    assert record.window_s is None
    assert {r.error_kind for r in record.requests} == {"cancelled"}


def test_steps_of_the_wall_clock_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every stamp and every limit is monotonic."""
    wall = itertools.cycle([0.0, 1e9, -1e9])
    monkeypatch.setattr("time.time", lambda: next(wall))
    record, _ = level_of(good, workload(3), 4)
    assert level_metrics(record).requests_total == 12
    assert all(r.started_s <= r.finished_s for r in record.requests)
