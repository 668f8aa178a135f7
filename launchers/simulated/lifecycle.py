"""From the open port to the exit: warm-up, readiness, signals, and what happens when the port is taken."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import signal
import time
from collections.abc import Awaitable
from typing import Any

from aiohttp import web

from launchers.base import Phase
from launchers.simulated.driver import Driver
from launchers.simulated.endings import end, end_by_signal
from launchers.simulated.engine import Engine
from launchers.simulated.faults import Hang, IgnoreSigterm
from launchers.simulated.generation import WARMUP_HEADER
from launchers.simulated.log import Log, SchedulerLog
from launchers.simulated.server import Server
from launchers.simulated.settings import Settings
from launchers.simulated.startup import StartupTime
from launchers.simulated.trouble import Trouble
from launchers.simulated.unrest import RestlessTimes

READY_LINE = "The server is fired up and ready to roll!"
#: SGLang asks its own port for this long, once a second, before it gives its warm-up up (0.5.23).
_WARMUP_PATIENCE_S = 120.0
_WARMUP_BODY = {
    "text": "The capital city of France is",
    "sampling_params": {"temperature": 0, "max_new_tokens": 8},
}


async def serve(settings: Settings, startup: StartupTime, log: Log) -> int:
    """Open the port, warm up, answer until a signal. The exit code; SIGINT and faults end the process."""
    # Each start is another: nobody seeds a machine.
    times = RestlessTimes(settings.times, settings.profile.unrest, random.Random())
    engine = Engine(settings.engine, times, SchedulerLog(log, settings.graphs))
    verdict = settings.verdict
    dies = verdict.rejected is not None and not verdict.ours
    watchdog_s = float(settings.flags.get("watchdog-timeout", 300))
    trouble = Trouble(
        settings.fault,
        log,
        settle_s=5.0 / settings.speedup,
        watchdog_s=watchdog_s,
        warmup_error=verdict.error_text if dies else None,
    )
    driver = Driver(engine, time.monotonic, trouble.before_step)
    server = Server(settings, startup, driver, log, trouble)
    runner = web.AppRunner(server.application(), access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    stop = _Signals(settings)
    pid = os.getpid()
    log.line(f"INFO:     Started server process [{pid}]")
    log.line("INFO:     Waiting for application startup.")
    log.line("INFO:     Application startup complete.")
    try:
        site = web.TCPSite(runner, settings.host, settings.port, backlog=2048, reuse_address=True)
        await site.start()
    except OSError as error:
        return await _port_taken(settings, log, error)
    log.line(f"INFO:     Uvicorn running on http://{settings.host}:{settings.port} (Press CTRL+C to quit)")
    stepping = asyncio.create_task(driver.run())
    tasks = [stepping, asyncio.create_task(_watch(driver, trouble, watchdog_s))]
    warming = asyncio.create_task(_warm_up(settings, server, log))
    try:
        await _first(stop.asked.wait(), warming, stepping)
        if not stop.asked.is_set():
            await _first(stop.asked.wait(), stepping)
        if stop.number == signal.SIGTERM:
            await _drain(server, log)
        log.line("INFO:     Shutting down")
        log.line("INFO:     Waiting for application shutdown.")
        for task in (*tasks, warming):
            task.cancel()
        await runner.cleanup()
        log.line("INFO:     Application shutdown complete.")
        log.line(f"INFO:     Finished server process [{pid}]")
        log.line(f"kill_process_tree called: parent_pid={pid}, include_parent=False, pid={pid}")
    finally:
        for task in (*tasks, warming):
            task.cancel()
    if stop.number == signal.SIGINT:
        end_by_signal(signal.SIGINT)
    return 0


class _Signals:
    """SIGTERM and SIGINT while there is an event loop."""

    def __init__(self, settings: Settings) -> None:
        self.asked = asyncio.Event()
        self.number: signal.Signals | None = None
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._got, signal.SIGINT)
        if not isinstance(settings.fault, IgnoreSigterm):
            loop.add_signal_handler(signal.SIGTERM, self._got, signal.SIGTERM)

    def _got(self, number: signal.Signals) -> None:
        if self.number is None or number is signal.SIGINT:
            self.number = number
        self.asked.set()


async def _first(*awaitables: Awaitable[Any]) -> None:
    """Wait for the first of them; an exception in it is raised."""
    tasks = [asyncio.ensure_future(a) for a in awaitables]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def _warm_up(settings: Settings, server: Server, log: Log) -> None:
    """SGLang's own first request over its own port, then ready."""
    if isinstance(settings.fault, Hang) and settings.fault.phase == "warmup":
        await asyncio.Event().wait()
    if not settings.flags.get("skip-server-warmup"):
        await asyncio.sleep(dict(settings.times.startup_phases())[Phase.WARMUP.value] / settings.speedup)
        await asyncio.to_thread(_own_requests, settings)
    server.ready = True
    log.line(READY_LINE)


def _own_requests(settings: Settings) -> None:
    _ask(settings, "GET", "/model_info")
    status, text = _ask(settings, "POST", "/generate", _WARMUP_BODY)
    if status != 200:
        raise RuntimeError(f"The warm-up request was answered {status}: {text[:200]}")
    _ask(settings, "POST", "/freeze_gc")


def _ask(settings: Settings, method: str, path: str, body: Any = None) -> tuple[int, str]:
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "") else settings.host
    connection = http.client.HTTPConnection(host, settings.port, timeout=60)
    headers = {"Content-Type": "application/json", WARMUP_HEADER: "1"}
    if key := settings.flags.get("api-key"):
        headers["Authorization"] = f"Bearer {key}"
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    finally:
        connection.close()


async def _drain(server: Server, log: Log) -> None:
    """SIGTERM: no longer healthy, and gone when the last request has been answered."""
    server.draining = True
    log.line("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
    while server.generation.inside:
        await asyncio.sleep(0.02)
    log.line("Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[].")


async def _watch(driver: Driver, trouble: Trouble, watchdog_s: float) -> None:
    await driver.hung.wait()
    await asyncio.sleep(watchdog_s)
    trouble.watchdog_fired()


async def _port_taken(settings: Settings, log: Log, error: OSError) -> int:
    """Recorded from 0.5.23: the warm-up asks whoever holds the port, and believes another server's answer."""
    log.line(f"ERROR:    [Errno {error.errno}] {_without_number(error)}")
    log.line("INFO:     Waiting for application shutdown.")
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    return await asyncio.to_thread(_believe_or_give_up, settings, log)


def _believe_or_give_up(settings: Settings, log: Log) -> int:
    last = "no answer"
    until_s = time.monotonic() + _WARMUP_PATIENCE_S / settings.speedup
    while True:
        try:
            status, text = _ask(settings, "GET", "/model_info")
            if status == 200:
                _ask(settings, "POST", "/generate", _WARMUP_BODY)
                log.line(READY_LINE)
                log.line("INFO:     Application shutdown complete.")
                pid = os.getpid()
                log.line(f"kill_process_tree called: parent_pid={pid}, include_parent=False, pid={pid}")
                end(3)
            last = f"res=<Response [{status}]>, res.text={text[:400]!r}"
        except (OSError, http.client.HTTPException) as error:
            last = f"{type(error).__name__}: {error}"
        if time.monotonic() > until_s:
            break
        time.sleep(min(1.0, 1.0 / settings.speedup))
    pid = os.getpid()
    log.line(
        "Initialization failed. warmup error: Traceback (most recent call last):\n"
        '  File "sglang/srt/entrypoints/http_server.py", line 2376, in _execute_server_warmup\n'
        f"AssertionError: {last}\n"
    )
    log.line(f"kill_process_tree called: parent_pid={pid}, include_parent=True, pid={pid}")
    end(-9)


def _without_number(error: OSError) -> str:
    """The message without the `[Errno 98]` that str() puts in front."""
    return str(error.strerror or error)
