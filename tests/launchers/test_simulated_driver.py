"""The engine in real time: steps are due at absolute times, a slow reader loses nothing."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest
import yaml
from simulated_twin import events, twin, wait_until

from launchers.simulated.driver import Driver
from launchers.simulated.engine import Engine, EngineConfig
from launchers.simulated.profile import load_profile
from launchers.simulated.request import Request
from launchers.simulated.tokens import TokenSource


class TenMilliseconds:
    """Every step takes 10 ms."""

    speculative = False

    def prefill_s(self, new_tokens: int, requests: int) -> float:
        return 0.01

    def decode_s(self, batch: int, context_tokens: int) -> float:
        return 0.01

    def accept_tokens(self, rng: random.Random) -> int:
        return 1


class LateTimers:
    """A clock whose sleeps end late by the given seconds, in turn."""

    def __init__(self, *late_s: float) -> None:
        self.now_s = 100.0
        self._late_s = list(late_s)

    def clock(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds + (self._late_s.pop(0) if self._late_s else 0.0)
        await asyncio.sleep(0)


def run(timers: LateTimers, tokens: int) -> tuple[Driver, list[float]]:
    """Seconds on the engine's and on the wall's clock at which tokens came."""

    async def drive() -> tuple[Driver, list[float]]:
        engine = Engine(EngineConfig(kv_tokens=1000, max_running_requests=4), TenMilliseconds())
        driver = Driver(engine, timers.clock, sleep=timers.sleep)
        source = TokenSource(1, 1000, 0.0)
        request = Request("a", (1, 2, 3), tokens, source, random.Random(0), arrived_s=timers.clock())
        walls: list[float] = []
        request.on_tokens = lambda *_: walls.append(timers.now_s)
        task = asyncio.create_task(driver.run())
        driver.submit(request)
        while request.finish is None:
            await asyncio.sleep(0)
        task.cancel()
        return driver, walls

    return asyncio.run(drive())


def test_late_timers_do_not_add_up() -> None:
    driver, walls = run(LateTimers(*[0.004] * 50), 50)
    assert walls[-1] == pytest.approx(100.0 + 50 * 0.01 + 0.004)
    assert driver.resyncs == 0
    assert driver.max_late_s == pytest.approx(0.004)


def test_a_step_that_is_far_too_late_is_not_caught_up() -> None:
    driver, walls = run(LateTimers(0.0, 0.0, 1.0), 10)
    assert driver.resyncs == 1
    assert walls[-1] == pytest.approx(100.0 + 10 * 0.01 + 1.0), "the second lost is not made good by a burst"


def test_a_slow_reader_gets_every_event_in_order(tmp_path: Path) -> None:
    profile = load_profile("tiny").model_dump(mode="json", exclude={"fault", "targets"})
    profile["compute"] |= {"step_s": 0, "token_s": 0, "kv_read_s_per_token": 0}
    profile["communication"]["allreduces_per_step"] = 0
    path = tmp_path / "instant.yaml"
    path.write_text(yaml.safe_dump(profile))
    with twin(tmp_path, "--enable-metrics", profile=str(path)) as server:
        # 10 MB of answer: far more than the connection's buffers hold
        answer = server.generate(1500, stream=True)
        wait_until(
            lambda: 'is_streaming="true",model_name="example/tiny"} 1500.0' in server.get("/metrics").text,
            "the engine is done while nothing was read",
        )
        told = events(answer)
    assert told[-1] == "[DONE]"
    counts = [json.loads(t)["meta_info"]["completion_tokens"] for t in told[:-1]]
    assert counts == list(range(1, 1501))
