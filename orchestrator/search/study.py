"""The study in Optuna's storage: the one durable memory of the search.

Optuna's numbers differ from our ordinals, since each further start of a trial is a new Optuna trial with the
old ordinal, and so are the answers to duplicates and refusals, which are told to Optuna but never launched.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.trial import FrozenTrial, TrialState

from orchestrator.config import SweepConfig
from orchestrator.search.candidate import Candidate, Configurations
from orchestrator.search.dashboard import save_note
from orchestrator.search.distributions import distribution, from_optuna, to_optuna
from orchestrator.search.remaining import Remaining
from orchestrator.search.repeats import Repeat
from orchestrator.search.sampling import generator, sampler
from orchestrator.search.space import Knob
from orchestrator.search.storage import StudyError, open_storage
from orchestrator.search.trials import (
    Outcome,
    Told,
    Trial,
    answered,
    answered_draws,
    by_ordinal,
    counted,
    ended,
    ends,
    outcomes,
    stored_params,
)

__all__ = ["MAX_DRAWS", "Outcome", "Study", "StudyError", "Told", "Trial", "open_storage"]

#: Draws for one ordinal before one of the remaining points is taken.
MAX_DRAWS = 24


class Study:
    """Asks for the next launch, tells results, and puts in order what an interruption left.

    Every method raises StudyError where the database cannot be used.
    """

    def __init__(
        self,
        storage: optuna.storages.BaseStorage,
        name: str,
        config: SweepConfig,
        *,
        nvlink: bool = False,
        architecture: str | None = None,
    ) -> None:
        """Create or load. Raises StudyError where the stored study searches in another direction.

        `nvlink` and `architecture`: what is known of the nodes and of the model, as for `Configurations`.
        """
        self.config = config
        self.know_nodes(nvlink=nvlink, architecture=architecture)
        self.direction = config.score.objective.direction
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._study = optuna.create_study(
            storage=storage,
            study_name=name,
            direction=self.direction,
            sampler=sampler(config, 0, 0),
            load_if_exists=True,
        )
        # Optuna ignores other directions when it loads a study.
        stored = [d.name.lower() for d in self._study.directions]
        if stored != [self.direction]:
            raise StudyError(f"study {name!r} is stored with {stored}, now {self.direction} is asked: use --fresh")
        names = [str(config.score.objective.metric)]
        with warnings.catch_warnings():
            # That they are experimental in Optuna 5.0.
            warnings.simplefilter("ignore", ExperimentalWarning)
            if self._study.metric_names != names:
                self._study.set_metric_names(names)
        self._open: dict[int, optuna.Trial] = {}

    def know_nodes(self, *, nvlink: bool, architecture: str | None) -> None:
        """What is known of the nodes and of the model, as for `Configurations`: before anything is asked."""
        self.configurations = Configurations(self.config, nvlink=nvlink, architecture=architecture)
        self._remaining = Remaining(self.configurations)

    # ---- what is known -------------------------------------------------------------------------------------

    def _trials(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False)

    def launched(self) -> dict[int, list[FrozenTrial]]:
        """Every attempt by ordinal, in order; trials that were never launched left out."""
        return by_ordinal(self._trials())

    def counted(self) -> list[int]:
        """Ordinals of the search that used up budget: complete, failed for a reason of their own, or given up."""
        return counted(self.launched())

    def answered(self) -> list[FrozenTrial]:
        """Draws that were answered without a launch: duplicates, and what SGLang's rules refuse."""
        return answered(self._trials())

    def running(self) -> list[int]:
        """Ordinals whose latest attempt is open or waits to be run again."""
        return [ordinal for ordinal, attempts in sorted(self.launched().items()) if not ended(attempts)]

    # ---- resume --------------------------------------------------------------------------------------------

    def reconcile(self, finished: Callable[[int, int], Told | None]) -> list[int]:
        """Put in order what an earlier run left; the ordinals that will be run again.

        `finished(ordinal, attempt)` gives what the result files say of an attempt, None when they hold no end
        of it. Only to be called by the one owner of the study.
        """
        for trial in self._trials():
            if trial.state is not TrialState.RUNNING:
                continue
            # Without an attempt it was never launched: the same draw is simply made again.
            launched = trial.user_attrs.get("attempt")
            told = finished(trial.user_attrs["ordinal"], launched) if launched else None
            told = told or Told(Outcome.INTERRUPTED, reason="orchestrator_died")
            self._tell(optuna.Trial(self._study, trial._trial_id), told)
        again = []
        for ordinal, attempts in self.launched().items():
            if attempts[-1].state is TrialState.WAITING:
                again.append(ordinal)
            elif not ended(attempts):
                self._enqueue_again(attempts[-1])
                again.append(ordinal)
        return again

    def start_again(self, ordinals: Iterable[int]) -> None:
        """Put trials that have their end in the queue once more, since nothing of it is on disk."""
        launched = self.launched()
        for ordinal in ordinals:
            self._enqueue_again(launched[ordinal][-1])

    def given_up(self) -> list[Trial]:
        """Trials that were interrupted too often to be run again, as they were launched last."""
        found = []
        for ordinal, attempts in self.launched().items():
            last = attempts[-1]
            if ended(attempts) and last.user_attrs.get("outcome") == Outcome.INTERRUPTED:
                stored = stored_params(last)
                knobs = self.configurations.space.knobs
                params = {k.name: from_optuna(k, stored[k.name]) for k in knobs if k.name in stored}
                attrs = last.user_attrs
                candidate = self.configurations.candidate(params)
                repeated = (attrs.get("repeats"), attrs.get("repeat", 0))
                found.append(Trial(ordinal, last.number, attrs["role"], attrs["attempt"], candidate, *repeated))
        return found

    def _enqueue_again(self, last: FrozenTrial) -> None:
        kept = ("ordinal", "role", "identity", "draw", "repeats", "repeat")
        attrs = {k: last.user_attrs[k] for k in kept if k in last.user_attrs}
        self._enqueue(stored_params(last), attempt=last.user_attrs["attempt"] + 1, **attrs)

    def _enqueue(self, params: dict[str, Any], **attrs: Any) -> None:
        # One transaction: no half-described trial is ever in the queue.
        self._study.enqueue_trial(params, user_attrs=attrs)

    # ---- ask -----------------------------------------------------------------------------------------------

    def ask_again(self) -> Trial | None:
        """The next trial to start again, with the parameters it had; None when there is none."""
        if not any(t.state is TrialState.WAITING for t in self._trials()):
            return None
        trial = self._study.ask()
        baseline = trial.user_attrs["role"] == "baseline" or trial.user_attrs.get("repeats") == 0
        candidate = self.configurations.baseline() if baseline else self._draw(trial)
        return self._opened(trial, candidate)

    def ask_baseline(self) -> Trial:
        """Trial 0: no parameters, so that nothing is said of the space's own values."""
        return self._launch(self._study.ask(), 0, 0, "baseline", self.configurations.baseline())

    def ask_repeat(self, repeat: Repeat) -> Trial:
        """The setting of an earlier trial once more, as a trial of its own."""
        launched = self.launched()
        of = launched[repeat.of][-1]
        self._enqueue(
            stored_params(of),
            ordinal=max(launched) + 1,
            draw=0,
            identity=of.user_attrs["identity"],
            role=repeat.role,
            repeats=repeat.of,
            repeat=repeat.number,
            attempt=1,
        )
        trial = self.ask_again()
        assert trial is not None
        return trial

    def ask(self) -> Trial | None:
        """The next new configuration; None when the space is exhausted.

        A duplicate of a finished configuration is answered with that one's end; a refused one is told as
        infeasible; one that is running now is drawn again. None of them is launched.
        """
        launched = self.launched()
        ordinal = max(launched, default=0) + 1
        known = ends(launched)
        for draw in range(answered_draws(self._trials(), ordinal), MAX_DRAWS):
            self._study.sampler = sampler(self.config, ordinal, draw)
            trial = self._study.ask()
            candidate = self._draw(trial)
            answer = _answer(candidate, known)
            if answer is None:
                return self._launch(trial, ordinal, draw, "candidate", candidate)
            self._note(trial, ordinal=ordinal, draw=draw, identity=candidate.identity)
            self._tell(trial, answer)
        return self._ask_remaining(ordinal, known)

    def _ask_remaining(self, ordinal: int, known: Mapping[str, Told | None]) -> Trial | None:
        point = self._remaining.pick(generator(self.config, ordinal, MAX_DRAWS), known)
        if point is None:
            return None
        knobs = self.configurations.space.knobs
        self._enqueue(
            {k.name: to_optuna(k, point[k.name]) for k in knobs if k.name in point},
            ordinal=ordinal,
            draw=MAX_DRAWS,
            identity=self.configurations.identity(point),
            role="candidate",
            attempt=1,
        )
        return self.ask_again()

    def _draw(self, trial: optuna.Trial) -> Candidate:
        def suggest(knob: Knob) -> Any:
            return from_optuna(knob, trial._suggest(knob.name, distribution(knob)))

        return self.configurations.candidate(self.configurations.space.draw(suggest))

    def _launch(self, trial: optuna.Trial, ordinal: int, draw: int, role: str, candidate: Candidate) -> Trial:
        # The attempt last: it is what makes an Optuna trial a launched one.
        self._note(trial, ordinal=ordinal, draw=draw, identity=candidate.identity, role=role, attempt=1)
        return self._opened(trial, candidate)

    def _opened(self, trial: optuna.Trial, candidate: Candidate) -> Trial:
        attrs = trial.user_attrs
        self._open[attrs["ordinal"]] = trial
        before = outcomes(self.launched()[attrs["ordinal"]])
        return Trial(
            attrs["ordinal"],
            trial.number,
            attrs["role"],
            attrs["attempt"],
            candidate,
            attrs.get("repeats"),
            attrs.get("repeat", 0),
            interruptions=sum(outcome is Outcome.INTERRUPTED for outcome, _ in before),
            failures=tuple(reason for outcome, reason in before if outcome is Outcome.RETRIED),
        )

    # ---- tell ----------------------------------------------------------------------------------------------

    def tell(self, ordinal: int, told: Told) -> None:
        """Tell the end of a launched trial. Its result file is on disk before (write, then tell).

        One that is to be retried is asked again next.
        """
        self._tell(self._open[ordinal], told)
        del self._open[ordinal]
        attempts = self.launched()[ordinal]
        # Killed before this, `reconcile` does it.
        if told.outcome is Outcome.RETRIED and not ended(attempts):
            self._enqueue_again(attempts[-1])

    def _tell(self, trial: optuna.Trial, told: Told) -> None:
        """One trial's end. A score that is no finite number above 0 is a failure, never a value.

        Optuna itself would let +inf win, and turn NaN into a failure without a reason.
        """
        if told.score is not None and not (math.isfinite(told.score) and told.score > 0):
            told = Told(Outcome.FAILED, reason=f"the score is {told.score}", shown=told.shown)
        elif told.score is None and told.outcome is Outcome.COMPLETE:
            told = Told(Outcome.FAILED, reason=told.reason or "no score", shown=told.shown)
        self._note(trial, **told.shown)
        self._note(trial, outcome=str(told.outcome), **({"reason": told.reason} if told.reason else {}))
        # A kill in the middle may have left some: Optuna warns on the terminal about a second value.
        already = self._study._storage.get_trial(trial._trial_id).constraints
        for name, value in (told.violations or {}).items():
            if name not in already:
                trial.set_constraint(name, value if math.isfinite(value) else 1.0)
        if told.score is not None:
            self._study.tell(trial, told.score)
        else:
            # What cannot run is PRUNED with a violated constraint: TPE then learns to avoid it.
            self._study.tell(trial, state=TrialState.PRUNED if told.violations else TrialState.FAIL)

    def _note(self, trial: optuna.Trial, **attrs: Any) -> None:
        for name, value in attrs.items():
            trial.set_user_attr(name, value)

    # ---- for people ----------------------------------------------------------------------------------------

    def describe(self, attributes: Mapping[str, str], note: str) -> None:
        """What optuna-dashboard shows of the study: user attributes, and a note where it is installed."""
        known = self._study.user_attrs
        for name, value in attributes.items():
            if known.get(name) != value:
                self._study.set_user_attr(name, value)
        save_note(self._study, note)

    # ---- the owner -----------------------------------------------------------------------------------------

    def owner(self) -> dict[str, Any] | None:
        """Who last claimed the study."""
        owner: dict[str, Any] | None = self._study.user_attrs.get("owner")
        return owner

    def claim(self, owner: Mapping[str, Any]) -> None:
        """Note who runs the study, and when; called again while it runs."""
        self._study.set_user_attr("owner", dict(owner))


def _answer(candidate: Candidate, known: Mapping[str, Told | None]) -> Told | None:
    """What Optuna is told instead of a launch; None for a configuration to launch."""
    if candidate.rejected:
        return Told(Outcome.REFUSED, violations={"rules": 1.0}, reason=candidate.rejected)
    if candidate.identity not in known:
        return None
    return known[candidate.identity] or Told(Outcome.DUPLICATE, reason="it is running now")
