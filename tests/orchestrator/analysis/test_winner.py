"""Who wins: nobody that breaks a constraint, the baseline included, or fails or answers otherwise afresh."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.analysis.answer import Answer, answer
from orchestrator.analysis.confirmation import confirmations
from orchestrator.analysis.findings import findings
from orchestrator.analysis.journal import entries
from orchestrator.analysis.objectives import parse_constraint, parse_objective
from orchestrator.analysis.rows import Row, by_trial
from orchestrator.analysis.settings_at import along
from orchestrator.analysis.winner import barred, best_searched, winner
from orchestrator.offered_load import Load

Build = Callable[..., Row]
SCORE = parse_objective("output_tokens_per_s@8")
#: The p99 of a built row is twice its mean.
LIMITS = [parse_constraint("ttft_ms.p99@8 <= 150")]
LADDER = (Load(4), Load(8))


def afresh(build: Build, starts: dict[int, tuple[float, float]], rounds: int = 3) -> list[Row]:
    """Rounds of the baseline and finalists, each with its rate and its time to the first token."""
    rows = []
    for number in range(1, rounds + 1):
        for of, (rate, ttft_ms) in starts.items():
            value = rate + 0.1 * number - 0.05 * of * (number % 2)
            rows.append(
                build(20 + len(rows), 8, value, role="confirmation", repeats=of, repeat=number, ttft_ms=ttft_ms)
            )
    return rows


def searched(build: Build, *settings: tuple[float, float]) -> list[Row]:
    """The baseline, its A/A start, and candidates, each with its rate and its time to the first token."""
    rows = [
        build(n, 8, rate, role="candidate" if n else "baseline", ttft_ms=ms) for n, (rate, ms) in enumerate(settings)
    ]
    rate, ms = settings[0]
    return [*rows, build(15, 8, rate + 0.5, role="sentinel", repeats=0, repeat=1, ttft_ms=ms)]


def told(rows: list[Row]) -> Answer:
    return answer(rows, SCORE, LIMITS, LADDER, findings(rows, SCORE, LIMITS))


def replaced(rows: list[Row], at: int, new: Row) -> list[Row]:
    """The confirmation's start of trial 1 in a round, otherwise than it was."""
    [old] = [row for row in rows if row.trial.repeats == 1 and row.trial.repeat == at]
    return [dataclasses.replace(new, trial=old.trial) if row is old else row for row in rows]


def test_a_baseline_that_breaks_a_constraint_goes_after_a_finalist_that_keeps_it(build_row: Build) -> None:
    rows = searched(build_row, (200, 500), (150, 50), (140, 50))
    assert winner(by_trial(rows), SCORE, LIMITS) == 1
    rows += afresh(build_row, {0: (200, 500), 1: (150, 50), 2: (140, 50)})
    assert winner(by_trial(rows), SCORE, LIMITS) == 1
    # Without the constraint the same rows are a loss.
    assert winner(by_trial(rows), SCORE, ()) == 0
    found = told(rows)
    assert (found.verdict, found.best) == ("confirmed", 1)
    assert found.headline.endswith("confirmed to keep the constraints")
    breaks = "breaks ttft_ms.p99@8 <= 150 (1,000, 850 beyond)"
    assert f"The baseline cannot win: it {breaks}." in found.sentences[1]
    assert next(f.text for f in findings(rows, SCORE, LIMITS)).startswith(f"The baseline {breaks}")
    lines = {line.trial: line for line in entries(rows, SCORE, LIMITS)}
    assert lines[0].finding.startswith(breaks)
    assert "confirmed to keep the constraints, which the baseline does not" in lines[1].finding


def test_a_baseline_that_breaks_a_constraint_does_not_win_where_nothing_was_confirmed(build_row: Build) -> None:
    rows = searched(build_row, (200, 500), (150, 50))
    found = told(rows)
    assert (found.verdict, found.best) == ("unconfirmed", 1)
    assert "The baseline cannot win" in found.sentences[1]
    # And where nobody keeps it nobody wins.
    found = told(searched(build_row, (200, 500), (150, 80)))
    assert (found.verdict, found.best) == ("nothing", None)
    assert "the baseline: it breaks ttft_ms.p99@8 <= 150 (1,000, 850 beyond)" in found.sentences[0]
    assert "trial 1: it breaks ttft_ms.p99@8 <= 150 (160, 10 beyond)" in found.sentences[0]


def test_a_baseline_is_judged_by_the_mean_of_all_its_starts(build_row: Build) -> None:
    rows = [build_row(0, 8, 200.0, role="baseline", ttft_ms=76), build_row(1, 8, 150.0, ttft_ms=50)]
    assert winner(by_trial(rows), SCORE, LIMITS) == 1
    rows.append(build_row(2, 8, 200.0, role="sentinel", repeats=0, repeat=1, ttft_ms=70))
    assert winner(by_trial(rows), SCORE, LIMITS) == 0


def test_a_finalist_that_breaks_a_constraint_when_it_is_started_afresh_is_refuted(build_row: Build) -> None:
    rows = searched(build_row, (200, 50), (250, 70)) + afresh(build_row, {0: (200, 50), 1: (250, 400)})
    assert winner(by_trial(rows), SCORE, LIMITS) == 0
    found = told(rows)
    assert (found.verdict, found.headline) == ("baseline", "Nothing beats the baseline at C=8")
    assert "Trial 1 is refuted: started afresh it breaks ttft_ms.p99@8 <= 150 (800, 650 beyond)." in found.sentences[0]
    assert not [f for f in findings(rows, SCORE, LIMITS) if f.kind == "beats_baseline"]


@pytest.mark.parametrize("bad", [1, 2])
@pytest.mark.parametrize(
    ("new", "why"),
    [
        ({"differs": True}, "its output was not the baseline's when started afresh"),
        ({"state": "failed", "failure_kind": "crashed", "concurrency": None}, "it failed when started afresh"),
        ({"state": "infeasible", "failure_kind": "out_of_memory", "concurrency": None}, "out of memory"),
        ({"state": "failed", "failure_kind": "requests_failed"}, "requests failed"),
    ],
)
def test_one_fresh_start_that_fails_or_answers_otherwise_refutes(
    build_row: Build, bad: int, new: dict[str, Any], why: str
) -> None:
    rows = searched(build_row, (200, 50), (250, 50), (210, 50)) + afresh(build_row, {0: (200, 50), 1: (250, 50)})
    assert winner(by_trial(rows), SCORE, LIMITS) == 1
    rows = replaced(rows, bad, build_row(1, **new))
    assert best_searched(by_trial(rows), SCORE, LIMITS) == 2
    # Trial 2 was not started afresh: it is the search's best now, and unconfirmed.
    found = told(rows)
    assert (found.verdict, found.best) == ("unconfirmed", 2)
    assert "Trial 1 is refuted: " in found.sentences[1]
    assert why in found.sentences[1]
    [line] = [line for line in entries(rows, SCORE, LIMITS) if line.trial == 1]
    assert (line.state, line.reason) == ("infeasible", "refuted")


@pytest.mark.parametrize("kind", ["node_lost", "interrupted", "gpu_busy", "port_conflict"])
def test_a_failure_that_is_not_the_finalists_own_takes_its_round_alone(build_row: Build, kind: str) -> None:
    rows = searched(build_row, (200, 50), (250, 50)) + afresh(build_row, {0: (200, 50), 1: (250, 50)})
    rows = replaced(rows, 2, build_row(1, None, state="failed", failure_kind=kind))
    [found] = confirmations(rows, SCORE, LIMITS)
    assert (found.rounds, found.verdict) == (2, "better")


def test_a_level_that_the_client_bound_takes_its_round_alone(build_row: Build) -> None:
    rows = searched(build_row, (200, 50), (250, 50)) + afresh(build_row, {0: (200, 50), 1: (250, 50)})
    slow = build_row(1, 8, 250.0)
    assert slow.level is not None
    rows = replaced(rows, 2, dataclasses.replace(slow, level=dataclasses.replace(slow.level, client_limited="CPU")))
    assert [c.rounds for c in confirmations(rows, SCORE, LIMITS)] == [2]


def test_one_whole_round_confirms_nothing(build_row: Build) -> None:
    rows = searched(build_row, (200, 50), (250, 50)) + afresh(build_row, {0: (200, 50), 1: (250, 50)}, rounds=1)
    assert confirmations(rows, SCORE, LIMITS) == []
    assert (told(rows).verdict, told(rows).best) == ("unconfirmed", 1)


def lucky(build: Build) -> list[Row]:
    """Three candidates look 3 % better once at C=8; started afresh the first two are not. At C=4 all are equal."""
    rows = [build(n, 4, 100.0 + 0.1 * n, role="candidate" if n else "baseline") for n in range(4)]
    rows += searched(build, (200, 50), (206, 50), (205.9, 50), (205.8, 50))
    rows.append(build(16, 8, 199.8, role="sentinel", repeats=0, repeat=2))
    return rows + afresh(build, {0: (200, 50), 1: (200.2, 50), 2: (200.3, 50)})


def test_at_the_confirmed_load_nobody_leads_that_was_not_confirmed(build_row: Build) -> None:
    found = told(lucky(build_row))
    assert found.headline == "No gain can be told at C=8"
    assert "leads at C=8" not in " ".join(found.sentences)
    assert "no gain over the baseline can be told at" in found.sentences[-1]


def test_a_leader_at_another_load_is_unconfirmed_and_doubted_as_the_best_of_many(build_row: Build) -> None:
    ladder = [Load(8)]
    base = [
        build_row(n, 8, 100 + d, role=r, repeats=o) for n, d, r, o in ((0, 0, "baseline", None), (30, 1, "sentinel", 0))
    ]
    base += [build_row(31 + n, 8, 100 + d, role="sentinel", repeats=0) for n, d in enumerate((-1, 0.5, -0.5))]
    few = along([*base, build_row(1, 8, 103.0)], SCORE, ladder)
    assert few.leader(Load(8)) == 1
    many = along([*base, build_row(1, 8, 103.0), *(build_row(n, 8, 100.0) for n in range(2, 22))], SCORE, ladder)
    assert many.leader(Load(8)) is None
    text = told(
        [*base, *(build_row(n, 4, 50.0, role="candidate" if n else "baseline") for n in (0, 1)), build_row(1, 8, 120.0)]
    )
    assert "trial 1 leads at C=8 (+20.0 %, unconfirmed)" in text.sentences[-1]


def test_who_breaks_a_constraint_leads_nowhere(build_row: Build) -> None:
    rows = searched(build_row, (200, 50), (300, 90), (250, 50))
    rows += [build_row(n, 4, rate, role="candidate" if n else "baseline") for n, rate in ((0, 100), (1, 200), (2, 150))]
    found = told(rows)
    assert found.best == 2
    assert "trial 1" not in found.sentences[-1]
    assert list(barred(by_trial(rows), LIMITS)) == [1]
