"""Watching one start until the server has generated a token, or can no longer become ready."""

from __future__ import annotations

import codecs
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import requests

from launchers.base import OnPhase, Phase, ShouldStop
from launchers.dialect import Dialect
from launchers.errors import PortTaken, StartCancelled, StartTimeout
from launchers.process import OwnedProcess, PortHolder

_POLL_S = 0.05
#: /health runs a request of one token: 1 s at least, and SGLang itself gives up on it after 20 s.
_ANSWER_TIMEOUT_S = 25.0
#: As much of a log as is read at once, and for the reason of an end.
LOG_BYTES = 1 << 20


class LogFollower:
    """The text that a log has grown by since it was last asked."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def new_text(self) -> str:
        """At most a megabyte; empty when the log cannot be read."""
        data = b""
        with contextlib.suppress(OSError), self._log.open("rb") as file:
            file.seek(self._read)
            data = file.read(LOG_BYTES)
        self._read += len(data)
        return self._decoder.decode(data)


class Probe:
    """Asks a server until it has generated, in a thread of its own: an answer may take 20 seconds.

    One request is in flight at a time, since probes that pile up have brought servers down. Nothing is sent
    as long as the port is not held by the server itself: SGLang 0.5.23 on a port that another SGLang holds
    prints its ready line, and the other one answers its health checks.
    """

    def __init__(self, process: OwnedProcess, answer_timeout_s: float = _ANSWER_TIMEOUT_S) -> None:
        self._process = process
        self._url = f"http://127.0.0.1:{process.port}"
        self._timeout_s = answer_timeout_s
        self._over = threading.Event()
        self.ready = False
        #: Another program listens on the port.
        self.foreign = False
        #: What the last request came to, for a person.
        self.last = "the port is closed"
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """No further request; does not wait for the one in flight."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set() and not self._process.ended:
            holder = self._process.port_holder()
            if holder is PortHolder.OTHER and not self._process.ended:
                self.foreign = True
                return
            if holder is PortHolder.SERVER and self._healthy() and self._generates():
                # The holder is asked again: the answer was its own only if it still listens alone.
                self.ready = self._process.port_holder() is PortHolder.SERVER
                if self.ready:
                    return
            self._over.wait(_POLL_S)

    def _healthy(self) -> bool:
        answer = self._ask("GET", "/health")
        return answer is not None and answer.status_code == 200

    def _generates(self) -> bool:
        """Health can lie: ready is what has generated a token."""
        answer = self._ask(
            "POST",
            "/generate",
            {"text": "ready", "sampling_params": {"max_new_tokens": 1, "temperature": 0}},
        )
        if answer is None or answer.status_code != 200:
            return False
        with contextlib.suppress(ValueError, AttributeError):
            if answer.json().get("meta_info", {}).get("completion_tokens"):
                return True
        self.last += ", without a token"
        return False

    def _ask(self, method: str, path: str, body: object = None) -> requests.Response | None:
        try:
            answer = requests.request(method, self._url + path, json=body, timeout=self._timeout_s)
        except requests.RequestException as error:
            self.last = f"{method} {path}: {type(error).__name__}"
            return None
        self.last = f"{method} {path}: status {answer.status_code}"
        return answer


class StartWatch:
    """One start of a process. Its phases are told and timed with `clock`."""

    def __init__(
        self,
        process: OwnedProcess,
        dialect: Dialect,
        on_phase: OnPhase,
        should_stop: ShouldStop,
        *,
        timeout_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._process = process
        self._dialect = dialect
        self._on_phase = on_phase
        self._should_stop = should_stop
        self._timeout_s = timeout_s
        self._clock = clock
        self._log = LogFollower(process.log)
        self._reader = dialect.new_reader()
        self._last_line = ""
        self._began = self._phase_began = clock()
        self._phase = Phase.SPAWNED
        self._wall_s: dict[str, float] = {}
        on_phase(Phase.SPAWNED)

    def until_ready(self) -> dict[str, float]:
        """Wall-clock seconds by phase. Raises a LaunchError; the process is then still to be stopped."""
        probe = Probe(self._process)
        try:
            while not probe.ready:
                self._follow()
                self._check(probe)
        finally:
            probe.end()
        self._follow()
        self._enter(Phase.READY)
        return self._wall_s

    def _check(self, probe: Probe) -> None:
        """Raise what ends the start."""
        if probe.foreign:
            raise PortTaken(
                f"another program listens on port {self._process.port}, which was free when it was chosen: "
                "another port is needed",
                phase=self._phase,
                tail=self._process.tail(),
            )
        if self._process.wait_end(_POLL_S):
            self._follow()
            raise self._dialect.classify(self._process.tail(LOG_BYTES), self._process.exit_code, self._phase)
        if self._should_stop():
            raise StartCancelled("the start was given up: the sweep is stopping", phase=self._phase)
        waited_s = self._clock() - self._began
        if waited_s >= self._timeout_s:
            raise StartTimeout(
                f"not ready {waited_s:.0f} s after the start, in phase {self._phase} ({probe.last}); its last "
                f"line: {self._last_line!r}. If it only loads slowly, raise launcher.startup_timeout_s",
                phase=self._phase,
                tail=self._process.tail(),
            )

    def _follow(self) -> None:
        text = self._log.new_text()
        for phase in self._reader.feed(text):
            self._enter(phase)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if lines:
            self._last_line = lines[-1][-200:]

    def _enter(self, phase: Phase) -> None:
        now = self._clock()
        self._wall_s[str(self._phase)] = now - self._phase_began
        self._phase, self._phase_began = phase, now
        self._on_phase(phase)
