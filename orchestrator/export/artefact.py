"""A trial's setting, ready to be written down in any form. Pure but for looking at paths."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import launchers
from launchers.base import Flags, LaunchSpec
from launchers.command import refuse_flags
from launchers.errors import BadArgument
from launchers.secrets import is_secret_variable
from launchers.simulated.profile import profile_names
from orchestrator.config import SimulatedLauncher
from orchestrator.export.choice import Choice, NotExportable
from orchestrator.export.places import Places, find_places
from orchestrator.export.provenance import provenance
from orchestrator.kept_study import KeptStudy

#: SGLang's own default port.
DEFAULT_PORT = 30_000
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_RELEASE = re.compile(r"\d+\.\d+\.\d+(?:\.post\d+|rc\d+)?")


@dataclass(frozen=True)
class Artefact:
    """What to start, how, and where that comes from."""

    model: str
    flags: Flags
    env: Mapping[str, str]
    #: The interpreter, and the words after it up to the flags; of `sglang serve` the program and its word.
    program: str
    entry: tuple[str, ...]
    #: Whether what is started is the simulated server.
    twin: bool
    #: Whether the figures are a simulated server's.
    simulated: bool
    port: int
    gpus: int
    #: Version of SGLang that was measured, or mimicked; None where it is no release.
    version: str | None
    #: Where the files and folders are that the settings name.
    places: Places
    #: Lines for a comment, these among them.
    provenance: tuple[str, ...]


def artefact(study: KeptStudy, choice: Choice, *, port: int = DEFAULT_PORT, real: bool = False) -> Artefact:
    """The chosen trial's setting. `real`: for a real SGLang, where the study was simulated.

    Raises NotExportable for settings that cannot be written down.
    """
    row = choice.rows[0]
    info, config = row.trial, study.config
    flags = {name: value for name, value in info.requested_flags.items() if value is not None and value is not False}
    env = {name: str(value) for name, value in info.requested_env.items() if value is not None}
    for name in env:
        if is_secret_variable(name):
            raise NotExportable(f"the variable {name} would put a secret into a file: the study cannot be exported")
    try:
        refuse_flags(LaunchSpec(config.model, flags, env))
    except BadArgument as error:
        raise NotExportable(f"trial {choice.trial} cannot be exported: {error}") from error
    twin = info.simulated and not real
    program, entry = _twin(config.launcher) if twin else _real(info.simulated, info.launch_command)
    profile = getattr(config.launcher, "profile", None) if twin else None
    profiles = [] if profile is None or profile in profile_names() else [profile]
    places = find_places(config.model, flags, _folders(study.store.root, program), profiles)
    told = row.start.versions.get("sglang", "")
    version = told.removeprefix("simulated ")
    return Artefact(
        model=config.model,
        flags=flags,
        env=env,
        program=program,
        entry=entry,
        twin=twin,
        simulated=info.simulated,
        port=port,
        gpus=info.gpus,
        version=version if _RELEASE.fullmatch(version) else None,
        places=places,
        provenance=(*provenance(study, choice, twin), *places.told),
    )


def _twin(launcher: Any) -> tuple[str, tuple[str, ...]]:
    assert isinstance(launcher, SimulatedLauncher)
    options = ("--profile", launcher.profile, "--startup-speedup", f"{launcher.startup_speedup:g}")
    return sys.executable, ("-m", "launchers.simulated", *options)


def _real(simulated: bool, command: str | None) -> tuple[str, tuple[str, ...]]:
    """The entry that was measured, as the launch command has it; a simulated one was none."""
    if simulated or command is None:
        return "python3", ("-m", "sglang.launch_server")
    words = shlex.split(command)
    while words and _ASSIGNMENT.match(words[0]):
        words = words[1:]
    if "--model-path" not in words or not words[0]:
        raise NotExportable(f"the launch command of the trial is not one of ours: {command}")
    return words[0], tuple(words[1 : words.index("--model-path")])


def twin_root() -> Path:
    """Where the simulated server is imported from."""
    return Path(launchers.__file__).parents[1]


def _folders(root: Path, program: str) -> Iterator[Path]:
    """Where the sweep may have been started: here, or where the study's folder hangs from, or above an environment of
    its own.
    """
    yield from (Path.cwd(), *root.parents[1:2])
    if os.path.isabs(program):
        yield from Path(program).parents[:-1]
