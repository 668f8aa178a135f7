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
from orchestrator.config import SimulatedLauncher
from orchestrator.export.choice import Choice, NotExportable
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
    #: Where relative paths among the settings are found; None where there are none.
    folder: Path | None
    #: Files and folders of this machine that the settings name, as absolute paths by the text that names them.
    paths: Mapping[str, Path]
    #: What of the settings was not found on this machine, a line each.
    lost: tuple[str, ...]
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
    texts = list(_texts(config.model, flags))
    folder = _folder(texts, study.store.root, program)
    paths = {text: path for text in texts if (path := _path(text, folder or Path.cwd())) is not None}
    lost = tuple(_lost(texts, paths))
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
        folder=folder,
        paths=paths,
        lost=lost,
        provenance=(*provenance(study, choice, twin), *lost),
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


def _texts(model: str, flags: Flags) -> Iterator[str]:
    yield model
    for value in flags.values():
        yield from (text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str))


def _folder(texts: list[str], root: Path, program: str) -> Path | None:
    """Where relative paths among the words lead from, as far as they can be found; None where there are none.

    The sweep was started there: here, or where the study's folder hangs from, or above an environment of its own.
    """
    relative = [text for text in texts if text and not text.startswith(("/", "~"))]
    above = Path(program).parents if os.path.isabs(program) else ()
    for folder in (Path.cwd(), *root.parents[1:2], *above):
        if any(_exists(folder / text) for text in relative):
            return folder
    return None


def _path(text: str, folder: Path) -> Path | None:
    """The file or folder of this machine that a setting names; None for other words."""
    if text.startswith(("/", "~")):
        return Path(os.path.expanduser(text))
    return Path(os.path.normpath(folder / text)) if text and _exists(folder / text) else None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        # A word too long for a name, or one with a null byte.
        return False


def _lost(texts: list[str], paths: Mapping[str, Path]) -> Iterator[str]:
    for text in texts:
        if text.startswith(".") and text not in paths:
            yield f"{text} was not found: start it in the folder where the sweep was started."
