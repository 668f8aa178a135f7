"""What is read from a server's log: the phases of its start, and why it ended. Each kind of server has its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from launchers.base import Phase
from launchers.errors import LaunchError


class PhaseReader(Protocol):
    """Reads one start's log as it grows."""

    def feed(self, text: str) -> list[Phase]:
        """The phases that begin in this text, in order. Text may be cut anywhere."""
        ...


@dataclass(frozen=True)
class Dialect:
    """How a kind of server writes its log."""

    new_reader: Callable[[], PhaseReader]
    #: (log, exit code, phase) of a server that ended by itself to the error to raise.
    classify: Callable[[str, int | None, Phase], LaunchError]
