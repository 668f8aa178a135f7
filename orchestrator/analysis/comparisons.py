"""Settings beside each other, load by load: the best against the baseline, speculation against none. Pure.

Each comparison counts what the two levels' own unrest and what starts of one setting differ by make of it
(`analysis.noise`); a difference inside that is a tie, and is called one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.analysis.baseline import value_at
from orchestrator.analysis.finding import Finding, ladder_of, loads_text, rows_behind, settings_text
from orchestrator.analysis.gains import Gains, throughput_at
from orchestrator.analysis.noise import NoiseFloor, Value, ratio_of
from orchestrator.analysis.rows import Row
from orchestrator.benchmark.intervals import Interval
from orchestrator.offered_load import Load

#: What starts differ by is not known: no setting was started twice.
_ONE_START = "one start of each, and what starts differ by was not measured"
_SEARCHED = "the best of a search looks better than it is"


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
            "trial": self.row.trial.trial,
            "output_tokens_per_s": self.value,
            "gain_percent": 100 * (self.ratio.mean - 1),
            "gain_low_percent": 100 * (self.ratio.low - 1),
            "gain_high_percent": 100 * (self.ratio.high - 1),
            "accept_length": self.row.level.metrics.accept_length,
        }


def against_baseline(rows: Sequence[Row], unit: str = "tok/s", known_at: Load | None = None) -> list[Finding]:
    """Best candidate against the baseline at each concurrency, by output tokens/s in full concurrency.

    Nothing is said of `known_at`, where a confirmation has told it.
    """
    candidates = [row for row in rows if row.trial.role == "candidate"]
    gains = {c: Gains(rows, throughput_at(c)) for c in ladder_of(rows)}
    base = {c: value for c, found in gains.items() if (value := found.base)}
    if not base:
        text = "There is no measured baseline: how much the best setting gains cannot be said."
        return [Finding("no_baseline", text, rows=rows_behind(rows))] if rows else []
    best = {c: _compared(*top, base[c], gains[c].floor) for c in base if (top := _best(candidates, gains[c]))}
    if not best:
        return [Finding("no_candidate", "No setting but the baseline was measured.", rows=rows_behind(rows))]
    if all(found.value <= found.base for found in best.values()):
        closest = ", ".join(
            f"at C={c} trial {found.row.trial.trial} comes closest ({found.percent})" for c, found in best.items()
        )
        text = f"Nothing beats the baseline: {closest}."
        data = {"baseline": {c: value.value for c, value in base.items()}, "best": {c: b.data for c, b in best.items()}}
        behind = rows_behind(row for c, found in best.items() for row in (found.row, *gains[c].base_rows))
        return [Finding("nothing_beats_baseline", text, data, behind)]
    first = next(row.trial for row in rows if row.trial.role == "baseline")
    common = {**first.requested_flags, **first.requested_env}
    return [
        _gain(found, unit, settings_text(found.row, common), gains[c])
        for c, found in best.items()
        if Load(c) != known_at
    ]


def _gain(found: Compared, unit: str, settings: str, gains: Gains) -> Finding:
    level = found.row.level
    assert level is not None
    concurrency, trial, accepted = level.load.concurrency, found.row.trial.trial, level.metrics.accept_length
    data = found.data | {"baseline_output_tokens_per_s": found.base, "settings": settings}
    behind = rows_behind([found.row, *gains.base_rows])
    if found.value <= found.base:
        text = (
            f"At C={concurrency} nothing beats the baseline's {number(found.base)} {unit}; "
            f"trial {trial} comes closest ({found.percent})."
        )
        return Finding("baseline_best", text, data, behind)
    if found.tie:
        text = (
            f"At C={concurrency} no gain can be told: the best, trial {trial}, gives {number(found.value)} {unit}, "
            f"{found.percent} on the baseline's {number(found.base)}: a tie. Longer levels (workload.level) or further "
            "starts (repeats) would tell."
        )
        return Finding("tie", text, data, behind)
    text = (
        f"At C={concurrency} trial {trial} gives {number(found.value)} {unit}, {found.percent} on the baseline's "
        f"{number(found.base)}{'' if accepted is None else f', accept length {accepted:.2f}'}: {settings}. "
        f"Unconfirmed: {_SEARCHED if gains.floor is not None else _ONE_START}."
    )
    return Finding("beats_baseline", text, data, behind)


def speculation(rows: Sequence[Row], unit: str = "tok/s") -> list[Finding]:
    """Best speculative against best plain setting at each concurrency; nothing where it was never tried."""
    searched = [row for row in rows if row.trial.repeats is None]
    speculative = [row for row in searched if row.trial.speculative]
    plain = [row for row in searched if not row.trial.speculative]
    if not speculative:
        return []
    found: dict[int, Compared] = {}
    compared: list[Row] = []
    for concurrency in ladder_of(searched):
        gains = Gains(rows, throughput_at(concurrency))
        fast, reference = _best(speculative, gains), _best(plain, gains)
        if fast and reference:
            found[concurrency] = _compared(*fast, reference[1], gains.floor)
            compared += [fast[0], reference[0], *(gains.base_rows if reference[0].trial.trial == 0 else ())]
    tried = len({row.trial.trial for row in speculative})
    if not found:
        text = f"Speculation was tried in {tried} trial(s), and none can be compared with a plain setting."
        return [Finding("speculation_not_compared", text, {"trials": tried}, rows_behind(speculative))]
    behind = rows_behind(compared)
    data = {"levels": {c: one.data | {"plain_output_tokens_per_s": one.base} for c, one in found.items()}}
    pays = [c for c, one in found.items() if one.ratio.mean > 1 and not one.tie]
    ties = [c for c, one in found.items() if one.tie]
    costs = [c for c in found if c not in pays + ties]
    if not pays:
        verdict = "No gain by speculation can be told" if ties else "Speculation did not pay"
        verdict += f", and it costs at {loads_text(costs)}" if ties and costs else ""
        text = f"{verdict}: the best of {tried} speculative trial(s) against the best plain one "
        text += f"gives {_listed(found, costs + ties)}."
        return [Finding("speculation_untold" if ties else "speculation_lost", text, data, behind)]
    text = f"Speculation pays at {_listed(found, pays)}"
    text += f", makes no difference that can be told at {_listed(found, ties)}" if ties else ""
    text += f" and costs at {_listed(found, costs)}" if costs else "" if ties else ", at every concurrency measured"
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


def _compared(row: Row, own: Value, base: Value, floor: NoiseFloor | None) -> Compared:
    ratio = ratio_of(own, base, floor)
    assert ratio is not None, "a throughput of 0 is not compared, see `Row.output_tokens_per_s`"
    return Compared(row, own.value, base.value, ratio)


def _listed(found: Mapping[int, Compared], ladder: Sequence[int]) -> str:
    parts = []
    for concurrency in sorted(ladder):
        one = found[concurrency]
        accepted = one.row.level.metrics.accept_length if one.row.level else None
        tail = "" if accepted is None else f", accept length {accepted:.2f}"
        parts.append(f"C={concurrency} ({one.percent.replace(' (', ', ').rstrip(')')}{tail})")
    return ", ".join(parts)


def _best(rows: Iterable[Row], gains: Gains) -> tuple[Row, Value] | None:
    """The row of the highest throughput that may be compared, of the earliest trial of equals."""
    metric = gains.objective.metric
    found = [(row, value) for row in rows if value_at(row, metric) and (value := gains.whole(row))]
    return max(found, key=lambda one: (one[1].value, -one[0].trial.trial), default=None)
