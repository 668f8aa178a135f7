"""Settings beside each other, load by load: the best against the baseline, speculation against none. Pure.

Each comparison counts what the two levels' own unrest and what starts of one setting differ by make of it
(`analysis.noise`); a difference inside that is a tie, and is called one. Where the best of many is compared, the doubt
is that of all of them together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.analysis.baseline import value_at
from orchestrator.analysis.finding import Finding, loads_of, loads_text, rows_behind, settings_text
from orchestrator.analysis.gains import Gains, throughput_at
from orchestrator.analysis.noise import Value, ratio_of
from orchestrator.analysis.rows import Row
from orchestrator.benchmark.intervals import Interval
from orchestrator.offered_load import Load

#: What starts differ by is not known: no setting was started twice.
_ONE_START = "one start of each, and what starts differ by was not measured"
_SEARCHED = "the best of a search looks better than it is"
_ONLY = "No setting but the baseline was measured"
_OFFERED = "An open loop offers all the same: while a server keeps up, its latencies tell, and its throughput does not."


@dataclass(frozen=True, slots=True)
class Compared:
    """A row's throughput beside another."""

    row: Row
    value: float
    base: float
    ratio: Interval

    @property
    def tie(self) -> bool:
        """Whether nothing can be told; where nothing is known of the spread, only of equals."""
        return self.ratio.holds(1.0)

    @property
    def percent(self) -> str:
        """See `ratio_text`."""
        return ratio_text(self.ratio)

    @property
    def data(self) -> dict[str, object]:
        """The figures of it."""
        assert self.row.level is not None
        return {
            "concurrency": self.row.level.load.concurrency,
            "request_rate": self.row.level.load.request_rate,
            "trial": self.row.trial.trial,
            "output_tokens_per_s": self.value,
            "gain_percent": 100 * (self.ratio.mean - 1),
            "gain_low_percent": 100 * (self.ratio.low - 1),
            "gain_high_percent": 100 * (self.ratio.high - 1),
            "accept_length": self.row.level.metrics.accept_length,
        }


def against_baseline(
    rows: Sequence[Row], unit: str = "tok/s", known_at: Load | None = None, barred: Collection[int] = ()
) -> list[Finding]:
    """Best candidate against the baseline at each load, by output tokens/s at full load.

    Nothing is said of `known_at`, where a confirmation has told it, nor of the candidates that are `barred`.
    """
    candidates = [row for row in rows if row.trial.role == "candidate" and row.trial.trial not in barred]
    gains = {load: Gains(rows, throughput_at(load)) for load in loads_of(rows)}
    base = {load: value for load, found in gains.items() if (value := found.base)}
    if not base:
        text = "There is no measured baseline: how much the best setting gains cannot be said."
        return [Finding("no_baseline", text, rows=rows_behind(rows))] if rows else []
    best = {load: found for load in base if (found := _beside(candidates, base[load], gains[load]))}
    if not best:
        others = any(row.trial.role == "candidate" and row.level is not None for row in rows)
        state = "No other setting may be compared with the baseline" if others else _ONLY
        return [Finding("no_candidate", f"{state}.", rows=rows_behind(rows))]
    if all(found.value <= found.base for found in best.values()):
        closest = ", ".join(
            f"at {load.label} trial {found.row.trial.trial} comes closest ({found.percent})"
            for load, found in best.items()
        )
        text = f"Nothing beats the baseline: {closest}."
        data = {
            "baseline": {_key(load): value.value for load, value in base.items()},
            "best": {_key(load): found.data for load, found in best.items()},
        }
        behind = rows_behind(row for load, found in best.items() for row in (found.row, *gains[load].base_rows))
        return [Finding("nothing_beats_baseline", text, data, behind)]
    first = next(row.trial for row in rows if row.trial.role == "baseline")
    common = {**first.requested_flags, **first.requested_env}
    return [
        _gain(found, unit, settings_text(found.row, common), gains[load])
        for load, found in best.items()
        if load != known_at
    ]


def _gain(found: Compared, unit: str, settings: str, gains: Gains) -> Finding:
    level = found.row.level
    assert level is not None
    at, trial, accepted = level.load.label, found.row.trial.trial, level.metrics.accept_length
    data = found.data | {"baseline_output_tokens_per_s": found.base, "settings": settings}
    behind = rows_behind([found.row, *gains.base_rows])
    if found.value <= found.base:
        text = (
            f"At {at} nothing beats the baseline's {number(found.base)} {unit}; "
            f"trial {trial} comes closest ({found.percent})."
        )
        return Finding("baseline_best", text, data, behind)
    if found.tie:
        closed = "Longer levels (workload.level) or further starts (repeats) would tell."
        advice = closed if level.load.closed else _OFFERED
        text = (
            f"At {at} no gain can be told: the best, trial {trial}, gives {number(found.value)} {unit}, "
            f"{found.percent} on the baseline's {number(found.base)}: a tie. {advice}"
        )
        return Finding("tie", text, data, behind)
    text = (
        f"At {at} trial {trial} gives {number(found.value)} {unit}, {found.percent} on the baseline's "
        f"{number(found.base)}{'' if accepted is None else f', accept length {accepted:.2f}'}: {settings}. "
        f"Unconfirmed: {_SEARCHED if gains.floor is not None else _ONE_START}."
    )
    return Finding("beats_baseline", text, data, behind)


def speculation(rows: Sequence[Row], unit: str = "tok/s", barred: Collection[int] = ()) -> list[Finding]:
    """Best speculative against best plain setting at each load; nothing where it was never tried. Of the candidates
    those that are `barred` are left out.
    """
    searched = [row for row in rows if row.trial.repeats is None]
    tried = [row for row in searched if row.trial.speculative]
    searched = [row for row in searched if row.trial.trial == 0 or row.trial.trial not in barred]
    speculative = [row for row in searched if row.trial.speculative]
    plain = [row for row in searched if not row.trial.speculative]
    if not tried:
        return []
    found: dict[Load, Compared] = {}
    compared: list[Row] = []
    for load in loads_of(searched):
        gains = Gains(rows, throughput_at(load))
        others = _values(plain, gains)
        reference = _best(others)
        fast = None if reference is None else _beside(speculative, reference[1], gains, len(others) - 1)
        if fast is not None and reference is not None:
            found[load] = fast
            compared += [fast.row, reference[0], *(gains.base_rows if reference[0].trial.trial == 0 else ())]
    count = len({row.trial.trial for row in tried})
    if not found:
        text = f"Speculation was tried in {count} trial(s), and none can be compared with a plain setting."
        return [Finding("speculation_not_compared", text, {"trials": count}, rows_behind(tried))]
    behind = rows_behind(compared)
    data = {"levels": {_key(at): one.data | {"plain_output_tokens_per_s": one.base} for at, one in found.items()}}
    pays = [at for at, one in found.items() if one.ratio.mean > 1 and not one.tie]
    ties = [at for at, one in found.items() if one.tie]
    costs = [at for at in found if at not in pays + ties]
    if not pays:
        verdict = "No gain by speculation can be told" if ties else "Speculation did not pay"
        verdict += f", and it costs at {loads_text(costs)}" if ties and costs else ""
        text = f"{verdict}: the best of {count} speculative trial(s) against the best plain one "
        text += f"gives {_listed(found, costs + ties)}."
        return [Finding("speculation_untold" if ties else "speculation_lost", text, data, behind)]
    text = f"Speculation pays at {_listed(found, pays)}"
    text += f", makes no difference that can be told at {_listed(found, ties)}" if ties else ""
    everywhere = ", at every concurrency measured" if all(at.closed for at in found) else ", at every load measured"
    text += f" and costs at {_listed(found, costs)}" if costs else "" if ties else everywhere
    text += ", best speculative against best plain setting. Unconfirmed: one start of each."
    return [Finding("speculation_mixed" if costs or ties else "speculation_won", text, data, behind)]


def number(value: float) -> str:
    """Four digits."""
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def percent(ratio: float) -> str:
    """`+5.0` of 1.05."""
    return f"{100 * (ratio - 1):+.1f}"


def ratio_text(ratio: Interval) -> str:
    """`+5.0 %`, with the interval where there is one: `+5.0 % (+1.2 to +9.1 %)`."""
    text = f"{percent(ratio.mean)} %"
    return text if ratio.low == ratio.high else f"{text} ({percent(ratio.low)} to {percent(ratio.high)} %)"


def _key(load: Load) -> int | str:
    """A load in a finding's data."""
    return load.text if load.concurrency is None else load.concurrency


def _beside(rows: Iterable[Row], base: Value, gains: Gains, others: int = 0) -> Compared | None:
    """The best of the rows beside another value, with the doubt of all of them and of `others` together."""
    values = _values(rows, gains)
    best = _best(values)
    if best is None:
        return None
    row, own = best
    ratio = ratio_of(own, base, gains.floor, len(values) + others)
    assert ratio is not None, "a throughput of 0 is not compared, see `Row.output_tokens_per_s`"
    return Compared(row, own.value, base.value, ratio)


def _listed(found: Mapping[Load, Compared], ladder: Sequence[Load]) -> str:
    parts = []
    for load in sorted(ladder):
        one = found[load]
        accepted = one.row.level.metrics.accept_length if one.row.level else None
        tail = "" if accepted is None else f", accept length {accepted:.2f}"
        parts.append(f"{load.label} ({one.percent.replace(' (', ', ').rstrip(')')}{tail})")
    return ", ".join(parts)


def _values(rows: Iterable[Row], gains: Gains) -> list[tuple[Row, Value]]:
    """The rows at the load that may be compared, with what they give there."""
    metric = gains.objective.metric
    return [(row, value) for row in rows if value_at(row, metric) and (value := gains.whole(row))]


def _best(values: Iterable[tuple[Row, Value]]) -> tuple[Row, Value] | None:
    """The highest, of the earliest trial of equals."""
    return max(values, key=lambda one: (one[1].value, -one[0].trial.trial), default=None)
