"""A study's rows, indexed once for all that is asked of them when causes are looked for. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from orchestrator.analysis.baseline import BASELINE
from orchestrator.analysis.causes.drafts import drafters
from orchestrator.analysis.effective import MAX_RUNNING, same
from orchestrator.analysis.gains import Gain, Gains, throughput_at
from orchestrator.analysis.noise import NoiseFloor, ratio_of
from orchestrator.analysis.rows import Row, all_simulated, by_trial
from orchestrator.benchmark.intervals import Interval
from orchestrator.offered_load import Load

_SPECULATIVE = "speculative-"


class Evidence:
    """The rows of one study. Compared are complete trials alone, at closed loops.

    Raises ValueError for simulated and measured rows together.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)
        self.simulated = all_simulated(self.rows)
        self.trials = by_trial(self.rows)
        self._gains: dict[int, Gains] = {}
        self._settings: dict[int, dict[str, Any]] = {}
        self._keys: dict[tuple[int, bool, bool], str] = {}

    @property
    def unit(self) -> str:
        """Of throughput."""
        return "simulated tok/s" if self.simulated else "tok/s"

    @cached_property
    def compared(self) -> list[Row]:
        """Rows whose throughput counts: of complete trials, comparable, the first measurement of a closed loop."""
        return [
            row
            for row in self.rows
            if row.outcome.state == "complete"
            and row.level is not None
            and row.level.load.concurrency is not None
            and not row.level.load.repeat
            and row.output_tokens_per_s is not None
        ]

    def compared_of(self, trial: int | None) -> list[Row]:
        """`compared`, of one trial where one is named."""
        if trial is None:
            return self.compared
        return [row for row in self.trials.get(trial, ()) if row in self.compared_set]

    @cached_property
    def ladder(self) -> list[int]:
        """Every concurrency that was compared."""
        return sorted({users(row) for row in self.compared})

    @cached_property
    def baseline(self) -> Row | None:
        """A row of the baseline; None where it has none."""
        return next((row for row in self.rows if row.trial.role == "baseline"), None)

    @cached_property
    def drafters(self) -> Mapping[tuple[str, str | None], str]:
        """A short name of each drafter, see `drafts.drafters`."""
        return drafters(self.rows)

    def gains(self, concurrency: int) -> Gains:
        """What the baseline gives there in throughput, and what trials gain on it."""
        if concurrency not in self._gains:
            self._gains[concurrency] = Gains(self.rows, throughput_at(Load(concurrency)))
        return self._gains[concurrency]

    def floor(self, concurrency: int) -> NoiseFloor | None:
        """What starts of one setting differ by there."""
        return self.gains(concurrency).floor

    def gain(self, row: Row) -> Gain | None:
        """The row's throughput beside the baseline's at the same load; None where either is not known."""
        return self.gains(users(row)).of(row) if row in self.compared_set else None

    def against_baseline(self, row: Row) -> Interval | None:
        """The ratio that `gain` is judged by."""
        gain = self.gain(row)
        return None if gain is None else gain.judged

    def against(self, row: Row, other: Row) -> Interval:
        """The throughput of two compared rows of one load, one over the other; the baseline's is that of all its
        starts.
        """
        if other.trial.role in BASELINE and (gain := self.gain(row)) is not None:
            return gain.judged
        gains = self.gains(users(row))
        own, its = gains.whole(row), gains.whole(other)
        assert own is not None
        assert its is not None
        ratio = ratio_of(own, its, gains.floor)
        assert ratio is not None, "a throughput of 0 is not compared, see `Row.output_tokens_per_s`"
        return ratio

    def behind(self, row: Row, other: Row | None = None) -> list[Row]:
        """The rows that the row's throughput over the other's, or over the baseline's, rests on."""
        own = self._starts(row)
        if other is not None and other.trial.role not in BASELINE:
            return [*own, *self._starts(other)]
        base = [one for one in self._again.get(users(row), ()) if one.trial.role in BASELINE]
        if row.trial.trial not in self.gains(users(row)).fresh:
            return [*own, *base]
        return [*own, *base, *(r for r in self._again[users(row)] if r.trial.repeats in (0, row.trial.trial))]

    def _starts(self, row: Row) -> list[Row]:
        """The rows that a row's value is of: of the baseline those of all its starts in the search."""
        if row.trial.role not in BASELINE:
            return [row]
        return [one for one in self._again[users(row)] if one.trial.role in BASELINE]

    @cached_property
    def _again(self) -> dict[int, list[Row]]:
        """Compared rows of the baseline and of starts made again, by concurrency."""
        found: dict[int, list[Row]] = {}
        for row in self.compared:
            if row.trial.role != "candidate":
                found.setdefault(users(row), []).append(row)
        return found

    def settings(self, row: Row, *, speculation: bool = True, cap: bool = True) -> dict[str, Any]:
        """The settings that act: those asked for that the canonical configuration kept, values as canonical, without
        those that the baseline's server has by itself.

        Without `speculation` those of speculative decoding are left out, without `cap` the limit of running requests.
        """
        trial = row.trial.trial
        if trial not in self._settings:
            self._settings[trial] = self._acting(row)
        return {
            name: value
            for name, value in self._settings[trial].items()
            if (speculation or not name.startswith(_SPECULATIVE)) and (cap or name != MAX_RUNNING)
        }

    def key(self, row: Row, *, speculation: bool = True, cap: bool = True) -> str:
        """The same for rows of the same `settings`."""
        name = row.trial.trial, speculation, cap
        if name not in self._keys:
            self._keys[name] = settings_key(self.settings(row, speculation=speculation, cap=cap))
        return self._keys[name]

    def _acting(self, row: Row) -> dict[str, Any]:
        trial, base = row.trial, self.baseline
        flags = {k: trial.canonical_flags[k] for k in trial.requested_flags if k in trial.canonical_flags}
        own = {} if base is None else base.start.effective_settings
        asked = {} if base is None else base.trial.requested_flags
        flags = {k: v for k, v in flags.items() if k in asked or k not in own or not same(v, own[k])}
        found = {**flags, **{k: v for k, v in trial.canonical_env.items() if k in trial.requested_env}}
        return {name: value for name, value in found.items() if value is not None}

    @cached_property
    def compared_set(self) -> _Identities:
        """`compared`, to ask whether a row is in it."""
        return _Identities(self.compared)


class _Identities:
    def __init__(self, rows: Iterable[Row]) -> None:
        self._ids = {(row.trial.trial, row.level.load) for row in rows if row.level is not None}

    def __contains__(self, row: Row) -> bool:
        return row.level is not None and (row.trial.trial, row.level.load) in self._ids


def users(row: Row) -> int:
    """Users of a row of a closed loop."""
    assert row.level is not None
    assert row.level.load.concurrency is not None
    return row.level.load.concurrency


def settings_key(settings: Mapping[str, Any]) -> str:
    """The same for the same settings."""
    return json.dumps(settings, sort_keys=True, default=str)


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Settings that two configurations have otherwise: name to both values, None for left out."""
    names = dict.fromkeys((*one, *other))
    return {n: (one.get(n), other.get(n)) for n in names if one.get(n) != other.get(n)}


def differing_text(settings: Iterable[tuple[str, Any]]) -> str:
    """`NCCL_PROTO=LL NCCL_ALGO left out`."""
    return " ".join(f"{name} left out" if value is None else f"{name}={value}" for name, value in settings)
