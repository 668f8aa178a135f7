"""An answer as bytes: what the wire formats of the generating endpoints have in common.

Shapes are those recorded from SGLang 0.5.23. Events are filled into templates, never built by a JSON
encoder token by token: this is the hot path of the server.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from launchers.simulated.request import Request
from launchers.simulated.tokens import token_bytes

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Usage:
    """Which usage an OpenAI stream tells."""

    #: One last frame with the totals (stream_options.include_usage).
    final: bool = False
    #: Totals so far in every frame (stream_options.continuous_usage_stats).
    continuous: bool = False
    #: Cached tokens too (--enable-cache-report).
    cached: bool = False


@dataclass(frozen=True)
class Head:
    """What stays the same over one answer."""

    rid: str
    #: Unix seconds of the request's arrival, and what to add to engine seconds to get Unix seconds.
    created_s: float
    epoch_offset_s: float
    model: str
    #: Drafts that a verify step is given, where the server speculates.
    proposed_drafts: int | None = None


class Wire(ABC):
    """One answer being written."""

    def __init__(self, head: Head) -> None:
        self.head = head

    @abstractmethod
    def grown(self, request: Request, gained: int) -> bytes:
        """The events for the newest `gained` tokens (0 when it was aborted)."""

    @abstractmethod
    def end(self, request: Request) -> bytes:
        """What follows the last event."""

    @abstractmethod
    def body(self, request: Request) -> dict[str, Any]:
        """The whole answer of a request that was not streamed."""


def text_of(tokens: list[int]) -> bytes:
    """The text of output tokens, JSON-safe."""
    return b"".join([token_bytes(t) for t in tokens])
