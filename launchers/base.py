"""What a launcher promises: a server started from a LaunchSpec, its URL once ready, and proof that it is gone."""

from __future__ import annotations

import json
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from launchers.errors import LaunchError
    from launchers.preflight import NodeReport, NodeRequest
    from launchers.serving import ServingWatch

Flags = Mapping[str, Any]


class Phase(StrEnum):
    """Where a start is. The order is the order of a start; `ready` is reached once."""

    SPAWNED = "spawned"
    DISTRIBUTED_INIT = "distributed init"
    LOADING_WEIGHTS = "loading weights"
    #: Every file is read; weights are converted, and ranks wait for each other.
    PROCESSING_WEIGHTS = "processing weights"
    LOADING_DRAFT = "loading draft weights"
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
    #: Where the server runs, for relative paths among its flags; None or absent on this node: where its owner does.
    folder: Path | None = None


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
    #: Processes still alive at the end.
    survivors: tuple[int, ...]
    #: Its ports that cannot be bound again.
    ports_held: tuple[int, ...] = ()
    #: Its files in /dev/shm, which outlive it: those removed after its end, and those that could not be.
    shm_removed: tuple[str, ...] = ()
    shm_left: tuple[str, ...] = ()
    #: GPU memory that did not come back, over all GPUs, in MiB; None where there is none to watch.
    gpu_memory_left_mib: int | None = None

    @property
    def proven(self) -> bool:
        """Whether nothing of the server is left."""
        return not (self.survivors or self.ports_held or self.shm_left or self.gpu_memory_left_mib)

    @property
    def left(self) -> str:
        """What is left, for a person; empty where nothing is."""
        parts = {
            "processes {} do not die": self.survivors,
            "ports {} are still held": self.ports_held,
            "files {} stay in /dev/shm": self.shm_left,
            "{} MiB of GPU memory are not released": self.gpu_memory_left_mib,
        }
        return ", ".join(
            text.format(", ".join(map(str, value)) if isinstance(value, tuple) else value)
            for text, value in parts.items()
            if value
        )

    def as_dict(self) -> dict[str, Any]:
        """Its fields by name, ready for JSON."""
        return {**asdict(self), "proven": self.proven}


class ServerHandle(ABC):
    """A running, ready server. A context manager: leaving it stops the server and proves it."""

    url: str
    #: The name that this server alone answers to: what a request for another server names is refused.
    model: str
    #: Sent with every request (`Authorization: Bearer`); None where the server asks for none. A secret.
    api_key: str | None
    #: Everything that it has printed, without secrets.
    log: Path
    #: Differs from start to start, over all nodes and runs.
    start_id: str
    #: Seconds of each phase by its name; simulated seconds where `simulated`.
    phase_s: Mapping[str, float]
    simulated: bool

    @abstractmethod
    def alive(self) -> bool:
        """Whether the server's main process is running."""

    @abstractmethod
    def environment(self) -> Mapping[str, str]:
        """The variables that its main process was started with, secrets blotted out; empty once it has ended."""

    @abstractmethod
    def failure(self) -> LaunchError | None:
        """Why a server ended that was not asked to, whatever its exit code; None after a stop of our own."""

    @abstractmethod
    def watch(self, when: str) -> ServingWatch:
        """What notices that it hangs while requests are open; `when` is told with it ("under 8 users")."""

    @abstractmethod
    def stop(self) -> StopReport:
        """Stop the server; return when every member is dead. A second call returns the first report."""

    def __enter__(self) -> ServerHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@dataclass(frozen=True)
class StartProgress:
    """Where a start is."""

    phase: Phase
    #: Weight files of the phase's model loaded and in all, once the server told it; None outside of loading.
    shards: tuple[int, int] | None = None
    #: Why the phase may take long this time, where the server said so.
    note: str | None = None


#: Told of each phase as it begins, and of each step within one.
OnProgress = Callable[[StartProgress], None]
#: Polled while waiting; True aborts the start.
ShouldStop = Callable[[], bool]


class Launcher(ABC):
    """Starts servers on the node it runs on."""

    #: Whether what it starts is simulated; every row measured on it says so.
    simulated: bool

    @abstractmethod
    def command(self, spec: LaunchSpec, port: int) -> tuple[list[str], dict[str, str]]:
        """The words of the command and the variables that are set for it, without those inherited."""

    def preflight(self, spec: LaunchSpec) -> None:  # noqa: B027 - most launchers can tell nothing
        """Raise what the server itself would end with, found without starting it.

        Raises `InvalidCombination` or `BadArgument`; says nothing of a setting that it cannot judge.
        """

    @property
    def findings(self) -> tuple[str, ...]:
        """Where the rules were found to differ from the server itself so far, one sentence each."""
        return ()

    def check_node(self, request: NodeRequest) -> NodeReport:
        """What of this node would spoil the first start. Nothing where nothing can be told beforehand."""
        from launchers.preflight import NodeReport

        return NodeReport()

    @abstractmethod
    def launch(self, spec: LaunchSpec, on_progress: OnProgress, should_stop: ShouldStop) -> ServerHandle:
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
