"""The environment that a server inherits: that of its node, without what Ray and the orchestrator put into it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

#: Not the server's business: Ray's settings and those of its Tune, and the owner's own.
_PRIVATE = ("RAY_", "TUNE_", "ORCHESTRATOR_")
#: What a Ray worker sets in itself once it runs (Ray 2.60, _private/utils.py and accelerators/, seen on a node
#: with `CUDA_VISIBLE_DEVICES=5,3`: the worker had 3,5): threads by the CPUs of its task, 1 where it has none,
#: the GPUs that it was given, in an order of its own, and its debugger.
_SET_BY_RAY = frozenset(
    {
        "OMP_NUM_THREADS",
        "PYTHONBREAKPOINT",
        "SPT_NOENV",
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "ONEAPI_DEVICE_SELECTOR",
        "ZE_AFFINITY_MASK",
        "ASCEND_RT_VISIBLE_DEVICES",
    }
)
#: Where the interpreter of an activated environment is, and where it imports from: wrong for any other one.
_OF_THE_INTERPRETER = frozenset({"VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT", "PYTHONHOME", "PYTHONPATH"})


def started_with(pid: int | str = "self") -> dict[str, str]:
    """The variables that a process was started with, empty where they cannot be read."""
    with contextlib.suppress(OSError):
        return parse_environ(Path(f"/proc/{pid}/environ").read_bytes())
    return {}


def parse_environ(raw: bytes) -> dict[str, str]:
    """/proc/PID/environ by name. Without what a process wrote over it: a title has no `NAME=` (setproctitle)."""
    pairs = (word.partition("=") for word in raw.decode(errors="surrogateescape").split("\0"))
    return {name: value for name, equals, value in pairs if equals and name.isidentifier()}


def node_environment(current: Mapping[str, str], started: Mapping[str, str]) -> dict[str, str]:
    """The environment of the node: `current` is the owner's, `started` the one that it was started with.

    In a Ray worker what Ray sets is as the node was started with it, and left out where it was not.
    """
    kept = {name: value for name, value in current.items() if not name.startswith(_PRIVATE)}
    if "RAY_RAYLET_PID" not in current:
        return kept
    kept = {name: value for name, value in kept.items() if name not in _SET_BY_RAY}
    # The worker's own process title needs it, and nobody else put it there.
    restored = _SET_BY_RAY - {"SPT_NOENV"}
    return kept | {name: started[name] for name in restored if name in started}


def for_interpreter(env: Mapping[str, str], python: str, own: str) -> dict[str, str]:
    """`env` for a program of the interpreter `python`, a path; `own` is the one that `env` is from.

    As an activated environment has it: the folder of `python` is the first of PATH, since kernels are built at
    run time with tools that lie beside it (ninja). Under another interpreter our own environment is not active.
    """
    folder, mine = (os.path.dirname(os.path.abspath(path)) for path in (python, own))
    path = [part for part in env.get("PATH", os.defpath).split(os.pathsep) if part not in (folder, mine)]
    kept = {name: value for name, value in env.items() if folder == mine or name not in _OF_THE_INTERPRETER}
    return kept | {"PATH": os.pathsep.join([folder, *path])}
