"""What the repeated starts showed: is the winner confirmed, how large is the noise, does the machine drift? Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from statistics import fmean

from orchestrator.analysis.baseline import BASELINE, value_at
from orchestrator.analysis.comparisons import number, percent
from orchestrator.analysis.confirmation import Confirmation, confirmations
from orchestrator.analysis.finding import Finding, rows_behind, settings_text
from orchestrator.analysis.floor import floor_of, repeated_starts
from orchestrator.analysis.fresh_starts import breaches, refuted
from orchestrator.analysis.gains import Gains
from orchestrator.analysis.noise import Value, log_ratio, ratio_of
from orchestrator.analysis.objectives import Constraint, Objective
from orchestrator.analysis.rows import Row, by_trial, metric_value
from orchestrator.benchmark.intervals import student_t

#: Fewer points than this make no line.
_FEWEST_POINTS = 4


def confirmed(rows: Sequence[Row], objective: Objective, limits: Sequence[Constraint]) -> list[Finding]:
    """A sentence for each finalist that was started afresh beside the baseline and keeps the constraints."""
    trials = by_trial(rows)
    found = confirmations(rows, objective, limits)
    sign = -1 if objective.direction == "maximize" else 1
    found.sort(key=lambda c: sign * c.value)
    gains = Gains(rows, objective)
    return [_confirmed(c, trials, gains, rows_behind(_proof_rows(rows, c))) for c in found]


def _proof_rows(rows: Sequence[Row], found: Confirmation) -> list[Row]:
    """The fresh starts of the finalist and the baseline, and what the search had measured of the two."""
    load = found.objective.metric.load
    at = [row for row in rows if row.level is not None and row.level.load == load]
    fresh = [row for row in at if row.trial.role == "confirmation" and row.trial.repeats in (0, found.trial)]
    return [*fresh, *(row for row in at if row.trial.role in BASELINE or row.trial.trial == found.trial)]


def out_of_it(rows: Sequence[Row], limits: Sequence[Constraint]) -> list[Finding]:
    """That the baseline breaks a constraint, and what refutes a finalist whatever its score."""
    trials = by_trial(rows)
    found = []
    if (why := breaches(trials, limits).get(0)) is not None:
        text = f"The baseline breaks {why}: it cannot win, and goes after every setting that keeps the constraints."
        starts = [row for row in rows if row.trial.trial == 0 or row.trial.repeats == 0]
        found.append(Finding("baseline_breaks", text, {"trial": 0, "why": why}, rows_behind(starts)))
    for trial, why in refuted(trials, limits).items():
        text = f"Refuted: trial {trial} cannot win: {why}."
        fresh = [row for row in rows if row.trial.repeats == trial]
        found.append(Finding("confirmed_refuted", text, {"trial": trial, "why": why}, rows_behind(fresh)))
    return found


def _confirmed(
    found: Confirmation, trials: dict[int, list[Row]], gains: Gains, behind: tuple[tuple[int, str], ...]
) -> Finding:
    base = trials[0][0].trial
    settings = settings_text(trials[found.trial][0], {**base.requested_flags, **base.requested_env})
    low, high = percent(found.ratio.low), percent(found.ratio.high)
    gain = f"{percent(found.ratio.mean)} % ({low} to {high} %)"
    where = f"{found.objective.metric}, {number(found.value)} against the baseline's {number(found.baseline)}"
    how = f"in {found.rounds} rounds of fresh starts"
    data = {
        "trial": found.trial,
        "rounds": found.rounds,
        "value": found.value,
        "baseline": found.baseline,
        "gain_percent": 100 * (found.ratio.mean - 1),
        "gain_low_percent": 100 * (found.ratio.low - 1),
        "gain_high_percent": 100 * (found.ratio.high - 1),
        "searched": found.searched,
        "flattery_percent": 100 * found.flattery,
        "settings": settings,
    }
    searched = gains.trial_gain(trials[found.trial])
    flattery = f"The search had told {number(found.searched)}"
    if searched is not None:
        flattery += f", {percent(searched.ratio.mean)} % on the baseline's {number(searched.base.value)} there"
    by_score = found.baseline_breaks is not None  # which alone decides nothing then
    if found.verdict == "tie":
        word = "A tie by score" if by_score else "Not confirmed"
        text = (
            f"{word}: trial {found.trial} and the baseline tie {how}: {gain} by {where}. {flattery}. "
            f"A gap of {100 * found.gap:.1f} % would have been found nine times in ten: {settings}."
        )
        return Finding("confirmed_tie", text, data, behind)
    word = "Confirmed" if found.verdict == "better" else "Worse by score" if by_score else "Refuted"
    text = f"{word} {how}: trial {found.trial} gives {gain} by {where}: {settings}. {flattery}."
    return Finding(f"confirmed_{found.verdict}", text, data, behind)


def noise(rows: Sequence[Row], objective: Objective) -> list[Finding]:
    """How far starts of one setting lie apart by the score."""
    floor = floor_of(rows, objective.metric)
    if floor is None:
        return []
    several = len({start.node for start in repeated_starts(rows, objective.metric)}) > 1
    on_one = floor_of(rows, objective.metric, by_node=True) if several else None
    nodes = "" if on_one is None else f", {100 * on_one.sd:.2f} % on one node"
    text = (
        f"Starts of one and the same setting differ by {100 * floor.sd:.2f} % (standard deviation of "
        f"{objective.metric}, {floor.freedom} degree{'s' if floor.freedom > 1 else ''} of freedom{nodes}): between "
        f"single starts less than {100 * floor.smallest_gain:.1f} % is a tie."
    )
    again = [row for row in rows if row.trial.role != "candidate" and value_at(row, objective.metric)]
    data = {"sd": floor.sd, "freedom": floor.freedom, "tie": floor.smallest_gain}
    return [Finding("noise_floor", text, data, rows_behind(again))]


def within_start(rows: Sequence[Row], objective: Objective) -> list[Finding]:
    """Whether two measurements of a load in one start lie further apart than the two levels say of themselves."""
    load = objective.metric.load
    again = dataclasses.replace(load, repeat=1)
    by_load = {row.level.load: row for row in rows if row.trial.role == "baseline" and row.level is not None}
    values, behind = [], []
    for row in (by_load.get(again), by_load.get(load)):
        rate = row.output_tokens_per_s if row else None
        if row is None or row.level is None or rate is None:
            return []
        values.append(Value(rate, row.level.metrics.output_tokens_per_s_half_width))
        behind.append(row)
    second, first = values
    if first.half_width is None or second.half_width is None:
        return []
    ratio = ratio_of(second, first, None)
    if ratio is None or ratio.holds(1.0):
        return []
    text = (
        f"Measured twice in one start, the baseline gave {number(first.value)} and {number(second.value)} at "
        f"{load.label}: {percent(ratio.mean)} %, more than the levels' own intervals allow. They are less sure than "
        "they say; a longer warm-up or longer levels (workload.level) would help."
    )
    data = {"first": first.value, "second": second.value}
    return [Finding("unsteady_within_start", text, data, rows_behind(behind))]


def drift(rows: Sequence[Row], objective: Objective) -> list[Finding]:
    """Whether the baseline's score moved over the study: the slope of its logarithm over time, at 95 %."""
    points, behind = [], []
    for group in by_trial(rows).values():
        info, value = group[0].trial, metric_value(group, objective.metric)
        at = group[0].start.started_at
        if (info.role == "baseline" or info.repeats == 0) and value is not None and at is not None:
            if (log := log_ratio(value, 1.0)) is None:
                # A cost of 0 has none, and the starts that are left would tell another story.
                return []
            points.append((at.timestamp(), log))
            behind += [row for row in group if row.level is not None and row.level.load == objective.metric.load]
    if len(points) < _FEWEST_POINTS:
        return []
    mean_x, mean_y = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = math.fsum((x - mean_x) ** 2 for x, _ in points)
    if spread <= 0:
        return []
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    freedom = len(points) - 2
    left = math.fsum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points) / freedom
    doubt = student_t(freedom) * math.sqrt(left / spread)
    if abs(slope) <= doubt:
        return []
    span_s = max(x for x, _ in points) - min(x for x, _ in points)
    moved = math.expm1(slope * span_s)
    text = (
        f"The machine drifted: over {len(points)} starts of the baseline {objective.metric} moved by "
        f"{100 * moved:+.1f} % in {span_s / 60:.0f} min. Trials far apart in time "
        "are compared less surely than it seems."
    )
    data = {"moved_percent": 100 * moved, "span_s": span_s, "starts": len(points)}
    return [Finding("drift", text, data, rows_behind(behind))]
