"""The node before the first trial: what would spoil a start, told at once and all of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launchers.gpus import Gpu

#: Files that SGLang wants to hold open (0.5.23, `set_ulimit`), and what is enough for a ladder of connections.
_WANTED_FILES, _ENOUGH_FILES = 65_535, 4096
#: A container's usual /dev/shm is too small for NCCL and for SGLang's queues between its processes.
_SMALLEST_SHM_BYTES, _ENOUGH_SHM_BYTES = 128 << 20, 1 << 30
_SMALLEST_DISK_BYTES, _ENOUGH_DISK_BYTES = 200 << 20, 2 << 30
#: What SGLang's processes take of the machine's memory beside weights (1.7 GB seen for a tiny model).
_SMALLEST_MEMORY_BYTES = 4 << 30
#: What a driver holds of a GPU that nobody uses.
_IDLE_MIB = 1024


@dataclass(frozen=True)
class NodeRequest:
    """What a study will ask of a node. Of each setting, every value that it may get."""

    model: str
    flags: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    env: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    gpus: int = 0
    #: Where logs and results are written, each a folder that is there or will be made.
    folders: tuple[Path, ...] = ()
    #: Where the server runs, for relative paths; None: where its owner does.
    folder: Path | None = None
    #: Ids from 0 up to here, exclusive, are sent as prompts.
    prompt_ids: int = 0


@dataclass(frozen=True)
class NodeReport:
    """What was found. Every sentence says what is wrong, why, and what to do."""

    #: Each spoils the first start: nothing is started.
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    #: Whether every pair of the GPUs that are used is joined by NVLink; None where nobody tells.
    nvlink: bool | None = None
    #: The model's architecture as its config.json names it; None where it is not known.
    architecture: str | None = None

    def __add__(self, other: NodeReport) -> NodeReport:
        """Both, in order."""
        return NodeReport(
            self.problems + other.problems,
            self.warnings + other.warnings,
            self.nvlink if other.nvlink is None else other.nvlink,
            self.architecture or other.architecture,
        )


@dataclass(frozen=True)
class NodeState:
    """The node at one moment. None is what could not be read."""

    #: Those that the server will see.
    gpus: tuple[Gpu, ...] = ()
    #: Commands of the processes on them, by pid.
    commands: Mapping[int, str] = field(default_factory=dict)
    shm_bytes: int | None = None
    shm_free_bytes: int | None = None
    #: Free bytes by folder.
    disk_free_bytes: Mapping[str, int] = field(default_factory=dict)
    #: Memory that new processes can have without swapping.
    memory_available_bytes: int | None = None
    memory_total_bytes: int | None = None
    #: Open files, (soft, hard); -1 is no limit.
    open_files: tuple[int, int] | None = None
    #: Locked memory, (soft, hard) in bytes; -1 is no limit.
    locked_bytes: tuple[int, int] | None = None


def judge_node(state: NodeState, *, on_cpu: bool, ranks: int, weight_bytes: int | None, rdma: bool) -> NodeReport:
    """What of the node would spoil or slow down a start.

    `ranks` the server has at most; `weight_bytes` of the model with its largest drafter; `rdma`: NCCL is told to
    use InfiniBand.
    """
    problems = _gpu_problems(state)
    warnings: list[str] = []
    for note, serious in (
        *_shm_notes(state, ranks),
        *_disk_notes(state),
        *_memory_notes(state, on_cpu, weight_bytes),
        *_limit_notes(state, rdma),
    ):
        (problems if serious else warnings).append(note)
    return NodeReport(tuple(problems), tuple(warnings))


def _gpu_problems(state: NodeState) -> list[str]:
    found = []
    for gpu in state.gpus:
        holders = ", ".join(
            f"pid {p.pid} ({state.commands.get(p.pid, 'not visible from here')})" for p in gpu.processes
        )
        if gpu.processes or gpu.used_mib > _IDLE_MIB:
            found.append(
                f"GPU {gpu.index} ({gpu.name}) is in use: {gpu.used_mib:,} of {gpu.total_mib:,} MiB, by "
                f"{holders or 'a process that the driver does not show'}. End what runs there, or give the sweep "
                "other GPUs with CUDA_VISIBLE_DEVICES"
            )
    return found


def _shm_notes(state: NodeState, ranks: int) -> list[tuple[str, bool]]:
    size, free = state.shm_bytes, state.shm_free_bytes
    if size is None or free is None:
        return []
    remedy = "in a container start it with --shm-size=16g or --ipc=host"
    if ranks > 1 and size < _SMALLEST_SHM_BYTES:
        return [(f"/dev/shm has {_size(size)}, too little for NCCL between {ranks} ranks: {remedy}", True)]
    if free < _SMALLEST_SHM_BYTES // 2:
        text = f"/dev/shm has {_size(free)} left of {_size(size)}, and a full one kills servers by SIGBUS"
        return [(f"{text}: remove what dead processes left there, or {remedy}", ranks > 1)]
    if ranks > 1 and free < _ENOUGH_SHM_BYTES:
        return [(f"/dev/shm has only {_size(free)} left: {remedy}", False)]
    return []


def _disk_notes(state: NodeState) -> list[tuple[str, bool]]:
    return [
        (f"{folder} has {_size(free)} left for logs and results: make room", free < _SMALLEST_DISK_BYTES)
        for folder, free in state.disk_free_bytes.items()
        if free < _ENOUGH_DISK_BYTES
    ]


def _memory_notes(state: NodeState, on_cpu: bool, weight_bytes: int | None) -> list[tuple[str, bool]]:
    available, total = state.memory_available_bytes, state.memory_total_bytes
    notes: list[tuple[str, bool]] = []
    if available is None:
        return notes
    if on_cpu and weight_bytes is not None and weight_bytes > available:
        notes.append(
            (f"the weights take {_size(weight_bytes)} of memory and {_size(available)} are available: free some", True)
        )
    elif available < _SMALLEST_MEMORY_BYTES:
        text = f"only {_size(available)} of memory are available, and the kernel kills a server that wants more"
        notes.append((f"{text}: end what takes it", False))
    if not on_cpu and weight_bytes is not None and total is not None and weight_bytes > total:
        notes.append(
            (
                f"the weights are {_size(weight_bytes)} and the memory {_size(total)}, so that each start reads them "
                "from the disk again: count minutes for it",
                False,
            )
        )
    return notes


def _limit_notes(state: NodeState, rdma: bool) -> list[tuple[str, bool]]:
    notes: list[tuple[str, bool]] = []
    if state.open_files is not None:
        soft, hard = state.open_files
        # SGLang raises its own limit, all the way or not at all.
        if 0 <= hard < _WANTED_FILES and 0 <= soft < _ENOUGH_FILES:
            text = (
                f"a process may open {soft} files and SGLang cannot raise that to {_WANTED_FILES} (hard limit {hard})"
            )
            notes.append((f"{text}: raise it with `ulimit -Hn {_WANTED_FILES}` or in limits.conf", False))
    if rdma and state.locked_bytes is not None and state.locked_bytes[1] >= 0:
        text = f"a process may lock {_size(state.locked_bytes[1])} of memory, and InfiniBand needs more"
        notes.append((f"{text}: `ulimit -l unlimited`, in a container --ulimit memlock=-1", False))
    return notes


def _size(number: int) -> str:
    """`1.5 GB`, decimal as disks and models are."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6)):
        if number >= factor:
            return f"{number / factor:,.1f} {unit}"
    return f"{number:,} bytes"
