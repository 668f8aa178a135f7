"""Keeping secrets out of command lines, messages and logs' excerpts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from launchers.base import LaunchSpec
from launchers.errors import BadArgument

#: SGLang's flags whose value is a secret (0.5.23): a command line can be read by everyone on the machine.
SECRET_FLAGS = frozenset({"api-key", "admin-api-key", "ssl-keyfile-password"})
_SECRET_VARIABLE = re.compile(r"(?:^|_)(?:\w*KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(?:_|$)", re.IGNORECASE)
#: Shorter values ("1", "true") are switches, and blotting them out would spoil a text.
_SHORTEST = 6
BLOT = "<redacted>"


def refuse_secret_flags(spec: LaunchSpec) -> None:
    """Raises BadArgument for a flag that would put a secret on the command line."""
    for name, value in spec.flags.items():
        if name.lstrip("-").replace("_", "-") in SECRET_FLAGS and value is not None:
            raise BadArgument(
                f"the flag {name} would show a secret in the process list and in the server's log, and is not "
                "needed: the server listens on 127.0.0.1 only. Leave it out"
            )


def secret_values(env: Mapping[str, str]) -> frozenset[str]:
    """Values of the variables whose name says that they are secret."""
    return frozenset(v for k, v in env.items() if _SECRET_VARIABLE.search(k) and len(v) >= _SHORTEST)


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret blotted out."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, BLOT)
    return text


def redact_fields(values: Mapping[str, Any], secrets: Iterable[str]) -> dict[str, Any]:
    """The mapping with its texts redacted."""
    secrets = tuple(secrets)
    return {k: redact(v, secrets) if isinstance(v, str) else v for k, v in values.items()}
