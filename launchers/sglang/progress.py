"""How far a start is, read from the server's log. Pure: text in, steps out.

Phases only move forward. Every rank prints its own lines, and the first rank alone draws the progress bars, so
the weights are loaded when as many ranks say so as began.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from launchers.base import Phase, StartProgress

#: A line that begins each phase, in the order of a start (SGLang 0.5.23; the capture's older words too).
_BEGINS = (
    (re.compile(r"Init parallel begin\."), Phase.DISTRIBUTED_INIT),
    (re.compile(r"KV Cache is allocated\."), Phase.KV_POOL),
    (re.compile(r"Capture .*(?:cuda|CUDA) graph begin\."), Phase.GRAPH_CAPTURE),
    (re.compile(r"Engine startup timings|Uvicorn running on"), Phase.WARMUP),
)
_LOAD_BEGINS, _LOAD_ENDS = re.compile(r"Load weight begin\."), re.compile(r"Load weight end\.")
#: `Multi-thread loading shards: 12% Completed | 20/163 [...]`, and what each other loader calls its bar
#: (0.5.23, model_loader/weight_utils.py). tqdm redraws it with carriage returns.
_SHARDS = re.compile(r"loading (?:[\w-]+ )*(?:shards|safetensors using [\w ]+):.*?\|\s*(\d+)/(\d+)\b", re.IGNORECASE)
#: The settings as 0.5.23 echoes them; with one of these algorithms a draft model is loaded after the target.
_DRAFTS = re.compile(r"server_args=.*'speculative_algorithm': '(?:EAGLE3?|NEXTN|STANDALONE|DFLASH|DSPARK)'")
#: Lines after which long silence is normal.
_NOTES = (
    # 0.5.23, deep_gemm_wrapper/compile_utils.py: 10 to 20 minutes, once for each machine.
    (re.compile(r"DeepGEMM JIT (?:Pre-Compile session|Compiling for)"), "DeepGEMM compiles its kernels"),
    (re.compile(r"Running FlashInfer autotune"), "FlashInfer tries its kernels"),
    (re.compile(r"Compiling num tokens"), "torch.compile is at work"),
    (re.compile(r"quantization\.\s+May take a while"), "weights are quantized"),
)
#: uvicorn's line for each answered request: an answer to us is no sign that the start goes on.
_ANSWER = re.compile(r'INFO:\s+\S+ - "[A-Z]+ \S+ HTTP/[\d.]+" \d+')
#: `[2026-11-30 16:00:00 DP0 TP1] `; a single rank has no name.
_RANK = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: ([^\]]+))?\]")
_ORDER = {phase: position for position, phase in enumerate(Phase)}
_BARS = {Phase.LOADING_WEIGHTS, Phase.LOADING_DRAFT}


class ProgressReader:
    """Feed it the log as it grows."""

    def __init__(self) -> None:
        self.progress = StartProgress(Phase.SPAWNED)
        self.lines = 0
        self.last_line = ""
        self._models = 1
        self._ranks: set[str] = set()
        self._begun: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()
        self._rest = ""

    def feed(self, text: str) -> list[StartProgress]:
        """Each step that this text tells; a line counts when it ends, by a carriage return too."""
        lines = re.split(r"[\r\n]", self._rest + text)
        self._rest = lines.pop()
        steps = []
        for line in filter(None, map(str.strip, lines)):
            if _ANSWER.search(line):
                continue
            self.lines += 1
            self.last_line = line[-200:]
            for step in self._steps(line):
                if step != self.progress:
                    self.progress = step
                    steps.append(step)
        return steps

    def _steps(self, line: str) -> list[StartProgress]:
        shards = _SHARDS.search(line)
        if shards:
            return self._bar(int(shards[1]), int(shards[2]))
        if _DRAFTS.search(line):
            self._models = 2
        for pattern, note in _NOTES:
            if pattern.search(line):
                return [StartProgress(self.progress.phase, self.progress.shards, note)]
        phase = self._phase_of(line)
        return [StartProgress(phase)] if phase is not None and self._comes(phase) else []

    def _comes(self, phase: Phase) -> bool:
        return _ORDER[phase] > _ORDER[self.progress.phase]

    def _bar(self, done: int, total: int) -> list[StartProgress]:
        """A bar tells that loading has begun, where no line did, and ends it when it is full."""
        phase = Phase.LOADING_WEIGHTS if self._comes(Phase.LOADING_WEIGHTS) else self.progress.phase
        if phase not in _BARS:
            return []
        steps = [StartProgress(phase, (done, total), self.progress.note)]
        if phase is Phase.LOADING_WEIGHTS and done >= total:
            steps.append(StartProgress(Phase.PROCESSING_WEIGHTS))
        return steps

    def _phase_of(self, line: str) -> Phase | None:
        named = _RANK.match(line)
        rank = (named[1] if named else None) or ""
        if _LOAD_BEGINS.search(line):
            self._begun[rank] += 1
            draft = self._models > 1 and self._begun[rank] > 1 and self._loads_ended() >= 1
            return Phase.LOADING_DRAFT if draft else Phase.LOADING_WEIGHTS
        if _LOAD_ENDS.search(line):
            self._ended[rank] += 1
            ended = self._loads_ended()
            if ended >= self._models:
                return Phase.KV_POOL
            return Phase.PROCESSING_WEIGHTS if ended else None
        for pattern, phase in _BEGINS:
            if pattern.search(line):
                if phase is Phase.DISTRIBUTED_INIT:
                    self._ranks.add(rank)
                return phase
        return None

    def _loads_ended(self) -> int:
        """Models that every rank has loaded."""
        return min(self._ended[rank] for rank in self._ranks or self._begun or {""})


#: What /server_info's `startup_time` measures of each phase. Its loads are those of target and draft together.
_TOLD = {
    Phase.LOADING_WEIGHTS: "load_weight",
    Phase.KV_POOL: "kv_cache_allocation",
    Phase.GRAPH_CAPTURE: "cuda_graph",
}


def told_seconds(startup_time: Mapping[str, Any] | None) -> dict[Phase, float]:
    """What 0.5.23's /server_info says of its own start, by phase: the slowest rank's seconds."""
    told = {}
    for phase, name in _TOLD.items():
        value = (startup_time or {}).get(name)
        seconds = sum(value.values()) if isinstance(value, Mapping) else value
        if isinstance(seconds, int | float) and seconds > 0:
            told[phase] = float(seconds)
    return told


def backed_by(wall_s: Mapping[str, float], startup_time: Mapping[str, Any] | None) -> dict[str, float]:
    """Wall-clock seconds by phase, completed where the log told no beginning of a phase.

    What the server measured of such a phase is taken out of the phase that the log had seen before it, so that
    the sum stays the whole start. A phase that the log did tell keeps its wall clock: the server's figure leaves
    out what its ranks waited for each other.
    """
    seconds = dict(wall_s)
    for phase, told_s in reversed(told_seconds(startup_time).items()):
        if str(phase) in seconds:
            continue
        before = [p for p in Phase if str(p) in seconds and _ORDER[p] < _ORDER[phase]]
        if before:
            taken_s = min(told_s, seconds[before[-1]])
            seconds[before[-1]] -= taken_s
            seconds[phase] = taken_s
    return {str(phase): seconds[phase] for phase in Phase if phase in seconds}


def simulated_seconds(startup_time: Mapping[str, Any] | None) -> dict[str, float]:
    """Seconds by phase as a server tells all of them itself; empty where it does not. Their sum is its start."""
    known = dict(startup_time or {})
    scheduler_s, total_s = known.get("scheduler_e2e"), known.get("tokenizer_e2e")
    if scheduler_s is None or total_s is None:
        return {}
    told = told_seconds(known)
    before_s = {Phase.SPAWNED: total_s - scheduler_s, Phase.DISTRIBUTED_INIT: scheduler_s - sum(told.values())}
    return {str(phase): max(0.0, seconds) for phase, seconds in (before_s | told).items()}
