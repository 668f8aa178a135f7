"""Work that is done once, in steps: what ended is written down, what was interrupted is done again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Step:
    """One step of the work."""

    name: str
    #: JSON of what it depends on; another one means that it must be done again.
    inputs: object
    #: What it leaves; a missing one means that it must be done again.
    leaves: tuple[Path, ...]
    act: Callable[[], None]

    @property
    def fingerprint(self) -> str:
        """Of the inputs."""
        return hashlib.sha256(json.dumps(self.inputs).encode()).hexdigest()


class Steps:
    """The record of the steps that ended, a JSON file. `say` is told of each step that is done."""

    def __init__(self, record: Path, say: Callable[[str], None]) -> None:
        self.record = record
        self._say = say

    @property
    def begun(self) -> bool:
        """Whether there is a record."""
        return self.record.exists()

    def forget(self) -> None:
        """Begin anew: no step has ended."""
        self._write({})

    def do(self, *steps: Step) -> None:
        """Do those that did not end yet, in order."""
        for step in steps:
            if self._ended().get(step.name) == step.fingerprint and all(path.exists() for path in step.leaves):
                continue
            self._say(f"{step.name} ...")
            step.act()
            self._write({**self._ended(), step.name: step.fingerprint})

    def _ended(self) -> dict[str, str]:
        ended: dict[str, str] = json.loads(self.record.read_text())
        return ended

    def _write(self, ended: Mapping[str, str]) -> None:
        partial = self.record.with_suffix(".partial")
        partial.write_text(json.dumps(ended, indent=1))
        partial.replace(self.record)
