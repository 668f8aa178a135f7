"""The words that a launcher adds to a spec's flags, for a real server and its twin alike. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launchers.base import Flags, LaunchSpec
from launchers.errors import BadArgument
from launchers.identity import Identity
from launchers.secrets import dashed, refuse_secret_flags

#: Flags that the launcher gives, each with what it gives: a second one would silently lose or win.
OWN_FLAGS: Mapping[str, str] = {
    "host": "127.0.0.1",
    "port": "a free one",
    "nccl-port": "a free one",
    "model-path": "`model:`",
    "model": "`model:`",
    "served-model-name": "differs from start to start, so that no other server is measured",
    "config": "holds the server's key",
    "enable-metrics": "always on",
}
#: The private file's name: SGLang 0.5.23 reads no other ending (server_args_config_parser.py).
CONFIG_NAME = "config.yaml"


def refuse_flags(spec: LaunchSpec) -> None:
    """Raises BadArgument for a flag that is a secret, or that the launcher gives by itself."""
    refuse_secret_flags(spec)
    for name, value in spec.flags.items():
        if dashed(name) in OWN_FLAGS and value is not None:
            raise BadArgument(
                f"the flag {name} is set by the launcher itself ({OWN_FLAGS[dashed(name)]})", hint="leave it out"
            )


def listening_words(port: int) -> list[str]:
    """Where it listens, and that it tells its counters."""
    return ["--host", "127.0.0.1", "--port", str(port), "--enable-metrics"]


def private_words(spec: LaunchSpec, identity: Identity, nccl_port: int, config: Path) -> list[str]:
    """What a start adds that concerns nobody but the launcher: who the server is, where its ranks meet."""
    words = ["--served-model-name", identity.model, "--config", str(config)]
    return [*words, "--nccl-port", str(nccl_port)] if _has_one_rendezvous(spec.flags) else words


def config_text(identity: Identity) -> str:
    """What the file behind `--config` holds. SGLang puts it before the command line's words, YAML that JSON is."""
    return json.dumps({"api-key": identity.api_key}) + "\n"


def _has_one_rendezvous(flags: Flags) -> bool:
    """Whether --nccl-port may be pinned: of replicas the second finds it in use, and the start fails.

    Tried with 0.5.23 and two of them (data_parallel_controller.py); with attention DP the ranks share one.
    """
    names = {dashed(name): value for name, value in flags.items()}
    replicas = _size(names, "dp-size", "data-parallel-size", "dp")
    ranks = _size(names, "attn-dp-size", "attention-data-parallel-size")
    return replicas <= 1 or ranks > 1 or bool(names.get("enable-dp-attention"))


def _size(flags: Mapping[str, Any], *names: str) -> int:
    """The value of the first of these names; 1 where none is given, or what is given is no number."""
    for name in names:
        value = flags.get(name)
        if value is not None:
            return int(value) if str(value).isdigit() else 1
    return 1
