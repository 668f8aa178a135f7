"""What a decode cycle of a level took, beside a plain decode step at the same batch. Pure.

A cycle is one pass of the model over the running batch: a plain step yields one token a request, a speculative cycle
drafts, verifies and yields as many as were accepted. Its time is TPOT x tokens a cycle (TPOT: time per output token
of a request after its first), so prefills of other requests that come between count in it, of both alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Literal

from orchestrator.analysis.causes.evidence import Evidence, users
from orchestrator.analysis.rows import Row
from orchestrator.offered_load import Load

How = Literal["measured", "interpolated"]


@dataclass(frozen=True, slots=True)
class PlainStep:
    """How long a decode step takes without speculation at a batch."""

    ms: float
    rows: tuple[Row, ...]
    #: At this very batch, or between two of them, linearly in the batch.
    how: How
    #: Whether the rows have all settings but speculation in common with what it is compared with, or none that tells.
    same_settings: bool

    @property
    def trials(self) -> tuple[int, ...]:
        """The trials behind it."""
        return tuple(sorted({row.trial.trial for row in self.rows}))


@dataclass(frozen=True, slots=True)
class StepTime:
    """One level's cycle, and where a request's time went."""

    row: Row
    #: Requests that ran at once.
    batch: int
    #: Tokens a cycle yields a request; 1 without speculation.
    accept_length: float
    cycle_ms: float
    plain: PlainStep | None
    #: Mean parts of a request's time: in the server's queue (None: not told), from there to its first token, decoding.
    queue_ms: float | None
    first_token_ms: float | None
    decode_ms: float | None

    @property
    def break_even(self) -> float | None:
        """Tokens a cycle that would make it as fast as plain steps at the same batch."""
        return None if self.plain is None else self.cycle_ms / self.plain.ms

    @property
    def extra_ms(self) -> float | None:
        """What a cycle takes beyond a plain step."""
        return None if self.plain is None else self.cycle_ms - self.plain.ms

    @property
    def pace(self) -> float | None:
        """Decoding speed of a request over that of plain steps at the same batch."""
        return None if self.break_even is None else self.accept_length / self.break_even

    @property
    def data(self) -> dict[str, object]:
        """The figures, for a report."""
        return {
            "trial": self.row.trial.trial,
            "concurrency": users(self.row),
            "batch": self.batch,
            "accept_length": self.accept_length if self.row.trial.speculative else None,
            "cycle_ms": self.cycle_ms,
            "plain_step_ms": self.plain.ms if self.plain else None,
            "plain_step_from": self.plain.trials if self.plain else None,
            "plain_step_how": self.plain.how if self.plain else None,
            "break_even": self.break_even,
            "extra_ms": self.extra_ms,
            "queue_ms": self.queue_ms,
            "first_token_ms": self.first_token_ms,
            "decode_ms": self.decode_ms,
        }


class StepTimes:
    """Step times of a study's rows."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self._known: dict[tuple[int, Load], StepTime | None] = {}

    @cached_property
    def _plain(self) -> dict[str, list[tuple[int, float, Row]]]:
        """Batch and step of every plain row, by the settings apart from the cap."""
        groups: dict[str, list[tuple[int, float, Row]]] = {}
        for row in self.evidence.compared:
            batch, ms = running_batch(row), _tpot_ms(row)
            if not row.trial.speculative and batch is not None and ms is not None:
                groups.setdefault(self._key(row), []).append((batch, ms, row))
        return groups

    def of(self, row: Row) -> StepTime | None:
        """The step time of a compared row; None where batch, TPOT or accept length is not known."""
        if row not in self.evidence.compared_set or row.level is None:
            return None
        key = row.trial.trial, row.level.load
        if key not in self._known:
            self._known[key] = self._of(row)
        return self._known[key]

    def _of(self, row: Row) -> StepTime | None:
        batch, tpot_ms = running_batch(row), _tpot_ms(row)
        length = accept_length(row)
        if batch is None or tpot_ms is None or length is None:
            return None
        assert row.level is not None
        metrics = row.level.metrics
        queue, ttft, e2e = metrics.queue_time_ms, metrics.ttft_ms, metrics.e2e_ms
        # The queue is of the whole level, warm-up included: it may exceed the measured requests' TTFT.
        known = queue is not None and ttft is not None and queue <= ttft.mean
        return StepTime(
            row=row,
            batch=batch,
            accept_length=length,
            cycle_ms=tpot_ms * length,
            plain=self.plain_step(row, batch),
            queue_ms=queue if known else None,
            first_token_ms=ttft.mean - queue if known and ttft is not None and queue is not None else None,
            decode_ms=e2e.mean - ttft.mean if e2e is not None and ttft is not None else None,
        )

    def without_speculation(self, row: Row) -> Row | None:
        """The plain row of the same settings at the same load that ran as many requests at once or more, the fastest.

        None where the baseline will do: it has these settings, or nothing tells the two apart.
        """
        base, own = self.evidence.baseline, self._key(row)
        if base is not None and own == self._key(base):
            return None
        least = running_batch(row) or users(row)
        alike = [
            (ms, other)
            for batch, ms, other in self._plain.get(own, [])
            if users(other) == users(row) and batch >= least
        ]
        found = min(alike, key=lambda one: one[0])[1] if alike else None
        return None if found is not None and self._like_baseline(found) else found

    def plain_step(self, row: Row, batch: int) -> PlainStep | None:
        """A plain step at this batch: of the same settings without speculation, else of the baseline.

        Of the baseline too where the two cannot be told apart: it has more starts, and a single one is a poor measure.
        """
        base = self.evidence.baseline
        own, usual = self._key(row), None if base is None else self._key(base)
        mine = None
        # A plain trial is compared with the baseline, not with itself.
        if own != usual and row.trial.speculative:
            mine = _at(self._plain.get(own, []), batch, users(row))
        theirs = None if usual is None else _at(self._plain.get(usual, []), batch, users(row))
        if mine is None:
            return None if theirs is None else PlainStep(theirs[0], tuple(theirs[1]), theirs[2], own == usual)
        if theirs is not None and all(self._like_baseline(one) for one in mine[1]):
            return PlainStep(theirs[0], tuple(theirs[1]), theirs[2], True)
        return PlainStep(mine[0], tuple(mine[1]), mine[2], True)

    def _key(self, row: Row) -> str:
        return self.evidence.key(row, speculation=False, cap=False)

    def _like_baseline(self, row: Row) -> bool:
        """Whether a plain row's throughput cannot be told from the baseline's at its load."""
        ratio = self.evidence.against_baseline(row)
        return ratio is not None and ratio.holds(1.0)


def running_batch(row: Row) -> int | None:
    """Requests that ran at once: the users, or as many of them as are admitted.

    None for an open loop, where the cap is not known, and where the KV pool may have held fewer.
    """
    cap = row.start.effective_max_running_requests
    if row.level is None or row.level.load.concurrency is None or not cap:
        return None
    batch = min(users(row), cap)
    return None if kv_short(row, batch) else batch


def kv_short(row: Row, batch: int) -> bool:
    """Whether so many requests, each at its full length, need more tokens than the KV pool has."""
    pool, need = row.start.effective_kv_tokens, tokens_a_request(row)
    return pool is not None and need is not None and batch * need > pool * _ranks(row)


def tokens_a_request(row: Row) -> float | None:
    """Mean prompt and output tokens of a request, all of which its place in the KV pool holds at its end."""
    metrics = row.level.metrics if row.level else None
    if metrics is None or metrics.prompt_tokens is None or metrics.output_tokens is None:
        return None
    answered = metrics.requests_total - metrics.requests_failed
    return (metrics.prompt_tokens + metrics.output_tokens) / answered if answered > 0 else None


def accept_length(row: Row) -> float | None:
    """Tokens that a cycle yields: 1 without speculation; None where it is not told."""
    if not row.trial.speculative:
        return 1.0
    return (row.level.metrics.accept_length or None) if row.level else None


def _ranks(row: Row) -> int:
    resolved = row.start.effective_settings
    width, attention = (int(resolved.get(name) or 1) for name in ("dp-size", "attn-dp-size"))
    return max(width, attention)


def _tpot_ms(row: Row) -> float | None:
    tpot = row.level.metrics.tpot_ms if row.level else None
    return tpot.mean if tpot is not None and tpot.mean > 0 else None


def _at(points: Sequence[tuple[int, float, Row]], batch: int, load: int) -> tuple[float, list[Row], How] | None:
    """The step at a batch: rows that ran it, those of the same load before others, else between two neighbours."""
    here = [point for point in points if point[0] == batch]
    if here:
        ms, rows = _mean([point for point in here if users(point[2]) == load] or here, batch)
        return ms, rows, "measured"
    # Where a queue waits, each place that falls free is filled by a prefill: not like a load of this size.
    free = [(b, ms, row) for b, ms, row in points if users(row) == b]
    below, above = [p for p in free if p[0] < batch], [p for p in free if p[0] > batch]
    if not below or not above:
        return None
    low, high = max(p[0] for p in below), min(p[0] for p in above)
    first, last = _mean(below, low), _mean(above, high)
    ms = first[0] + (last[0] - first[0]) * (batch - low) / (high - low)
    return ms, [*first[1], *last[1]], "interpolated"


def _mean(points: Iterable[tuple[int, float, Row]], batch: int) -> tuple[float, list[Row]]:
    here = [(ms, row) for b, ms, row in points if b == batch]
    # Where the baseline itself was measured its other settings that change nothing add but their own unrest.
    chosen = [one for one in here if one[1].trial.role in ("baseline", "sentinel")] or here
    return fmean(ms for ms, _ in chosen), [row for _, row in chosen]
