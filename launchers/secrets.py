"""What is a secret, and keeping it out of command lines and of what is stored. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from launchers.base import LaunchSpec
from launchers.errors import BadArgument

#: SGLang's flags whose value is a secret (0.5.23): a command line can be read by everyone on the machine.
SECRET_FLAGS = frozenset({"api-key", "admin-api-key", "ssl-keyfile-password"})
#: argparse takes the beginning of a flag for it; shorter ones are other flags, or ambiguous.
_SHORTEST_BEGINNINGS = ("ap", "adm", "ssl-keyfile-")
_SECRET_VARIABLE = re.compile(r"(?:^|_)(?:\w*KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(?:_|$)", re.IGNORECASE)
#: Shorter values ("1", "true") are switches, and blotting them out would spoil a text.
_SHORTEST = 6
BLOT = "<redacted>"


def dashed(flag: str) -> str:
    """A flag's name as SGLang's usage text has it."""
    return flag.lstrip("-").replace("_", "-")


def is_secret_flag(flag: str) -> bool:
    """Whether SGLang takes it for a flag whose value is a secret."""
    name = dashed(flag)
    return any(secret.startswith(name) for secret in SECRET_FLAGS) and name.startswith(_SHORTEST_BEGINNINGS)


def refuse_secret_flags(spec: LaunchSpec) -> None:
    """Raises BadArgument for a flag that would put a secret on the command line."""
    for name, value in spec.flags.items():
        if is_secret_flag(name) and value is not None:
            raise BadArgument(
                f"the flag {name} would show a secret in the process list and in the server's log",
                hint="leave it out: the server listens on 127.0.0.1 only, with a key made for this one start",
            )


def is_secret_variable(name: str) -> bool:
    """Whether a variable's name says that its value is a secret."""
    return _SECRET_VARIABLE.search(name) is not None


def secret_values(env: Mapping[str, str]) -> frozenset[str]:
    """Values of the variables whose name says that they are secret."""
    return frozenset(v for k, v in env.items() if is_secret_variable(k) and len(v) >= _SHORTEST)


def spellings(secrets: Iterable[str]) -> frozenset[str]:
    """The secrets as they may be printed: as they are, within a Python or JSON text, and line by line."""
    found: set[str] = set()
    for secret in secrets:
        lines = {line for line in secret.splitlines() if len(line) >= _SHORTEST}
        found |= {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], *lines}
    return frozenset(found)


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret blotted out."""
    for secret in sorted(spellings(secrets), key=len, reverse=True):
        text = text.replace(secret, BLOT)
    return text


def redact_environment(env: Mapping[str, str], secrets: Iterable[str]) -> dict[str, str]:
    """The variables without secrets: those named so, and any that holds one of `secrets`."""
    every = secret_values(env) | frozenset(secrets)
    return {name: redact(value, every) for name, value in env.items()}


def redact_info(told: Any, secrets: Iterable[str]) -> Any:
    """A JSON value that a server answered, without secrets, however deep they lie.

    SGLang 0.5.23 tells its keys in /server_info: under their own names, per DP rank, and in `launch_command`.
    """
    every = tuple(secrets)
    if isinstance(told, str):
        return redact(told, every)
    if isinstance(told, list):
        return [redact_info(item, every) for item in told]
    if isinstance(told, dict):
        return {
            name: BLOT if value and is_secret_flag(str(name)) else redact_info(value, every)
            for name, value in told.items()
        }
    return told
