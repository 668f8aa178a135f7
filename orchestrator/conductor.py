"""The conductor decides what is launched next and keeps what comes back. It knows no Ray: Tune calls it.

For every end: write, then tell. A trial's files are on disk before Optuna hears of it.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.agenda import Agenda, Why
from orchestrator.analysis.agreement import judged, lossy_thresholds
from orchestrator.analysis.constraints import kept
from orchestrator.analysis.cost import node_s
from orchestrator.analysis.rows import Outcome, Row, StartInfo, TrialInfo, by_trial, metric_value
from orchestrator.attributes import trial_attributes
from orchestrator.board import LevelReport
from orchestrator.config import SweepConfig
from orchestrator.offered_load import Load
from orchestrator.plan import Report, TrialPlan
from orchestrator.remedies import environment, retried, settled, stops_study
from orchestrator.results.journal import write_journal
from orchestrator.results.store import ResultStore
from orchestrator.search.study import Outcome as Ending
from orchestrator.search.study import Study, Told, Trial
from orchestrator.search.trials import lost
from orchestrator.standing import standing

#: How Optuna hears of a configuration that was launched and cannot run: by a constraint, not by a score.
_CANNOT_RUN = {"runs": 1.0}
#: And of one whose output is not the baseline's.
_WRONG_OUTPUT = {"output": 1.0}


@dataclass(frozen=True)
class Identification:
    """What every row of the study says of it."""

    study_id: str
    simulated: bool
    profile: str | None
    #: One line to paste for a trial's flags and environment.
    command: Callable[[TrialPlan], str]


@dataclass(frozen=True)
class Finished:
    """A trial that ended, for the display."""

    trial: Trial
    #: State interrupted: it is run again, in this run or the next.
    outcome: Outcome
    rows: tuple[Row, ...]
    score: float | None

    @property
    def how(self) -> str:
        """How it ended, for a person."""
        if self.outcome.state == "interrupted" and self.outcome.failure_kind:
            return "failed, to be started again"
        if any(row.start.output_differs for row in self.rows):
            return f"{self.outcome.state}, but its output is not the baseline's"
        return self.outcome.state


class StudyFailed(RuntimeError):
    """The study cannot go on; the text says why and what to do."""


class Conductor:
    """Hands out trials, one at a time, and takes their levels and ends."""

    def __init__(
        self,
        config: SweepConfig,
        study: Study,
        store: ResultStore,
        identification: Identification,
        *,
        nodes: Callable[[], int],
        fetch: Callable[[int, Load], LevelReport | None],
        keep: Callable[[int, list[Load]], None],
        on_end: Callable[[Finished], None] = lambda done: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`nodes()` counts the nodes that can run a trial; `fetch` and `keep` are the board's."""
        self.config = config
        self.study = study
        self.store = store
        self._identification = identification
        self._nodes = nodes
        self._fetch = fetch
        self._keep = keep
        self._on_end = on_end
        self._clock = clock
        self._began = clock()
        #: The baseline's start whose output the others are compared with.
        self._reference: StartInfo | None = None
        self.live: dict[str, Trial] = {}
        self._baseline_up = False
        self._trial_s: list[float] = []
        self._earlier_s = 0.0
        self._started: dict[str, float] = {}
        #: The rows of every trial that has an end, by ordinal.
        self.known: dict[int, list[Row]] = {}
        #: Trials that had an end which cannot be read any more: they are measured again.
        self.lost: list[int] = []
        self._agenda = Agenda(config, study, self.known)

    @property
    def ended(self) -> Why | None:
        """Why no further trial is handed out; None while the study goes on."""
        return self._agenda.ended

    def finish(self, why: Why) -> None:
        """Hand out no further trial; the first reason stays."""
        self._agenda.ended = self._agenda.ended or why

    # ---- resume ----------------------------------------------------------------------------------------

    def resume(self) -> list[int]:
        """Put in order what an earlier run left; the ordinals that will be run again."""
        self.store.recover()
        # Before anything is told: what is told of a trial depends on the others.
        self.known.update(self.store.trials())
        again = self.study.reconcile(self._told_of)
        for trial in self.study.given_up():
            rows = self.store.trial(trial.ordinal)
            if not rows or rows[0].outcome.state == "interrupted":
                self._give_up(trial)
        kept = {ordinal for ordinal, rows in self.known.items() if rows[0].outcome.state != "interrupted"}
        self.lost = lost(self.study.launched(), kept)
        self.study.start_again(self.lost)
        self._earlier_s = node_s(self.store.rows())
        self._agenda.changed()
        starts = [row.start for row in self.known.get(0) or self.store.levels(0)]
        self._reference = next((start for start in reversed(starts) if start.outputs is not None), None)
        if 0 in self.known:
            outcome = self.known[0][0].outcome
            _judge_baseline(outcome, len(self.study.launched()[0]))
            self._baseline_up = outcome.state == "complete"
        return sorted({*again, *self.lost})

    def _give_up(self, trial: Trial) -> None:
        """Each launched trial has an end on disk, that of a trial which every run was killed in as well."""
        outcome = Outcome("failed", "interrupted", f"interrupted {trial.attempt} times")
        self.known[trial.ordinal] = self.store.finish_trial(self._info(trial), StartInfo(trial.attempt, None), outcome)

    @property
    def done(self) -> int:
        """Trials that have their end, repeats included."""
        return sum(rows[0].outcome.state != "interrupted" for rows in list(self.known.values()))

    @property
    def remaining(self) -> int:
        """Trials of the search that the budget still holds, those that run now taken off."""
        return self._agenda.remaining(self.live.values())

    @property
    def planned(self) -> int:
        """Trials that the budget comes to, repeats included: about, before the search is over."""
        return self.done + len(self.live) + self._agenda.left(self.live.values())

    def nothing_left(self) -> bool:
        """Whether the study was over before this run: nothing need be started to know it."""
        return self._agenda.nothing_left()

    def _told_of(self, ordinal: int, attempt: int) -> Told | None:
        rows = self.store.trial(ordinal)
        if not rows:
            return None
        outcome = rows[0].outcome
        # An interrupted trial's file may be that of an earlier attempt.
        if outcome.state == "interrupted" and max(row.start.attempt for row in rows) != attempt:
            return None
        return self._told(outcome, rows)

    # ---- handing out -----------------------------------------------------------------------------------

    def next(self, key: str) -> TrialPlan | None:
        """The next trial, for whoever calls himself `key`; None when there is none now.

        `ended` then says whether that is for good.
        """
        if self.ended or len(self.live) >= self._nodes():
            return None
        trial = self._agenda.next(
            self.live.values(),
            self._baseline_up,
            search_time=self._time_for(lambda: 1 + self._agenda.confirmations_left()),
            any_time=self._time_for(lambda: 1),
        )
        if trial is None:
            return None
        self.live[key] = trial
        self._started[key] = self._clock()
        self.write_journal(self.store.rows())
        levels = [row.level for row in self.store.levels(trial.ordinal)]
        self._keep(trial.ordinal, [level.load for level in levels if level and level.comparable])
        return self._plan(trial)

    def _time_for(self, starts: Callable[[], int]) -> bool:
        """Whether the time budget has room for so many more starts, one after the other on each node."""
        limit = self.config.budget.time_s
        if limit is None:
            return True
        spent = self._clock() - self._began
        each = max(self._trial_s[-3:]) if self._trial_s else 0.0
        return spent + each * math.ceil(starts() / max(1, self._nodes())) <= limit

    def _plan(self, trial: Trial) -> TrialPlan:
        return TrialPlan(
            trial.ordinal, trial.attempt, dict(trial.candidate.flags), environment(trial), self._ladder(trial)
        )

    def _ladder(self, trial: Trial) -> tuple[Load, ...]:
        """The levels that the trial measures."""
        score, ladder = self.config.score.objective.metric.load, self.config.workload.ladder
        if trial.role == "confirmation":
            return self.config.confirmation_ladder
        # Once more in the same start: how far two levels of one server lie apart.
        again = trial.role == "baseline" and self._agenda.plan.cost > 0
        return (*ladder, dataclasses.replace(score, repeat=1)) if again else ladder

    # ---- taking back -----------------------------------------------------------------------------------

    def report(self, key: str, report: Report) -> None:
        """A stage is over. On return a measured level is on disk."""
        trial = self.live[key]
        if report.event == "ready" and trial.role == "baseline":
            self._baseline_up = True
            if report.start is not None and report.start.outputs is not None:
                self._reference = report.start
        if report.event == "level" and report.load is not None:
            self._write(trial, report.load)

    def _write(self, trial: Trial, load: Load) -> None:
        measured = self._fetch(trial.ordinal, load)
        if measured is None:
            raise StudyFailed(f"the level {load.label} of trial {trial.ordinal} was measured but got lost")
        start = self._judged(trial, measured.start)
        self.store.write_level(self._info(trial), start, measured.level, measured.requests, measured.counters)
        # One that cannot be compared is measured again, should the trial start once more.
        if measured.level.comparable:
            self._keep(trial.ordinal, [load])

    def _judged(self, trial: Trial, start: StartInfo) -> StartInfo:
        """The start with its output compared with the baseline's."""
        sampled = self.config.workload.sampling.temperature > 0
        lossy = sampled and trial.role != "baseline" and lossy_thresholds(trial.candidate.canonical_flags)
        return judged(start, self._reference, lossy=lossy)

    def end(self, key: str, report: Report | None) -> Finished:
        """A trial is over; None: its node was lost, and Tune has given it up."""
        trial = self.live.pop(key)
        self._trial_s.append(self._clock() - self._started.pop(key))
        if report is None or report.outcome is None:
            lost = Outcome("failed", "node_lost", "its node was lost each time it ran")
            report = Report("end", outcome=lost, start=StartInfo(trial.attempt, None))
        assert report.outcome is not None
        assert report.start is not None
        if report.outcome.state == "interrupted":
            self.finish("stopped")
        outcome, start = settled(report.outcome, trial), self._judged(trial, report.start)
        rows = self.store.finish_trial(self._info(trial), start, outcome)
        told = self._told(outcome, rows)
        self.study.tell(trial.ordinal, told)
        self.write_journal(self.store.rebuild(self.config.objectives, self.config.limits).rows)
        done = Finished(trial, outcome, tuple(rows), told.score)
        self.known[trial.ordinal] = rows
        self._agenda.changed()
        self._on_end(done)
        if stops_study(outcome):
            self.finish("failed")
            raise StudyFailed(
                f"trial {trial.ordinal} failed for a reason that other trials will meet too ({outcome.failure_kind}): "
                f"{outcome.failure_message}. Mend the search space or the machine, then run again (with --fresh "
                "where the space has changed)"
            )
        if trial.role == "baseline" and outcome.state in ("failed", "infeasible"):
            self.finish("failed")
            _judge_baseline(outcome, trial.attempt)
        if start.stop_proven is False:
            raise StudyFailed(
                f"the server of trial {trial.ordinal} could not be stopped on {start.host}: processes of "
                "it are left. Stop them by hand, then run the same command again"
            )
        return done

    def write_journal(self, rows: Sequence[Row], *, alive: bool = True) -> None:
        """Keep a line for each trial of what came of it; `alive`: the sweep goes on."""
        trials = by_trial(rows)
        where = standing(self.config, self.study.launched(), self.study.answered(), trials, alive=alive)
        write_journal(self.store, self.config, self._identification.study_id, rows, where)

    def _told(self, outcome: Outcome, rows: list[Row]) -> Told:
        """What Optuna hears of an end, and what people see there."""
        told = self._verdict(outcome, rows)
        return dataclasses.replace(told, shown=trial_attributes(self.config, rows, self.known))

    def _verdict(self, outcome: Outcome, rows: list[Row]) -> Told:
        if outcome.state == "interrupted":
            again = Ending.RETRIED if retried(outcome) else Ending.INTERRUPTED
            return Told(again, reason=outcome.failure_kind or "stopped")
        if outcome.state == "infeasible":
            return Told(Ending.INFEASIBLE, violations=_CANNOT_RUN, reason=outcome.failure_kind)
        if outcome.state == "complete":
            if any(row.start.output_differs for row in rows):
                return Told(Ending.INFEASIBLE, violations=_WRONG_OUTPUT, reason="output_differs")
            score = metric_value(rows, self.config.score.objective.metric)
            if score is not None:
                return Told(Ending.COMPLETE, score, self._violations(rows))
            return Told(Ending.FAILED, reason="no_score")
        return Told(Ending.FAILED, reason=outcome.failure_kind)

    def _violations(self, rows: list[Row]) -> dict[str, float]:
        """By constraint; a number that is missing violates it, and what nobody can tell is left out."""
        repeated = self.known.get(rows[0].trial.repeats or 0, ())
        found = {}
        for text, limit in zip(self.config.constraints, self.config.limits, strict=True):
            stands = kept(rows, repeated, limit)
            if stands.violation is not None:
                found[text] = 1.0 if stands.value is None else stands.violation
        return found

    def _info(self, trial: Trial) -> TrialInfo:
        candidate = trial.candidate
        return TrialInfo(
            study=self.config.study,
            study_id=self._identification.study_id,
            trial=trial.ordinal,
            optuna_number=trial.optuna_number,
            role=trial.role,
            repeat=trial.repeat,
            repeats=trial.repeats,
            simulated=self._identification.simulated,
            profile=self._identification.profile,
            identity=candidate.identity,
            requested_flags=candidate.flags,
            requested_env=candidate.env,
            canonical_flags=candidate.canonical_flags,
            canonical_env=candidate.canonical_env,
            launch_command=self._identification.command(self._plan(trial)),
            gpus=self.config.node.gpus,
        )

    # ---- what the display asks -------------------------------------------------------------------------

    def used_node_s(self) -> float:
        """Seconds that trials have held their nodes: of earlier runs what is stored, of this one by the clock."""
        now = self._clock()
        return self._earlier_s + sum(self._trial_s) + sum(now - began for began in list(self._started.values()))

    def left_node_s(self) -> float | None:
        """An estimate of what is left of that, from the trials of this run; None before the first has ended."""
        if not self._trial_s:
            return None
        mean = sum(self._trial_s) / len(self._trial_s)
        now = self._clock()
        running = sum(max(0.0, mean - (now - began)) for began in list(self._started.values()))
        return mean * self._agenda.left(self.live.values()) + running

    def left_s(self) -> float | None:
        """The same by the clock, its nodes side by side."""
        left = self.left_node_s()
        return None if left is None else left / max(1, self._nodes())


def _judge_baseline(outcome: Outcome, starts: int) -> None:
    """Raise StudyFailed where the baseline has failed for good."""
    if outcome.state in ("failed", "infeasible"):
        times = f", started {starts} times," if starts > 1 else ""
        raise StudyFailed(
            f"the baseline{times} failed ({outcome.failure_kind}): {outcome.failure_message}. Nothing can be compared "
            "with it: mend `server:` or `workload:`, then start anew with --fresh"
        )
