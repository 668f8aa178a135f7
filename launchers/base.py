"""What a launcher promises: a server started from a LaunchSpec, its URL once ready, and proof that it is gone."""

from __future__ import annotations

import json
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from launchers.errors import LaunchError

Flags = Mapping[str, Any]


class Phase(StrEnum):
    """Where a start is. The order is the order of a start; `ready` is reached once."""

    SPAWNED = "spawned"
    DISTRIBUTED_INIT = "distributed init"
    LOADING_WEIGHTS = "loading weights"
    KV_POOL = "kv pool"
    GRAPH_CAPTURE = "graph capture"
    WARMUP = "warm-up"
    READY = "ready"


@dataclass(frozen=True)
class LaunchSpec:
    """What to start: flags without dashes (None leaves one out), environment, GPUs of the node."""

    model: str
    flags: Flags = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 0
    #: Written into the server's environment, so that what was left behind can be found and told from others'.
    study_marker: str = ""
    #: Differs from run to run of the orchestrator: a marker of this study from another run is a leftover.
    run_marker: str = ""


def to_argv(flags: Flags) -> list[str]:
    """Flags as words of a command line, in the mapping's order.

    True is the bare flag, False and None leave it out, a list is several words, a mapping is JSON.
    """
    argv: list[str] = []
    for name, value in flags.items():
        if value is None or value is False:
            continue
        argv.append(f"--{name}")
        if value is True:
            continue
        if isinstance(value, Mapping):
            argv.append(json.dumps(value, sort_keys=True))
        elif isinstance(value, str) or not isinstance(value, Sequence):
            argv.append(str(value))
        else:
            argv.extend(str(item) for item in value)
    return argv


def shell_command(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """One line to paste into a shell: the environment's assignments before the command, all quoted."""
    return " ".join([*(f"{k}={shlex.quote(v)}" for k, v in env.items()), shlex.join(argv)])


@dataclass(frozen=True)
class StopReport:
    """How a server ended and the proof that it is gone."""

    exit_code: int | None
    #: Seconds from the first signal until the last process was gone.
    took_s: float
    #: Signals sent, in order.
    signals: tuple[str, ...]
    #: Processes still alive at the end; empty means proven stopped.
    survivors: tuple[int, ...]
    port_free: bool

    @property
    def proven(self) -> bool:
        """Whether nothing of the server is left."""
        return not self.survivors and self.port_free


class ServerHandle(ABC):
    """A running, ready server. A context manager: leaving it stops the server and proves it."""

    url: str
    #: Differs from start to start, over all nodes and runs.
    start_id: str
    #: Seconds of each phase by its name; simulated seconds where `simulated`.
    phase_s: Mapping[str, float]
    simulated: bool

    @abstractmethod
    def alive(self) -> bool:
        """Whether the server's main process is running."""

    @abstractmethod
    def failure(self) -> LaunchError:
        """What its log says about a server that ended by itself."""

    @abstractmethod
    def stop(self) -> StopReport:
        """Stop the server; return when every member is dead. A second call returns the first report."""

    def __enter__(self) -> ServerHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


#: Told of each phase as it begins.
OnPhase = Callable[[Phase], None]
#: Polled while waiting; True aborts the start.
ShouldStop = Callable[[], bool]


class Launcher(ABC):
    """Starts servers on the node it runs on."""

    #: Whether what it starts is simulated; every row measured on it says so.
    simulated: bool

    @abstractmethod
    def command(self, spec: LaunchSpec, port: int) -> tuple[list[str], dict[str, str]]:
        """The words of the command and the variables that are set for it, without those inherited."""

    @abstractmethod
    def launch(self, spec: LaunchSpec, on_phase: OnPhase, should_stop: ShouldStop) -> ServerHandle:
        """Start a server and wait until it has answered a generation.

        Raises a `launchers.errors.LaunchError` when it cannot; nothing is then left running, unless it is a
        `NotStopped`.
        """

    @abstractmethod
    def gpu_names(self) -> tuple[str, ...]:
        """The GPUs of the node, one name each; simulated ones where `simulated`."""

    @abstractmethod
    def versions(self) -> Mapping[str, str]:
        """Versions of what is launched, by package."""
