"""Where a start is, read from the server's log. Pure: text in, phases out."""

from __future__ import annotations

import re

from launchers.base import Phase

#: The first line of each phase, in the order of a start (recorded from SGLang 0.5.23).
_BEGINS = (
    (re.compile(r"Init parallel begin\."), Phase.DISTRIBUTED_INIT),
    (re.compile(r"Load weight begin\."), Phase.LOADING_WEIGHTS),
    (re.compile(r"Load weight end\."), Phase.KV_POOL),
    (re.compile(r"Capture (?:target |draft )?(?:\w+ )?(?:cuda|CUDA) graph begin\."), Phase.GRAPH_CAPTURE),
    (re.compile(r"Engine startup timings|Uvicorn running on"), Phase.WARMUP),
)
#: `Multi-thread loading shards: 12% Completed | 20/163 [...]`; tqdm redraws it with carriage returns.
_SHARDS = re.compile(r"loading (?:safetensors checkpoint )?shards:.*?(\d+)/(\d+)", re.IGNORECASE)
_ORDER = list(Phase)


class ProgressReader:
    """Feed it the log as it grows; `phase` only moves forward.

    A draft model loads after the target's KV pool line was seen: that is still one way forward, since the
    target's load is what takes the minutes.
    """

    def __init__(self) -> None:
        self.phase = Phase.SPAWNED
        #: Shards loaded and in all, once a line told it.
        self.shards: tuple[int, int] | None = None
        self._rest = ""

    def feed(self, text: str) -> list[Phase]:
        """The phases that begin in this text, in order. Text may be cut anywhere."""
        lines = re.split(r"[\r\n]", self._rest + text)
        self._rest = lines.pop()
        begun = []
        for line in lines:
            shards = _SHARDS.search(line)
            if shards:
                self.shards = int(shards[1]), int(shards[2])
            for pattern, phase in _BEGINS:
                if pattern.search(line) and _ORDER.index(phase) > _ORDER.index(self.phase):
                    self.phase = phase
                    begun.append(phase)
        return begun
