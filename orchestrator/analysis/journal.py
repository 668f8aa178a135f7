"""The journal: of each trial where it stands and what came of it, in a line. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from launchers.errors import Remedy, remedy_of
from orchestrator.analysis.causes.verdict import Judge, Verdict
from orchestrator.analysis.finding import settings_text, trials_text
from orchestrator.analysis.objectives import Constraint, Objective
from orchestrator.analysis.rows import Row, by_trial

#: pending: still to be started, or started again; stopped: begun, and nobody is at work on it now.
State = Literal["pending", "running", "done", "failed", "infeasible", "stopped"]
STATES: tuple[State, ...] = ("pending", "running", "done", "failed", "infeasible", "stopped")

#: A line is cut where a message would make it a page.
_LONGEST = 220


@dataclass(frozen=True, slots=True)
class Attempt:
    """The latest start of a trial, as the search's own memory has it."""

    trial: int
    role: str
    number: int
    standing: Literal["waiting", "running", "ended"]
    settings: Mapping[str, Any] = field(default_factory=dict)
    repeats: int | None = None
    repeat: int = 0
    #: What the search was told of its end, in words; None where it was told of none.
    told: str | None = None


@dataclass(frozen=True, slots=True)
class Unlaunched:
    """Starts that the plan still holds, or draws that were answered without one."""

    role: str
    count: int
    state: State
    finding: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the journal. Without a trial it stands for `count` that were not launched (yet)."""

    state: State
    finding: str
    role: str
    trial: int | None = None
    #: The class of what happened: a failure's, `output_differs`, `constraint`, `refuted`, `interrupted`, `lost`;
    #: None for none.
    reason: str | None = None
    settings: str | None = None
    repeats: int | None = None
    repeat: int = 0
    attempt: int | None = None
    count: int = 1
    score: float | None = None
    #: Against the baseline, with its 95 % interval; positive is more, whichever direction is better.
    gain_percent: float | None = None
    gain_low_percent: float | None = None
    gain_high_percent: float | None = None
    #: At the score's load.
    accept_length: float | None = None
    started_at: datetime | None = None
    #: End of its last level.
    measured_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """What the rows cannot tell: the search's attempts, what is still to come, and whether a sweep is at work."""

    attempts: Mapping[int, Attempt] = field(default_factory=dict)
    unlaunched: Sequence[Unlaunched] = ()
    alive: bool = False
    #: Levels of a whole trial.
    levels: int = 0


def entries(
    rows: Iterable[Row],
    objective: Objective,
    limits: Sequence[Constraint] = (),
    standing: Standing | None = None,
) -> list[Entry]:
    """A line for each trial, in their order, and then for what was not launched."""
    standing = standing or Standing()
    rows = list(rows)
    trials, judge = by_trial(rows), Judge(rows, objective, limits)
    found = []
    for ordinal in sorted({*trials, *standing.attempts}):
        group, attempt = trials.get(ordinal, []), standing.attempts.get(ordinal)
        entry = _entry(ordinal, group, attempt, judge, standing)
        found.append(replace(entry, finding=one_line(entry.finding)))
    for more in standing.unlaunched:
        found.append(Entry(more.state, one_line(more.finding), more.role, reason=more.reason, count=more.count))
    return found


def line_of(
    trial: int, rows: Iterable[Row], objective: Objective, limits: Sequence[Constraint] = (), *, levels: int = 0
) -> str:
    """The journal's finding of one trial, by rows alone; `levels` are those of a whole trial."""
    rows = list(rows)
    judge = Judge(rows, objective, limits)
    return one_line(_entry(trial, by_trial(rows)[trial], None, judge, Standing(levels=levels)).finding)


def _entry(ordinal: int, group: Sequence[Row], attempt: Attempt | None, judge: Judge, standing: Standing) -> Entry:
    blank = _blank(ordinal, group, attempt, judge)
    state = group[0].outcome.state if group else None
    open_again = attempt is not None and attempt.standing != "ended"
    if group and state != "interrupted" and not open_again:
        return _ended(blank, group, judge)
    if attempt is not None and attempt.standing == "running" and standing.alive:
        text = _measured(group, standing.levels, attempt.number)
        return replace(blank, state="running", finding=text)
    if attempt is not None and attempt.standing == "running":
        text = f"the sweep ended while it ran; {_measured(group, standing.levels, attempt.number)}; {_AGAIN}"
        return replace(blank, state="stopped", finding=text, reason="interrupted")
    if attempt is not None and attempt.told is not None:
        text = f"its file is lost or damaged (Optuna was told {attempt.told}); "
        if attempt.standing == "waiting":
            return replace(blank, state="pending", finding=f"{text}to be measured again", reason="lost")
        who = "the next run" if standing.alive else "the same command"
        return replace(blank, state="stopped", finding=f"{text}{who} measures it again", reason="lost")
    if not group and attempt is not None and attempt.number == 1 and attempt.standing == "waiting":
        return replace(blank, state="pending", finding="to be started")
    outcome = group[0].outcome if group else None
    reason = outcome.failure_kind if outcome else None
    if reason is None:
        kept = _measured(group, standing.levels, blank.attempt or 1)
        how: State = "pending" if standing.alive else "stopped"
        text = f"interrupted; {kept}; " + ("to be started again" if standing.alive else _AGAIN)
        return replace(blank, state=how, finding=text, reason="interrupted")
    message = f": {outcome.failure_message}" if outcome and outcome.failure_message else ""
    if remedy_of(reason) is Remedy.STOP_STUDY:
        text = f"failed ({_words(reason)}), as every other would: mend it, and {_AGAIN}{message}"
        return replace(blank, state="stopped", finding=text, reason=reason)
    text = f"failed ({_words(reason)}), to be started again, since another start may not meet it{message}"
    return replace(blank, state="pending", finding=text, reason=reason)


_AGAIN = "the same command goes on with it"


def _blank(ordinal: int, group: Sequence[Row], attempt: Attempt | None, judge: Judge) -> Entry:
    """What is known of a trial whatever its state."""
    first = group[0] if group else None
    measured = [row.level.measured_at for row in group if row.level is not None]
    common = judge.common
    if first is not None:
        settings = settings_text(first, common)
    else:
        own = {k: v for k, v in (attempt.settings if attempt else {}).items() if k not in common or common[k] != v}
        settings = " ".join(f"{k}={v}" for k, v in own.items()) or "the server's defaults"
    return Entry(
        state="pending",
        finding="",
        role=first.trial.role if first else attempt.role if attempt else "candidate",
        trial=ordinal,
        settings=settings,
        repeats=first.trial.repeats if first else attempt.repeats if attempt else None,
        repeat=first.trial.repeat if first else attempt.repeat if attempt else 0,
        attempt=attempt.number if attempt else max((row.start.attempt for row in group), default=None),
        started_at=max((row.start.started_at for row in group if row.start.started_at), default=None),
        measured_at=max(measured, default=None),
    )


def lost_text(trials: Sequence[int]) -> str:
    """Of trials whose end cannot be read any more; what follows is what becomes of them."""
    one = len(trials) == 1
    return f"the {'file' if one else 'files'} of {trials_text(trials)} {'is' if one else 'are'} lost or damaged: " + (
        "it is" if one else "they are"
    )


def _ended(blank: Entry, group: Sequence[Row], judge: Judge) -> Entry:
    outcome = group[0].outcome
    if outcome.state in ("failed", "infeasible"):
        kind = outcome.failure_kind or "unknown"
        what = "failed" if outcome.state == "failed" else "cannot run"
        message = f": {outcome.failure_message}" if outcome.failure_message else ""
        after = f" while {outcome.failure_phase}" if outcome.failure_phase else ""
        text = f"{what} ({_words(kind)}){after}{message}"
        state: State = "failed" if outcome.state == "failed" else "infeasible"
        return replace(blank, state=state, finding=text, reason=kind)
    verdict = judge.of(group)
    entry = _with(blank, verdict)
    if any(row.start.output_differs for row in group):
        text = f"its output is not the baseline's: not compared, however fast{_figure_of(verdict)}"
        return replace(entry, state="infeasible", finding=text, reason="output_differs")
    if verdict.violated:
        text = f"breaks {verdict.violated}: does not count{_figure_of(verdict)}"
        return replace(entry, state="infeasible", finding=text, reason="constraint")
    if verdict.refuted:
        text = f"refuted: {verdict.refuted}; does not count{_figure_of(verdict)}"
        return replace(entry, state="infeasible", finding=text, reason="refuted")
    if verdict.score is None:
        return replace(entry, state="failed", finding=verdict.text, reason="no_score")
    return replace(entry, state="done", finding=verdict.text)


def _with(blank: Entry, verdict: Verdict) -> Entry:
    gain = verdict.gain
    ratios = () if gain is None else (gain.mean, gain.low, gain.high)
    percents = [100 * (value - 1) for value in ratios] if all(map(math.isfinite, ratios)) and ratios else [None] * 3
    return replace(
        blank,
        score=verdict.score,
        gain_percent=percents[0],
        gain_low_percent=percents[1],
        gain_high_percent=percents[2],
        accept_length=verdict.accept_length,
    )


def _figure_of(verdict: Verdict) -> str:
    return f" ({verdict.score_text})" if verdict.score_text else ""


def _measured(group: Sequence[Row], levels: int, attempt: int) -> str:
    labels = [row.level.load.label for row in group if row.level is not None]
    start = "" if attempt <= 1 else f"start {attempt}, "
    if not labels:
        return f"{start}nothing measured yet"
    of = f" of {levels} levels" if levels and len(labels) <= levels else ""
    return f"{start}{', '.join(labels)} measured{f' ({len(labels)}{of})' if of else ''}"


def _words(kind: str) -> str:
    return kind.replace("_", " ")


def one_line(text: str) -> str:
    """The text without line breaks and control characters, cut at a word where it is very long."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return flat if len(flat) <= _LONGEST else flat[:_LONGEST].rsplit(" ", 1)[0].rstrip(",.;:") + " ..."


def whole(text: str) -> str:
    """The text with its line breaks, without other control characters, and not cut."""
    return "\n".join("".join(c if c.isprintable() else " " for c in line).rstrip() for line in text.splitlines())
