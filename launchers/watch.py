"""Watching one start until the server has generated a token, or can no longer become ready."""

from __future__ import annotations

import codecs
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from launchers.base import OnProgress, Phase, ShouldStop, StartProgress
from launchers.dialect import Dialect
from launchers.errors import (
    LaunchError,
    NotOurs,
    PortTaken,
    ReadyButNoGeneration,
    Stalled,
    StartCancelled,
    StartTimeout,
)
from launchers.facts import NodeFacts
from launchers.identity import Identity
from launchers.movement import Look, Movement
from launchers.probe import Probe
from launchers.process import OwnedProcess

_POLL_S = 0.05
#: Looking at every process of the machine takes milliseconds.
_LOOK_S = 2.0
#: As much of a log as is read at once, and for the reason of an end.
LOG_BYTES = 1 << 20


@dataclass(frozen=True)
class StartLimits:
    """How long a start may take. The defaults let 547 GB load from a slow disk."""

    #: The whole start, whatever moves.
    deadline_s: float = 2700.0
    #: Without any movement (see `launchers.movement`), and where a phase has a limit of its own, by its name.
    stall_s: float = 600.0
    stall_s_by_phase: Mapping[str, float] = field(default_factory=dict)
    #: From being healthy, or from the first request that is never answered, to the first token.
    generation_s: float = 300.0
    #: One request, by the real clock. /health runs a request of one token, and SGLang gives up on it after 20 s.
    answer_s: float = 25.0

    def stall_of(self, phase: Phase) -> float:
        """How long nothing may move in a phase."""
        return self.stall_s_by_phase.get(str(phase), self.stall_s)


class LogFollower:
    """The text that a log has grown by since it was last asked."""

    def __init__(self, log: Path, skip: int = 0) -> None:
        """`skip` bytes are not told."""
        self._log = log
        self._read = skip
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def new_text(self) -> str:
        """At most a megabyte; empty when the log cannot be read."""
        data = b""
        with contextlib.suppress(OSError), self._log.open("rb") as file:
            file.seek(self._read)
            data = file.read(LOG_BYTES)
        self._read += len(data)
        return self._decoder.decode(data)


class StartWatch:
    """One start of a process. Its phases are told and timed with `clock`."""

    def __init__(
        self,
        process: OwnedProcess,
        identity: Identity,
        dialect: Dialect,
        on_progress: OnProgress,
        should_stop: ShouldStop,
        *,
        limits: StartLimits,
        clock: Callable[[], float],
        look: Callable[[], Look],
        facts: Callable[[], NodeFacts],
    ) -> None:
        """`look` tells what the process and its children have used by now, `facts` what the node shows at its end."""
        self._process = process
        self._identity = identity
        self._dialect = dialect
        self._on_progress = on_progress
        self._should_stop = should_stop
        self._limits = limits
        self._clock = clock
        self._look = look
        self._facts = facts
        self._log = LogFollower(process.log)
        self._reader = dialect.new_reader()
        self._began = self._phase_began = self._looked = clock()
        self._movement = Movement(self._began)
        self._progress = StartProgress(Phase.SPAWNED)
        self._wall_s: dict[str, float] = {}
        on_progress(self._progress)

    def until_ready(self) -> dict[str, float]:
        """Wall-clock seconds by phase. Raises a LaunchError; the process is then still to be stopped."""
        probe = Probe(self._process, self._identity, self._clock, self._limits.answer_s)
        try:
            while not probe.ready:
                self._follow()
                if probe.port_open:
                    self._reach(Phase.WARMUP)
                self._check(probe)
        finally:
            probe.end()
        self._follow()
        self._reach(Phase.READY)
        return self._wall_s

    def _check(self, probe: Probe) -> None:
        """Raise what ends the start."""
        if probe.foreign:
            raise self._error(
                PortTaken,
                f"another program listens on port {self._process.port}, which was free when it was chosen",
                "another port is needed",
            )
        if probe.stranger:
            raise self._error(NotOurs, f"another server answers on port {self._process.port}: {probe.stranger}")
        if self._process.wait_end(_POLL_S):
            self._follow()
            log, exit_code = self._process.tail(LOG_BYTES), self._process.exit_code
            raise self._dialect.classify(log, exit_code, self._progress.phase, self._facts())
        if self._should_stop():
            raise self._error(StartCancelled, "the start was given up: the sweep is stopping")
        now = self._clock()
        waited_s = now - self._began
        if waited_s >= self._limits.deadline_s:
            raise self._error(
                StartTimeout,
                f"not ready {waited_s:.0f} s after the start, {self._where(probe)}",
                "if it only loads slowly, raise launcher.startup_timeout_s",
            )
        if probe.mute_since_s is not None and now - probe.mute_since_s >= self._limits.generation_s:
            raise self._error(
                ReadyButNoGeneration,
                f"it has generated nothing for {now - probe.mute_since_s:.0f} s, although its port is open "
                f"({probe.last})",
                "its log tells what it does; a scheduler that hangs in its first batch is the usual cause",
            )
        self._check_movement(probe, now)

    def _check_movement(self, probe: Probe, now: float) -> None:
        self._movement.tick(self._reader.lines, now)
        if now - self._looked >= _LOOK_S:
            self._looked = now
            self._movement.look(self._look(), now)
        still = self._movement.stalled(self._progress, self._limits.stall_of(self._progress.phase))
        if still:
            raise self._error(
                Stalled,
                f"{still}, {self._where(probe)}",
                "if it waits for something slow outside of this machine, raise launcher.stall_s",
            )

    def _where(self, probe: Probe) -> str:
        """For a person: the phase, what the last request came to, the last line."""
        shards = self._progress.shards
        files = f", {shards[0]} of {shards[1]} files" if shards else ""
        return f"in phase {self._progress.phase}{files} ({probe.last}); its last line: {self._reader.last_line!r}"

    def _error(self, kind: type[LaunchError], what: str, hint: str = "") -> LaunchError:
        return kind(what, phase=self._progress.phase, hint=hint, tail=self._process.tail())

    def _follow(self) -> None:
        for step in self._reader.feed(self._log.new_text()):
            if step.phase is self._progress.phase:
                self._progress = step
                self._on_progress(step)
            else:
                self._reach(step.phase, step)
        self._movement.tick(self._reader.lines, self._clock())

    def _reach(self, phase: Phase, step: StartProgress | None = None) -> None:
        """A later phase begins; an earlier one was told of too late."""
        order = list(Phase)
        if order.index(phase) <= order.index(self._progress.phase):
            return
        now = self._clock()
        self._wall_s[str(self._progress.phase)] = now - self._phase_began
        self._progress, self._phase_began = step or StartProgress(phase), now
        self._on_progress(self._progress)
