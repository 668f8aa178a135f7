"""What is read from a server's log: how far its start is, and why it ended. Each kind of server has its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from launchers.base import Phase, StartProgress
from launchers.errors import LaunchError
from launchers.facts import NodeFacts


class StartReader(Protocol):
    """Reads one start's log as it grows."""

    #: Where the start is by now.
    progress: StartProgress
    #: Lines that the server wrote of its own accord, answers to requests left out, and the last of them.
    lines: int
    last_line: str

    def feed(self, text: str) -> list[StartProgress]:
        """Each step that this text tells, in order: a phase that begins, or a file more. Text may be cut anywhere."""
        ...


@dataclass(frozen=True)
class Dialect:
    """How a kind of server writes its log."""

    new_reader: Callable[[], StartReader]
    #: (log, exit code, phase, the node's facts) of a server that ended by itself to the error to raise.
    classify: Callable[[str, int | None, Phase, NodeFacts], LaunchError]
