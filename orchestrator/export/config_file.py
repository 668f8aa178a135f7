"""A setting as the YAML file that SGLang reads with `--config`. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import yaml

from launchers.base import to_argv
from launchers.simulated import flags as known
from orchestrator.export.artefact import Artefact
from orchestrator.export.provenance import comment

#: SGLang 0.5.23 puts a true of these as a bare flag; of any other it makes `--flag true` or refuses the file
#: (utils/server_args_config_parser.py).
_SWITCHES = frozenset(known.SWITCHES.split())


def config_yaml(artefact: Artefact, name: str = "serve.yaml") -> str:
    """The file; `name` is what it is called in the command that its first lines tell."""
    inside, beside = split_flags(artefact)
    data: dict[str, Any] = {
        "model-path": artefact.model,
        **inside,
        "host": "127.0.0.1",
        "port": artefact.port,
        "enable-metrics": True,
    }
    words = [artefact.program, *artefact.entry, "--config", name, *to_argv(beside)]
    env = [f"{key}={shlex.quote(value)}" for key, value in artefact.env.items()]
    told = [
        "",
        "What the file cannot hold is the environment: start it with",
        f"  {' '.join([*env, shlex.join(words)])}",
    ]
    if beside:
        told.append("SGLang takes these flags on the command line only: " + ", ".join(beside))
    if artefact.places.folder is not None:
        told.append(f"in the folder {artefact.places.folder}, where its relative paths lead from.")
    told.append("It asks for no key. For one, add `api-key: SECRET` in a copy that only you can read.")
    body = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=1000)
    return comment((*artefact.provenance, *told)) + body


def split_flags(artefact: Artefact) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The flags that a file may hold, and those that stand on the command line only."""
    beside = {name: value for name, value in artefact.flags.items() if value is True and name not in _SWITCHES}
    return {name: value for name, value in artefact.flags.items() if name not in beside}, beside


def environment_file(artefact: Artefact) -> str:
    """The environment as a file for `docker run --env-file` or systemd's EnvironmentFile: a variable a line."""
    return comment(artefact.provenance[:1]) + "".join(f"{key}={value}\n" for key, value in artefact.env.items())
