"""How often the product is wrong: settings that are the same called different, and a real gap not found.

Starts are drawn through the twin's pure performance model with the flagship profile's unrest, and judged by the code
that judges a study.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from closed_loop import closed_loop

from launchers.simulated.profile import load_profile
from orchestrator.analysis.comparisons import against_baseline
from orchestrator.analysis.confirmation import confirmations
from orchestrator.analysis.objectives import parse_objective
from orchestrator.analysis.rows import Row
from orchestrator.config import Repeats
from orchestrator.search.repeats import Launched, confirmation_due, plan_repeats

Build = Callable[..., Row]
PROFILE = load_profile("kimi-k2.5-8x-rtx-pro-6000")
OBJECTIVE = parse_objective("output_tokens_per_s@8")
PAIRS = 200


def start(rng: random.Random, pace: float = 1.0) -> float:
    """The throughput of one start."""
    measured = closed_loop(
        PROFILE,
        {},
        {},
        concurrency=8,
        prompt_tokens=128,
        output_tokens=24,
        requests_per_user=2,
        seed=rng.getrandbits(32),
        pace=pace,
        restless=True,
    )
    return measured.output_tokens_per_s


def study(build_row: Build, rng: random.Random, pace: float) -> list[Row]:
    """A study that has been confirmed by the default plan: trial 1 has steps of this pace, trial 2 the baseline's."""
    plan = plan_repeats(Repeats(), 100, 0.7)
    assert (plan.aa, plan.finalists, plan.rounds) == (1, 2, 3)
    rows = [build_row(0, 8, start(rng), role="baseline")]
    rows += [build_row(100 + n, 8, start(rng), role="sentinel", repeats=0, repeat=n) for n in range(1, plan.aa + 1)]
    rows += [build_row(trial, 8, start(rng, pace if trial == 1 else 1.0)) for trial in (1, 2)]
    ordinal = 200
    for number in range(1, plan.rounds + 1):
        for of in (0, 1, 2):
            value = start(rng, pace if of == 1 else 1.0)
            rows.append(build_row(ordinal, 8, value, role="confirmation", repeats=of, repeat=number))
            ordinal += 1
    return rows


def verdicts(build_row: Build, pace: float, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [confirmations(study(build_row, rng, pace), OBJECTIVE, ())[0].verdict for _ in range(PAIRS)]


def test_equal_settings_are_called_different_in_one_of_twenty_confirmations(build_row: Build) -> None:
    found = verdicts(build_row, 1.0, seed=1)
    assert 0.02 <= 1 - found.count("tie") / PAIRS <= 0.08


def test_a_gap_of_three_percent_is_found_by_nine_of_ten_confirmations(build_row: Build) -> None:
    found = verdicts(build_row, 1 / 1.03, seed=2)
    assert found.count("better") >= 0.9 * PAIRS
    assert "worse" not in found


def confirmed(build_row: Build, rng: random.Random, apart: tuple[float, float], drift: float = 0.0) -> str:
    """The verdict on trial 1, which is no better than the baseline: `apart` are the standard deviations of the
    baseline's starts and of the others', `drift` is what each start of the confirmation is slower by than the one
    before.
    """
    plan = plan_repeats(Repeats(), 100, 0.7)
    rows, launched = [], [Launched(n, "candidate" if n else "baseline", merit=float(n)) for n in range(3)]

    def add(setting: int, role: str, number: int = 0) -> None:
        sd = apart[1] if setting else apart[0]
        value = 1000 * math.exp(rng.gauss(0, sd) - drift * (len(rows) if role == "confirmation" else 0))
        ordinal, again = (setting, None) if role in ("baseline", "candidate") else (100 + len(rows), setting)
        rows.append(build_row(ordinal, 8, value, role=role, repeats=again, repeat=number))

    add(0, "baseline")
    for number in range(plan.aa + len(plan.sentinels)):
        add(0, "sentinel", number + 1)
    for trial in (1, 2):
        add(trial, "candidate")
    # In the very order in which a study makes them.
    while (due := confirmation_due(plan, launched)) is not None:
        add(due.of, due.role, due.number)
        launched.append(Launched(100 + len(launched), due.role, due.of, due.number))
    return next(found.verdict for found in confirmations(rows, OBJECTIVE, ()) if found.trial == 1)


@pytest.mark.parametrize(
    ("apart", "drift"),
    [
        pytest.param((0.005, 0.005), 0.0, id="alike"),
        pytest.param((0.005, 0.015), 0.0, id="the finalist three times as far apart"),
        pytest.param((0.015, 0.005), 0.0, id="the baseline three times as far apart"),
        pytest.param((0.002, 0.002), 0.001, id="a drift of half of that each start"),
        pytest.param((0.002, 0.002), 0.004, id="a drift of twice that each start"),
    ],
)
def test_neither_unequal_spreads_nor_a_drift_make_equal_settings_different(
    build_row: Build, apart: tuple[float, float], drift: float
) -> None:
    rng = random.Random(5)
    found = [confirmed(build_row, rng, apart, drift) for _ in range(400)]
    assert 1 - found.count("tie") / len(found) <= 0.08


def test_equal_settings_are_called_different_in_one_of_twenty_comparisons_of_single_starts(build_row: Build) -> None:
    rng = random.Random(3)
    different = 0
    for _ in range(PAIRS):
        rows = [build_row(0, 8, start(rng), role="baseline")]
        rows += [build_row(10 + n, 8, start(rng), role="sentinel", repeats=0, repeat=n) for n in range(1, 4)]
        [finding] = against_baseline([*rows, build_row(1, 8, start(rng))])
        if finding.kind == "nothing_beats_baseline":
            # The interval of a loss is told the same way.
            different += finding.data["best"][8]["gain_high_percent"] < 0
        else:
            different += finding.kind == "beats_baseline"
    assert 0.02 <= different / PAIRS <= 0.08


@pytest.mark.parametrize("pace", [1.0, 1 / 1.03])
def test_the_profile_moves_starts_by_about_half_a_percent(pace: float) -> None:
    rng = random.Random(4)
    values = [start(rng, pace) for _ in range(50)]
    mean = sum(map(math.log, values)) / 50
    spread = math.sqrt(sum((math.log(v) - mean) ** 2 for v in values) / 49)
    assert 0.003 < spread < 0.006
