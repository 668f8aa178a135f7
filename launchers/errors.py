"""One error type per remedy. All survive pickling, since Ray carries them between processes."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, ClassVar, Self

from launchers.base import Phase


class Remedy(StrEnum):
    """What is to be done about a failed trial."""

    #: Start the same configuration again: the next start differs in what went wrong (a port, a leftover).
    RETRY_HERE = "retry here"
    #: Start it again, on another node where there is one: the node may be at fault.
    RETRY_ELSEWHERE = "retry elsewhere"
    #: The configuration cannot run: never launch it again, and tell the search so.
    INFEASIBLE = "mark infeasible"
    #: Every further trial would meet it: a person has to mend the space or the machine first.
    STOP_STUDY = "stop the study"


class LaunchError(Exception):
    """A server that did not become ready, or did not stay so. Each subclass has one remedy.

    `kind` is the class's stable name in results; `remedy_of` leads back from it.
    """

    kind: ClassVar[str]
    remedy: ClassVar[Remedy]

    def __init__(
        self,
        what: str,
        *,
        phase: Phase = Phase.SPAWNED,
        exit_code: int | None = None,
        lines: tuple[str, ...] = (),
        hint: str = "",
        detail: str | None = None,
        tail: str = "",
        log: str | None = None,
    ) -> None:
        """`what` happened and where; the other fields are described where they are kept."""
        super().__init__(what)
        self.what = what
        #: Where the server was.
        self.phase = phase
        #: Negative: the signal. None where it did not end by itself.
        self.exit_code = exit_code
        #: The few lines of its log that tell the cause, most telling first; empty where none does.
        self.lines = lines
        #: What a person can do.
        self.hint = hint
        #: A finer word, of those that the subclass names.
        self.detail = detail
        #: The last lines the server printed.
        self.tail = tail
        #: Name of the start's log file, in the folder of logs.
        self.log = log

    @property
    def message(self) -> str:
        """What happened, what to do, and where the whole log is."""
        hint = f": {self.hint}" if self.hint else ""
        return f"{self.what}{hint}{f' (log: {self.log})' if self.log else ''}"

    def __str__(self) -> str:
        return self.message

    def logged_in(self, log: str) -> Self:
        """This error with the name of its start's log file."""
        return type(self)(**self._fields() | {"log": log})

    def _fields(self) -> dict[str, Any]:
        names = ("what", "phase", "exit_code", "lines", "hint", "detail", "tail", "log")
        return {name: getattr(self, name) for name in names}

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self._fields()))


def _rebuild(kind: type[LaunchError], fields: dict[str, Any]) -> LaunchError:
    return kind(**fields)


# ---- the command and its settings --------------------------------------------------------------------------


class CannotRun(LaunchError):
    """The command or its log cannot even be opened."""

    kind = "cannot_run"
    remedy = Remedy.STOP_STUDY


class BadArgument(LaunchError):
    """The server does not know a flag or a value."""

    kind = "bad_argument"
    remedy = Remedy.STOP_STUDY


class InvalidCombination(LaunchError):
    """The server refuses this combination of known settings."""

    kind = "invalid_combination"
    remedy = Remedy.INFEASIBLE


class Unsupported(LaunchError):
    """A kernel, an architecture or a model that the setting needs does not exist here."""

    kind = "unsupported"
    remedy = Remedy.INFEASIBLE


class ModelUnavailable(LaunchError):
    """A model or drafter cannot be read; `detail`: missing, gated or code (it brings its own)."""

    kind = "model_unavailable"
    remedy = Remedy.STOP_STUDY


# ---- memory ------------------------------------------------------------------------------------------------


class OutOfMemory(LaunchError):
    """GPU memory does not suffice for the configuration; the phase tells what for.

    `detail` is the way to move mem-fraction-static, lower or raise; None where it does not help.
    """

    kind = "out_of_memory"
    remedy = Remedy.INFEASIBLE


class OutOfKVCache(OutOfMemory):
    """The KV cache of a server under load does not suffice for its requests."""

    kind = "out_of_kv_cache"


class OutOfHostMemory(OutOfMemory):
    """The host's memory does not suffice."""

    kind = "out_of_host_memory"


class SharedMemoryFull(LaunchError):
    """/dev/shm is full or too small: no server that needs it can live here."""

    kind = "shared_memory_full"
    remedy = Remedy.STOP_STUDY


class DiskFull(LaunchError):
    """A disk has no room left."""

    kind = "disk_full"
    remedy = Remedy.STOP_STUDY


# ---- the node ----------------------------------------------------------------------------------------------


class GpuBusy(LaunchError):
    """A GPU has less free memory than the others, and who holds it is not known."""

    kind = "gpu_busy"
    remedy = Remedy.RETRY_ELSEWHERE


class GpuBusyByOurs(GpuBusy):
    """What an earlier server of ours left holds a GPU: once it is gone, the start may succeed."""

    kind = "gpu_busy_ours"
    remedy = Remedy.RETRY_HERE


class GpuBusyByOther(GpuBusy):
    """Someone else's process holds a GPU. It is not ours to kill."""

    kind = "gpu_busy_other"
    remedy = Remedy.STOP_STUDY


class UnequalGpus(LaunchError):
    """Nobody holds a GPU, and yet they have unequal memory: this set of them does not serve this setting."""

    kind = "unequal_gpus"
    remedy = Remedy.INFEASIBLE


class PortTaken(LaunchError):
    """Another program holds a port, `detail`: http, nccl or internal. The next start gets other ports."""

    kind = "port_conflict"
    remedy = Remedy.RETRY_HERE


class NotOurs(PortTaken):
    """Another server answers on the port: nothing it says is measured."""

    kind = "not_ours"


class KilledFromOutside(LaunchError):
    """A signal ended it that nobody here sent: the kernel when memory ran out, or a person."""

    kind = "killed_from_outside"
    remedy = Remedy.RETRY_ELSEWHERE


class NotStopped(LaunchError):
    """Processes of a failed start are still there: the node is not fit for another start."""

    kind = "not_stopped"
    remedy = Remedy.STOP_STUDY


# ---- NCCL --------------------------------------------------------------------------------------------------


class NcclNvls(LaunchError):
    """NCCL cannot set up NVLink SHARP. Holds for NCCL_NVLS_ENABLE as it was; with 0 it is not asked for."""

    kind = "nccl_nvls"
    remedy = Remedy.INFEASIBLE


class NcclAlgorithm(LaunchError):
    """NCCL_ALGO and NCCL_PROTO cannot be read, or leave no way to run a collective."""

    kind = "nccl_algorithm"
    remedy = Remedy.INFEASIBLE


class NcclTimeout(LaunchError):
    """A collective did not end in time: a rank hangs."""

    kind = "nccl_timeout"
    remedy = Remedy.RETRY_ELSEWHERE


class NcclUnknown(LaunchError):
    """NCCL failed without naming a cause; started again with NCCL_DEBUG=INFO it may name one."""

    kind = "nccl_unknown"
    remedy = Remedy.RETRY_HERE


# ---- time --------------------------------------------------------------------------------------------------


class Stalled(LaunchError):
    """Nothing of the server moved for too long: of its start, or of its answers to requests."""

    kind = "stalled"
    remedy = Remedy.RETRY_ELSEWHERE


class StartTimeout(LaunchError):
    """The deadline passed before the server was ready. It moved on until then, so it would again."""

    kind = "start_timeout"
    remedy = Remedy.INFEASIBLE


class StartCancelled(LaunchError):
    """The start was given up because the sweep is stopping. Says nothing about the configuration."""

    kind = "cancelled"
    remedy = Remedy.RETRY_HERE


class WatchdogHang(LaunchError):
    """The scheduler made no progress under load until SGLang's own watchdog ended it."""

    kind = "watchdog_hang"
    remedy = Remedy.RETRY_ELSEWHERE


# ---- the server --------------------------------------------------------------------------------------------


class ServerCrashed(LaunchError):
    """A ready server ended by itself, or one of its processes broke down in any phase."""

    kind = "crashed"
    remedy = Remedy.RETRY_ELSEWHERE


class CudaError(ServerCrashed):
    """A kernel failed on the GPU, at the start or under load."""

    kind = "cuda_error"


class Unreachable(LaunchError):
    """The server's port does not answer although its process runs."""

    kind = "server_unreachable"
    remedy = Remedy.RETRY_HERE


class ReadyButNoGeneration(LaunchError):
    """It says that it is healthy, and generates nothing."""

    kind = "ready_but_no_generation"
    remedy = Remedy.RETRY_HERE


class UnknownFailure(LaunchError):
    """No rule knows why it ended: its tail is all there is."""

    kind = "unknown"
    remedy = Remedy.RETRY_HERE


def _every(base: type[LaunchError]) -> Iterator[type[LaunchError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _every(kind)


_REMEDIES = {error.kind: error.remedy for error in _every(LaunchError)}


def remedy_of(kind: str | None) -> Remedy | None:
    """What to do about a stored failure; None for kinds that no launcher raises."""
    return _REMEDIES.get(kind or "")
