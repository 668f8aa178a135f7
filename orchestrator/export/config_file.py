"""A setting as the YAML file that SGLang reads with `--config`. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from launchers.base import Flags, shell_command, to_argv
from launchers.simulated import flags as known
from orchestrator.export.artefact import Artefact, twin_root
from orchestrator.export.choice import NotExportable
from orchestrator.export.provenance import comment

#: SGLang 0.5.23 puts a true of these as a bare flag; of any other it makes `--flag true` or refuses the file
#: (utils/server_args_config_parser.py).
_SWITCHES = frozenset(known.SWITCHES.split())


#: Stands for the file where it goes to the terminal.
_SOMEWHERE = Path("/path/to/serve.yaml")
#: What systemd reads otherwise than Docker does, which takes a value as it stands.
_QUOTING = re.compile(r"""["'\\]|^\s|\s$""")


def config_yaml(artefact: Artefact, file: Path | None = None) -> str:
    """The file's text; `file` is where it will stand, for the command that its first lines tell.

    Raises NotExportable where that command has a line break.
    """
    inside, beside = split_flags(artefact)
    data: dict[str, Any] = {
        "model-path": artefact.model,
        **inside,
        "host": "127.0.0.1",
        "port": artefact.port,
        "enable-metrics": True,
    }
    told = [
        "",
        "What the file cannot hold is the environment: start it with",
        f"  {_command(artefact, (file or _SOMEWHERE).absolute(), beside)}",
    ]
    if beside:
        told.append("SGLang takes these flags on the command line only: " + ", ".join(beside))
    if artefact.places.unknown:
        told.append("in the folder where the sweep was started.")
    told.append("It asks for no key. For one, add `api-key: SECRET` in a copy that only you can read.")
    body = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=1000)
    return comment((*artefact.provenance, *told)) + body


def _command(artefact: Artefact, file: Path, beside: Flags) -> str:
    """The line to paste into a shell: from anywhere, since relative paths of the settings lead from their folder."""
    folder = artefact.places.folder
    words = [artefact.program, *artefact.entry, "--config", str(file), *to_argv(beside)]
    env = {**({"PYTHONPATH": str(twin_root())} if artefact.twin else {}), **_lines(artefact)}
    line = f"{'' if folder is None else f'cd {shlex.quote(str(folder))} && '}{shell_command(words, env)}"
    if len(line.splitlines()) > 1:
        raise NotExportable(f"the command to start it has a line break, which no comment can hold: {line!r}")
    return line


def _lines(artefact: Artefact) -> Mapping[str, str]:
    """The environment, each value a line. Raises NotExportable."""
    for name, value in artefact.env.items():
        if value and value.splitlines() != [value]:
            raise NotExportable(
                f"the value of the variable {name} has a line break, which neither an .env file nor a comment can "
                "hold: take --to shell or --to docker"
            )
    return artefact.env


def split_flags(artefact: Artefact) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The flags that a file may hold, and those that stand on the command line only."""
    beside = {name: value for name, value in artefact.flags.items() if value is True and name not in _SWITCHES}
    return {name: value for name, value in artefact.flags.items() if name not in beside}, beside


def environment_file(artefact: Artefact) -> str:
    """The environment as a file for `docker run --env-file`, or for systemd's EnvironmentFile where both read it alike:
    a variable a line. Raises NotExportable for a value with a line break.
    """
    env = _lines(artefact)
    other = [name for name, value in env.items() if _QUOTING.search(value)]
    told = f"For `docker run --env-file`; systemd reads the value of {', '.join(other)} otherwise." if other else ""
    head = (*artefact.provenance[:1], *([told] if told else []))
    return comment(head) + "".join(f"{key}={value}\n" for key, value in env.items())
