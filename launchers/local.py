"""Starting a server on this node and waiting until it answers. SGLang and its twin differ in their command only."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import requests

from launchers.base import Launcher, LaunchSpec, OnPhase, Phase, ServerHandle, ShouldStop, StopReport
from launchers.errors import LaunchError, PortTaken, StartCancelled, StartTimeout
from launchers.process import (
    RUN_MARKER,
    STUDY_MARKER,
    OwnedProcess,
    Ports,
    clean_environment,
)
from launchers.sglang.failures import classify
from launchers.sglang.progress import ProgressReader

_POLL_S = 0.1
#: /health runs a request of one token: 1 s at least, and SGLang itself gives up on it after 20 s.
_HEALTH_TIMEOUT_S = 25.0
_PORT_TRIES = 3


class LocalServer(ServerHandle):
    """A ready server on this node."""

    def __init__(
        self, process: OwnedProcess, url: str, start_id: str, phase_s: Mapping[str, float], simulated: bool
    ) -> None:
        self.process = process
        self.url = url
        self.start_id = start_id
        self.phase_s = phase_s
        self.simulated = simulated

    def alive(self) -> bool:
        """Whether the server's main process is running."""
        return not self.process.ended

    def failure(self) -> LaunchError:
        """What its log says about a server that ended under load."""
        self.process.wait_end(5)
        log = self.process.log.read_text(errors="replace")
        return classify(log, self.process.exit_code, Phase.READY)

    def stop(self) -> StopReport:
        """Stop every process of the server, with proof."""
        return self.process.stop()


class LocalLauncher(Launcher):
    """Starts a command on this node, behind a guard, on a free port."""

    def __init__(
        self,
        log_folder: Path,
        *,
        startup_timeout_s: float,
        stop_grace_s: float = 90.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.log_folder = log_folder
        self._startup_timeout_s = startup_timeout_s
        self._stop_grace_s = stop_grace_s
        self._clock = clock
        self._ports = Ports()

    def own_environment(self) -> dict[str, str]:
        """Variables that this launcher needs, beyond those of the trial."""
        return {}

    @abstractmethod
    def startup_s(self, info: Mapping[str, Any], wall_s: Mapping[str, float]) -> dict[str, float]:
        """Seconds of each phase to store, from /server_info and the wall clock's seconds by phase."""

    def launch(self, spec: LaunchSpec, on_phase: OnPhase, should_stop: ShouldStop) -> LocalServer:
        """Start a server and wait until it has answered a generation.

        A port that is taken is nobody's fault: another one is tried, three times in all.
        """
        for attempt in range(_PORT_TRIES):
            try:
                return self._launch(spec, on_phase, should_stop)
            except PortTaken:
                if attempt == _PORT_TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    def _launch(self, spec: LaunchSpec, on_phase: OnPhase, should_stop: ShouldStop) -> LocalServer:
        port = self._ports.take()
        start_id = uuid.uuid4().hex[:12]
        argv, variables = self.command(spec, port)
        env = clean_environment(os.environ) | self.own_environment() | variables
        env |= {STUDY_MARKER: spec.study_marker, RUN_MARKER: spec.run_marker}
        self.log_folder.mkdir(parents=True, exist_ok=True)
        log = self.log_folder / f"{start_id}.log"
        try:
            process = OwnedProcess(argv, env, log, start_id, port, self._stop_grace_s)
        except OSError as error:
            raise LaunchError(f"{argv[0]} cannot be run: {error}; check launcher.python") from error
        try:
            wall_s = _Watch(self, process, spec, on_phase, should_stop).until_ready()
            url = f"http://127.0.0.1:{port}"
            return LocalServer(
                process, url, start_id, self.startup_s(_server_info(url), wall_s), self.simulated
            )
        except BaseException:
            # The start failed: nothing to drain.
            process.stop(grace_s=5.0)
            raise

    @property
    def startup_timeout_s(self) -> float:
        """The deadline of one start."""
        return self._startup_timeout_s

    @property
    def clock(self) -> Callable[[], float]:
        """The monotonic clock that phases are timed with."""
        return self._clock


class _Watch:
    """One start, watched until the server has generated a token."""

    def __init__(
        self,
        launcher: LocalLauncher,
        process: OwnedProcess,
        spec: LaunchSpec,
        on_phase: OnPhase,
        should_stop: ShouldStop,
    ) -> None:
        self.launcher = launcher
        self.process = process
        self.spec = spec
        self.should_stop = should_stop
        self.reader = ProgressReader()
        self.url = f"http://127.0.0.1:{process.port}"
        self._on_phase = on_phase
        self._began = self._phase_began = launcher.clock()
        self._phase = Phase.SPAWNED
        self._wall_s: dict[str, float] = {}
        self._read = 0
        on_phase(Phase.SPAWNED)

    def until_ready(self) -> dict[str, float]:
        """Wall-clock seconds by phase. Raises a LaunchError."""
        while not (self._healthy() and self._generates()):
            self._follow()
            if self.process.wait_end(_POLL_S):
                raise classify(self._log(), self.process.exit_code, self._phase)
            if self.should_stop():
                raise StartCancelled("the start was given up: the sweep is stopping", phase=self._phase)
            waited = self.launcher.clock() - self._began
            if waited > self.launcher.startup_timeout_s:
                raise StartTimeout(
                    f"not ready {waited:.0f} s after the start, in phase {self._phase}; last line: "
                    f"{self.process.tail(300).strip()[-200:]!r}. Raise launcher.startup_timeout_s if it just loads slowly",
                    phase=self._phase,
                    tail=self.process.tail(),
                )
        self._follow()
        self._enter(Phase.READY)
        return self._wall_s

    def _follow(self) -> None:
        with self.process.log.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        self._read += len(data)
        for phase in self.reader.feed(data.decode(errors="replace")):
            self._enter(phase)

    def _enter(self, phase: Phase) -> None:
        now = self.launcher.clock()
        self._wall_s[self._phase] = now - self._phase_began
        self._phase, self._phase_began = phase, now
        self._on_phase(phase)

    def _healthy(self) -> bool:
        with contextlib.suppress(requests.RequestException):
            return requests.get(f"{self.url}/health", timeout=_HEALTH_TIMEOUT_S).status_code == 200
        return False

    def _generates(self) -> bool:
        """Health can lie: ready is what has answered a generation, and is our own process."""
        body = {"text": "ready", "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
        with contextlib.suppress(requests.RequestException, ValueError):
            answer = requests.post(f"{self.url}/generate", json=body, timeout=_HEALTH_TIMEOUT_S)
            told = answer.json() if answer.status_code == 200 else {}
            return bool(told.get("meta_info", {}).get("completion_tokens")) and not self.process.ended
        return False

    def _log(self) -> str:
        return self.process.log.read_text(errors="replace")


def _server_info(url: str) -> dict[str, Any]:
    """What /server_info tells; empty where it cannot be had, since it is no condition of being ready."""
    with contextlib.suppress(requests.RequestException, ValueError):
        answer = requests.get(f"{url}/server_info", timeout=10)
        told = answer.json() if answer.status_code == 200 else {}
        return told if isinstance(told, dict) else {}
    return {}
