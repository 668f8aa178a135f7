"""What the search drew and what came of it, as values of the parameters of the space: from the rows alone."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

from orchestrator.analysis.rows import metric_value
from orchestrator.report.page.view import View
from orchestrator.search.distributions import distribution, to_optuna
from orchestrator.search.space import Knob, SearchSpace

#: Fewer scored trials than this say nothing of importance: half of them would be "the best".
FEWEST = 10
#: PED-ANOVA wants at least so many trials among the best (Optuna's documentation).
_FEWEST_BEST = 5


@dataclass(frozen=True, slots=True)
class Drawn:
    """A complete candidate."""

    trial: int
    #: By parameter, those whose condition does not hold left out; None leaves a setting out.
    params: Mapping[str, Any]
    score: float


@dataclass(frozen=True, slots=True)
class Importance:
    """How much each parameter decides whether a setting is among the best, largest first; together 1."""

    shares: tuple[tuple[str, float], ...]
    trials: int
    #: The best so many, as a share of all.
    quantile: float


def knobs(view: View) -> tuple[Knob, ...]:
    """The parameters in an order in which every condition comes first."""
    return SearchSpace.build(view.config.space).knobs


def drawn(view: View) -> list[Drawn]:
    """Every complete candidate with a score; one that the space of today cannot draw is left out."""
    found = []
    own = knobs(view)
    for trial, group in view.candidates.items():
        score = metric_value(group, view.objective.metric)
        if trial == 0 or score is None or group[0].outcome.state != "complete":
            continue
        params = _params(own, {**group[0].trial.requested_flags, **group[0].trial.requested_env})
        if params is not None:
            found.append(Drawn(trial, params, score))
    return found


def _params(own: tuple[Knob, ...], requested: Mapping[str, Any]) -> dict[str, Any] | None:
    params: dict[str, Any] = {}
    for knob in own:
        if not knob.active(params):
            continue
        value = requested.get(knob.name)
        if knob.target == "env" and value is not None:
            # A variable is text, and its choices may be numbers.
            value = next((choice for choice in knob.extent if str(choice) == value), value)
        if not knob.contains(value):
            return None
        params[knob.name] = value
    return params


def importance(view: View, trials: list[Drawn]) -> Importance | None:
    """By Optuna's PED-ANOVA, which 1,000 trials take a tenth of a second; None where there are too few trials, or
    they differ in no parameter or by nothing.
    """
    scores = {one.score for one in trials}
    if len(trials) < FEWEST or len(scores) < 2:
        return None
    own = {knob.name: knob for knob in knobs(view)}
    quantile = max(0.1, _FEWEST_BEST / len(trials))
    with _quiet():
        study = optuna.create_study(direction=view.objective.direction)
        study.add_trials(
            [
                optuna.trial.create_trial(
                    value=one.score,
                    params={name: to_optuna(own[name], value) for name, value in one.params.items()},
                    distributions={name: distribution(own[name]) for name in one.params},
                )
                for one in trials
            ]
        )
        found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(target_quantile=quantile))
    total = math.fsum(share for share in found.values() if math.isfinite(share))
    if not found or total <= 0:
        return None
    return Importance(tuple(sorted(found.items(), key=lambda item: -item[1])), len(trials), quantile)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)
