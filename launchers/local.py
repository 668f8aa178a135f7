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
from launchers.dialect import Dialect
from launchers.errors import CannotRun, LaunchError, NotStopped, PortTaken
from launchers.ports import Ports
from launchers.process import RUN_MARKER, STUDY_MARKER, OwnedProcess, clean_environment
from launchers.secrets import redact_fields, secret_values
from launchers.watch import LOG_BYTES, StartWatch

_PORT_TRIES = 3
#: Of this process: two launchers do not race for the same port.
_PORTS = Ports()
#: A start that failed has nothing to drain.
_FAILED_GRACE_S = 5.0


class LocalServer(ServerHandle):
    """A ready server on this node."""

    def __init__(
        self,
        process: OwnedProcess,
        dialect: Dialect,
        url: str,
        start_id: str,
        phase_s: Mapping[str, float],
        simulated: bool,
        secrets: frozenset[str] = frozenset(),
    ) -> None:
        self.process = process
        self._dialect = dialect
        self.url = url
        self.start_id = start_id
        self.phase_s = phase_s
        self.simulated = simulated
        self._secrets = secrets

    def alive(self) -> bool:
        """Whether the server's main process is running."""
        return not self.process.ended

    def failure(self) -> LaunchError:
        """What its log says about a server that ended by itself."""
        self.process.wait_end(5)
        error = self._dialect.classify(self.process.tail(LOG_BYTES), self.process.exit_code, Phase.READY)
        return _redacted(error, self._secrets)

    def stop(self) -> StopReport:
        """Stop every process of the server, with proof."""
        return self.process.stop()


class LocalLauncher(Launcher):
    """Starts a command on this node, behind a guard, on a free port."""

    def __init__(
        self,
        log_folder: Path,
        dialect: Dialect,
        *,
        startup_timeout_s: float,
        stop_grace_s: float = 90.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`startup_timeout_s` is the deadline of one start, by `clock`; `stop_grace_s` lies between TERM and KILL."""
        self.log_folder = log_folder
        self._dialect = dialect
        self._startup_timeout_s = startup_timeout_s
        self._stop_grace_s = stop_grace_s
        self._clock = clock

    def own_environment(self) -> dict[str, str]:
        """Variables that this launcher needs, beyond those of the trial."""
        return {}

    @abstractmethod
    def startup_s(self, info: Mapping[str, Any], wall_s: Mapping[str, float]) -> dict[str, float]:
        """Seconds of each phase to store, from /server_info and the wall clock's seconds by phase."""

    def launch(self, spec: LaunchSpec, on_phase: OnPhase, should_stop: ShouldStop) -> LocalServer:
        """Start a server and wait until it has answered a generation.

        A port that is taken is nobody's fault: another one is tried, three times in all; the phases then
        begin anew.
        """
        for _ in range(_PORT_TRIES - 1):
            with contextlib.suppress(PortTaken):
                return self._launch(spec, on_phase, should_stop)
        return self._launch(spec, on_phase, should_stop)

    def _launch(self, spec: LaunchSpec, on_phase: OnPhase, should_stop: ShouldStop) -> LocalServer:
        start_id = uuid.uuid4().hex[:12]
        process, secrets = self._spawn(spec, start_id)
        try:
            watch = StartWatch(
                process, self._dialect, on_phase, should_stop, timeout_s=self._startup_timeout_s, clock=self._clock
            )
            wall_s = watch.until_ready()
            url = f"http://127.0.0.1:{process.port}"
            phase_s = self.startup_s(_server_info(url), wall_s)
            return LocalServer(process, self._dialect, url, start_id, phase_s, self.simulated, secrets)
        except BaseException as error:
            report = process.stop(_FAILED_GRACE_S)
            if report.survivors:
                raise NotStopped(
                    f"processes {list(report.survivors)} of a failed start ({error}) do not die, so the node "
                    "cannot be used: stop them by hand, or restart the machine",
                    phase=getattr(error, "phase", Phase.SPAWNED),
                    exit_code=report.exit_code,
                ) from error
            if isinstance(error, LaunchError):
                raise _redacted(error, secrets) from error.__cause__
            raise

    def _spawn(self, spec: LaunchSpec, start_id: str) -> tuple[OwnedProcess, frozenset[str]]:
        """The running process, and the secrets that its environment holds. Raises a LaunchError."""
        try:
            port = _PORTS.take()
        except OSError as error:
            raise PortTaken(str(error)) from error
        argv, variables = self.command(spec, port)
        env = clean_environment(os.environ) | self.own_environment() | variables
        env |= {STUDY_MARKER: spec.study_marker, RUN_MARKER: spec.run_marker}
        log = self.log_folder / f"{start_id}.log"
        try:
            self.log_folder.mkdir(parents=True, exist_ok=True)
            log.touch()
        except OSError as error:
            raise CannotRun(
                f"the server's log cannot be written: {error}; make room or check the folder's rights"
            ) from error
        try:
            process = OwnedProcess(argv, env, log, start_id, port, self._stop_grace_s)
        except OSError as error:
            raise CannotRun(f"{argv[0]} cannot be run: {error}; check launcher.python") from error
        return process, secret_values(env)

    @property
    def startup_timeout_s(self) -> float:
        """The deadline of one start."""
        return self._startup_timeout_s


def _redacted(error: LaunchError, secrets: frozenset[str]) -> LaunchError:
    """The error without the secrets that the server's log may have held."""
    fields = redact_fields({"message": error.message, "tail": error.tail}, secrets)
    return type(error)(fields["message"], phase=error.phase, exit_code=error.exit_code, tail=fields["tail"])


def _server_info(url: str) -> dict[str, Any]:
    """What /server_info tells; empty where it cannot be had, since it is no condition of being ready."""
    with contextlib.suppress(requests.RequestException, ValueError):
        answer = requests.get(f"{url}/server_info", timeout=10)
        told = answer.json() if answer.status_code == 200 else {}
        return told if isinstance(told, dict) else {}
    return {}
