"""One request inside the engine, from arrival to its last token."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from launchers.simulated.tokens import TokenSource

if TYPE_CHECKING:
    from launchers.simulated.radix import Node


class Finish(StrEnum):
    """Why a request ended."""

    LENGTH = "length"
    STOP = "stop"
    ABORT = "abort"


@dataclass(frozen=True)
class Sampling:
    """What the engine needs of the sampling parameters."""

    max_new_tokens: int = 128
    ignore_eos: bool = False


#: Told of each growth of a request: (request, tokens gained), within the step that made them; 0 when aborted.
OnTokens = Callable[["Request", int], None]


class Request:
    """Mutable: the engine moves it from waiting to running to finished, and back when retracted."""

    __slots__ = (
        "aborted", "arrived_s", "cached_tokens", "counted", "finish", "finished_s", "first_token_s", "forward_s",
        "input_ids", "max_new_tokens", "node", "on_tokens", "output_ids", "owned", "prefilled", "prefix",
        "retractions", "rid", "rng", "source", "streaming", "verify_steps",
    )  # fmt: skip

    def __init__(
        self,
        rid: str,
        input_ids: Sequence[int],
        max_new_tokens: int,
        source: TokenSource,
        rng: random.Random,
        *,
        streaming: bool = False,
        arrived_s: float = 0.0,
        on_tokens: OnTokens | None = None,
    ) -> None:
        self.rid = rid
        self.input_ids = tuple(input_ids)
        self.max_new_tokens = max_new_tokens
        self.source = source
        self.rng = rng
        self.streaming = streaming
        self.on_tokens = on_tokens
        self.output_ids: list[int] = []
        self.finish: Finish | None = None
        self.aborted = False
        #: Whether the request counters know it (health checks are not counted).
        self.counted = True
        self.retractions = 0
        #: Speculative verify steps this request took part in.
        self.verify_steps = 0
        #: Prompt tokens found in the prefix cache at the first prefill; None before it.
        self.cached_tokens: int | None = None
        #: Tokens of the sequence that come from the prefix cache and end at `node`, which is locked.
        self.prefix = 0
        self.node: Node | None = None
        #: KV slots held outside the prefix cache.
        self.owned = 0
        #: Tokens of the sequence whose KV exists.
        self.prefilled = 0
        self.arrived_s = arrived_s
        self.forward_s: float | None = None
        self.first_token_s: float | None = None
        self.finished_s: float | None = None

    @property
    def sequence_length(self) -> int:
        """Prompt and output so far."""
        return len(self.input_ids) + len(self.output_ids)

    @property
    def remaining(self) -> int:
        """Tokens it may still generate."""
        return self.max_new_tokens - len(self.output_ids)

    def gain(self, count: int) -> int:
        """Draw up to `count` further tokens; fewer where the text ends. The number gained."""
        output, draw = self.output_ids, self.source.next
        before = len(output)
        left = self.max_new_tokens - before
        for _ in range(count if count < left else left):
            token, ends = draw()
            output.append(token)
            if ends:
                self.finish = Finish.STOP
                return len(output) - before
        if count >= left:
            self.finish = Finish.LENGTH
        return len(output) - before
