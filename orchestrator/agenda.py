"""What is launched next, and when the study is over: the budget, divided between the search and its proof."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.analysis.rows import Row
from orchestrator.config import SweepConfig
from orchestrator.search.repeats import (
    Launched,
    RepeatPlan,
    confirmation_due,
    confirmations_left,
    sentinel_due,
)
from orchestrator.search.study import Study, Trial
from orchestrator.search.trials import counted
from orchestrator.standing import budget_plan, launched_trials

Why = Literal["budget", "exhausted", "time", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class _Standing:
    """Where the study stands."""

    launched: list[Launched]
    plan: RepeatPlan
    #: Trials of the search that used up budget.
    counted: int


class Agenda:
    """Hands out the next trial. The search's state is Optuna's; `known` are the rows of every trial that has an end."""

    def __init__(self, config: SweepConfig, study: Study, known: Mapping[int, Sequence[Row]]) -> None:
        self._config = config
        self._study = study
        self._known = known
        self._searched: Why | None = None
        self._standing: _Standing | None = None
        #: The display's thread asks as well: what it reckons must not outlive a change.
        self._lock = threading.Lock()
        #: Why no further trial is handed out; None while the study goes on.
        self.ended: Why | None = None

    def changed(self) -> None:
        """A trial was handed out, or has its end. In between nothing is reckoned twice: a display asks all the time."""
        with self._lock:
            self._standing = None

    @property
    def plan(self) -> RepeatPlan:
        """How the budget is divided, as far as is known now."""
        return self._now.plan

    @property
    def _now(self) -> _Standing:
        with self._lock:
            if self._standing is None:
                attempts = self._study.launched()
                launched = launched_trials(self._config, attempts, self._known)
                plan = budget_plan(self._config, launched, self._known)
                self._standing = _Standing(launched, plan, len(counted(attempts)))
            return self._standing

    def remaining(self, live: Collection[Trial]) -> int:
        """Trials of the search that the budget still holds, those that run now taken off."""
        return self._now.plan.searched - self._now.counted - sum(trial.repeats is None for trial in live)

    def confirmations_left(self) -> int:
        """Starts that the confirmation still takes, were the search over now."""
        now = self._now
        return confirmations_left(now.plan, now.launched) if now.launched else 0

    def left(self, live: Collection[Trial]) -> int:
        """Starts still to come, those that run now taken off; about, before the search is over."""
        plan, launched = self._now.plan, self._now.launched
        sentinels = plan.aa + len(plan.sentinels) - sum(trial.role == "sentinel" for trial in launched)
        over = self._searched is not None or self.remaining(live) <= 0
        confirmations = self.confirmations_left() if over else plan.confirmations
        return max(0, self.remaining(live)) + max(0, sentinels) + confirmations

    def nothing_left(self) -> bool:
        """Whether the study was over before this run: nothing need be started to know it."""
        launched = self._now.launched
        if self._study.running() or not launched or self.remaining(()) > 0:
            return False
        if sentinel_due(self.plan, launched) is None and confirmation_due(self.plan, launched) is None:
            self.ended = "budget"
        return self.ended is not None

    def next(self, live: Collection[Trial], baseline_up: bool, search_time: bool, any_time: bool) -> Trial | None:
        """The next trial; None when there is none now, `ended` says whether for good.

        `search_time` and `any_time`: whether the time budget has room for another trial of the search, with the
        confirmation after it, and for another start at all.
        """
        if self.ended:
            return None
        if not any_time:
            self.ended = "time"
            return None
        trial = self._study.ask_again() or self._next_new(live, baseline_up, search_time)
        if trial is not None:
            self.changed()
        return trial

    def _next_new(self, live: Collection[Trial], baseline_up: bool, search_time: bool) -> Trial | None:
        launched = self._now.launched
        if not launched:
            return self._study.ask_baseline()
        if not baseline_up:
            return None  # what cannot start at all is not searched
        repeat = sentinel_due(self.plan, launched)
        if repeat is not None:
            return self._study.ask_repeat(repeat)
        return self._next_of_search(live, search_time) or self._next_of_confirmation(live)

    def _next_of_search(self, live: Collection[Trial], time: bool) -> Trial | None:
        if self._searched is not None:
            return None
        why: Why = "budget"
        if not time:
            why = "time"
        elif self.remaining(live) > 0:
            trial = self._study.ask()
            if trial is not None:
                return trial
            why = "exhausted"
        # Who the finalists are depends on those that still run.
        if not live:
            self._searched = why
        return None

    def _next_of_confirmation(self, live: Collection[Trial]) -> Trial | None:
        if self._searched is None:
            return None
        repeat = confirmation_due(self.plan, self._now.launched)
        if repeat is not None:
            return self._study.ask_repeat(repeat)
        if not live:
            self.ended = self._searched
        return None
