"""The twin's log: SGLang's lines, as recorded from 0.5.23, on one stream."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from launchers.simulated.statistics import DecodeReport, PrefillReport, Retraction


class Log:
    """Writes `[YYYY-MM-DD HH:MM:SS RANK] text` lines; `ranks` are the prefixes of the scheduler processes."""

    def __init__(self, stream: TextIO, ranks: tuple[str, ...] = ("",), clock: Callable[[], float] = time.time) -> None:
        self._stream = stream
        self.ranks = ranks
        self._clock = clock

    def line(self, text: str, rank: str = "") -> None:
        """One line of the main process, or of a scheduler's."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self._clock()))
        self.raw(f"[{stamp}{rank and ' ' + rank}] {text}\n")

    def every_rank(self, text: str) -> None:
        """One line of each scheduler."""
        for rank in self.ranks:
            self.line(text, rank)

    def first_rank(self, text: str) -> None:
        """One line of the first scheduler."""
        self.line(text, self.ranks[0])

    def raw(self, text: str) -> None:
        """Text as it is: tracebacks, progress bars."""
        self._stream.write(text)
        self._stream.flush()


class SchedulerLog:
    """The engine's observer: its periodic lines. `graph` tells whether batches run in CUDA graphs."""

    def __init__(self, log: Log, graph: bool = True) -> None:
        self._log = log
        self._graph = graph

    def prefill(self, report: PrefillReport) -> None:
        """Recorded form, `cuda graph` in the place of the CPU engine's `cpu graph`."""
        self._log.first_rank(
            f"Prefill batch, #new-seq: {report.new_requests}, #new-token: {report.new_tokens}, "
            f"#cached-token: {report.cached_tokens}, token usage: {report.token_usage:.2f}, "
            f"#running-req: {report.running}, #queue-req: {report.queued}, "
            f"#pending-token: {report.pending_tokens}, cuda graph: False, "
            f"input throughput (token/s): {report.tokens_per_s:.2f}"
        )

    def decode(self, report: DecodeReport) -> None:
        """Every `--decode-log-interval` steps; acceptance only when speculating."""
        acceptance = ""
        if report.accept_length is not None and report.accept_rate is not None:
            acceptance = f"accept len: {report.accept_length:.2f}, accept rate: {report.accept_rate:.2f}, "
        self._log.first_rank(
            f"Decode batch, #running-req: {report.running}, #token: {report.tokens}, "
            f"token usage: {report.token_usage:.2f}, {acceptance}cuda graph: {self._graph}, "
            f"gen throughput (token/s): {report.tokens_per_s:.2f}, #queue-req: {report.queued}"
        )

    def retraction(self, report: Retraction) -> None:
        """Every rank prints it."""
        self._log.every_rank(
            f"Decode out of memory happened. #retracted_reqs: {report.requests}, "
            f"#new_token_ratio: {report.ratio_before:.4f} -> {report.ratio_after:.4f}"
        )
