"""Where a start is, read from the server's log. Pure: text in, phases out."""

from __future__ import annotations

import re

from launchers.base import Phase

#: A line that begins each phase, in the order of a start (recorded from SGLang 0.5.23).
_BEGINS = (
    (re.compile(r"Init parallel begin\."), Phase.DISTRIBUTED_INIT),
    (re.compile(r"Load weight begin\."), Phase.LOADING_WEIGHTS),
    (re.compile(r"KV Cache is allocated\."), Phase.KV_POOL),
    (re.compile(r"Capture (?:target |draft )?(?:\w+ )?(?:cuda|CUDA) graph begin\."), Phase.GRAPH_CAPTURE),
    (re.compile(r"Engine startup timings|Uvicorn running on"), Phase.WARMUP),
)
_LOADED = re.compile(r"Load weight end\.")
#: `Multi-thread loading shards: 12% Completed | 20/163 [...]`; tqdm redraws it with carriage returns.
_SHARDS = re.compile(r"loading (?:safetensors checkpoint )?shards:.*?(\d+)/(\d+)", re.IGNORECASE)
_ORDER = {phase: position for position, phase in enumerate(Phase)}


class ProgressReader:
    """Feed it the log as it grows; `phase` only moves forward.

    Every rank prints its own lines, so the weights are loaded when as many ranks say so as began. A draft model
    loads after that: it does not lead back, since the target's load is what takes the minutes.
    """

    def __init__(self) -> None:
        self.phase = Phase.SPAWNED
        #: Shards loaded and in all, once a line told it.
        self.shards: tuple[int, int] | None = None
        self._ranks = 0
        self._loaded = 0
        self._rest = ""

    def feed(self, text: str) -> list[Phase]:
        """The phases that begin in this text, in order. Text may be cut anywhere; a line counts when it ends."""
        lines = re.split(r"[\r\n]", self._rest + text)
        self._rest = lines.pop()
        begun = []
        for line in lines:
            phase = self._phase_of(line)
            if phase is not None and _ORDER[phase] > _ORDER[self.phase]:
                self.phase = phase
                begun.append(phase)
        return begun

    def _phase_of(self, line: str) -> Phase | None:
        shards = _SHARDS.search(line)
        if shards:
            self.shards = int(shards[1]), int(shards[2])
        for pattern, phase in _BEGINS:
            if pattern.search(line):
                self._ranks += phase is Phase.DISTRIBUTED_INIT
                return phase
        self._loaded += _LOADED.search(line) is not None
        return Phase.KV_POOL if self._loaded >= max(1, self._ranks) else None
