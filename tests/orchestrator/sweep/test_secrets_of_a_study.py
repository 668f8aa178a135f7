"""A whole study keeps no secret: neither the owner's token nor the key that each of its servers is given."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

TOKEN = "hf_planted_token_of_the_owner"


def keys_of_starts(study: str) -> set[str]:
    """Keys of the study's servers that wait to be read by them right now."""
    found = set()
    for file in Path(tempfile.gettempdir()).glob(f"*{study}*/config.yaml"):
        with contextlib.suppress(OSError, ValueError):
            found.add(json.loads(file.read_text())["api-key"])
    return found


def command_lines() -> str:
    """Of every process of the machine."""
    return "\n".join(" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))


def test_neither_a_token_nor_a_key_is_kept_or_shown(sweep: Callable[..., Any]) -> None:
    run = sweep(env={"HF_TOKEN": TOKEN})
    identity = run.root / "study.id"
    run.until(lambda: identity.exists() or run.process.poll() is not None, "the study has an id")
    study = identity.read_text().strip()
    keys: set[str] = set()
    shown: list[str] = []

    def over() -> bool:
        keys.update(keys_of_starts(study))
        if not shown or len(shown) < len(keys):
            shown.append(command_lines())
        return run.process.poll() is not None

    run.until(over, "the study ends")
    assert run.wait() == 0, run.output
    kept = {"output": run.output.encode(), "command lines": "\n".join(shown).encode()}
    for file in run.root.rglob("*"):
        if file.is_file():
            name = str(file.relative_to(run.root))
            kept[name] = file.read_bytes()
            with contextlib.suppress(pa.ArrowInvalid):
                # Compressed on disk.
                kept[f"{name}, rows"] = str(pa.ipc.open_file(file).read_all().to_pylist()).encode()
    assert len([name for name in kept if name.endswith(", rows")]) > 3
    starts = {row.start.start_id for trial in run.store.trials().values() for row in trial}
    # Each start has its own.
    assert len(starts) == len(keys) == 3
    # The servers did print their keys.
    assert all(b"'api_key': '<redacted>'" in kept[f"logs/{start}.log"] for start in starts)
    for secret in (TOKEN, *keys):
        assert [name for name, text in kept.items() if secret.encode() in text] == []
