"""What repeated starts tell: confirmations, the noise floor, unsteady levels, drift."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.analysis.confirmation import confirmations
from orchestrator.analysis.finding import Finding
from orchestrator.analysis.findings import findings
from orchestrator.analysis.objectives import parse_objective
from orchestrator.analysis.rows import Row
from orchestrator.analysis.winner import winner
from orchestrator.offered_load import Load

Build = Callable[..., Row]
MOMENT = datetime(2026, 3, 1, tzinfo=UTC)
SCORE = parse_objective("output_tokens_per_s@8")


def study(build_row: Build, confirmed: list[tuple[float, float, float]]) -> list[Row]:
    """Trials 1 and 2 were searched at 110 and 108; each round measures the baseline and the two afresh."""
    rows = [build_row(0, 8, 100.0, role="baseline", flags={"tp-size": 8})]
    rows += [
        build_row(n, 8, rate, flags={"tp-size": 8, "max-running-requests": n}) for n, rate in ((1, 110.0), (2, 108.0))
    ]
    ordinal = 10
    for number, values in enumerate(confirmed, start=1):
        for of, value in enumerate(values):
            rows.append(build_row(ordinal, 8, value, role="confirmation", repeats=of, repeat=number))
            ordinal += 1
    return rows


def found_of(rows: list[Row], kind: str) -> Finding:
    [found] = [f for f in findings(rows, SCORE) if f.kind == kind]
    return found


STEADY = [(100.0, 104.0, 106.0), (100.2, 104.1, 106.2), (99.9, 103.8, 105.9)]


def test_the_confirmed_winner_is_the_best_of_the_fresh_starts(build_row: Build) -> None:
    rows = study(build_row, STEADY)
    first, second = confirmations(rows, SCORE, ())
    assert (first.verdict, second.verdict) == ("better", "better")
    # Trial 1 led the search, trial 2 leads when both are started afresh.
    trials = {r.trial.trial: [r] for r in rows}
    assert winner(trials, SCORE, ()) == 2
    assert second.ratio.mean == pytest.approx(1.06, abs=2e-3)
    assert first.flattery == pytest.approx(110 / 104 - 1, abs=2e-3)
    told = [f for f in findings(rows, SCORE) if f.kind == "confirmed_better"]
    assert [f.data["trial"] for f in told] == [2, 1]
    assert told[0].text.startswith("Confirmed in 3 rounds of fresh starts: trial 2 gives +6.0 % (+5.")
    assert (
        "106.0 against the baseline's 100.0: max-running-requests=2. The search had told 108.0, +8.0 % on "
        "the baseline's 100.0 there." in told[0].text
    )


def test_what_the_fresh_starts_do_not_bear_out_is_not_crowned(build_row: Build) -> None:
    rows = study(build_row, [(100.0, 101.0, 92.0), (101.0, 99.9, 90.0), (99.0, 100.4, 91.0)])
    tie, refuted = found_of(rows, "confirmed_tie"), found_of(rows, "confirmed_worse")
    assert tie.data["trial"] == 1
    assert "would have been found nine times in ten" in tie.text
    assert refuted.text.startswith("Refuted in 3 rounds")
    assert winner({r.trial.trial: [r] for r in rows}, SCORE, ()) == 0
    # At the score's load nothing else is said of the same trials.
    assert not [f for f in findings(rows, SCORE) if f.kind in ("beats_baseline", "tie")]


def test_less_is_better_for_a_latency(build_row: Build) -> None:
    score = parse_objective("minimize ttft_ms.mean@8")
    rows = [build_row(0, 8, role="baseline", ttft_ms=50.0), build_row(1, 8, ttft_ms=40.0)]
    for number in (1, 2, 3):
        for of, ms in ((0, 50.0 + 0.1 * number), (1, 45.0 - 0.1 * number)):
            rows.append(build_row(10 * number + of, 8, role="confirmation", repeats=of, repeat=number, ttft_ms=ms))
    [one] = confirmations(rows, score, ())
    assert (one.verdict, one.ratio.mean < 1, one.flattery > 0) == ("better", True, True)
    assert winner({r.trial.trial: [r] for r in rows}, score, ()) == 1


def test_confirmations_of_an_earlier_search_do_not_count(build_row: Build) -> None:
    rows = study(build_row, STEADY)
    assert confirmations([*rows, build_row(30, 8, 120.0)], SCORE, ()) == []


def test_a_round_that_is_not_whole_does_not_count(build_row: Build) -> None:
    rows = study(build_row, STEADY)
    rows = [r for r in rows if not (r.trial.repeat == 2 and r.trial.repeats == 1)]
    assert [c.rounds for c in confirmations(rows, SCORE, ())] == [2, 3]


def test_the_noise_floor_is_told_with_what_it_leaves_to_be_told(build_row: Build) -> None:
    rows = [build_row(0, 8, 100.0, role="baseline"), build_row(1, 8, 102.0, role="sentinel", repeats=0)]
    found = found_of(rows, "noise_floor")
    assert found.data["freedom"] == 1
    assert found.data["sd"] == pytest.approx(0.014, abs=1e-4)
    assert "1 degree of freedom" in found.text


def test_two_levels_of_one_start_that_disagree_are_told(build_row: Build) -> None:
    first = build_row(0, 8, 100.0, role="baseline", half_width=1.0)

    def again(rate: float) -> list[str]:
        row = build_row(0, 8, rate, role="baseline", half_width=1.0)
        assert row.level is not None
        metrics = dataclasses.replace(row.level.metrics, load=Load(8, repeat=1))
        second = dataclasses.replace(row, level=dataclasses.replace(row.level, metrics=metrics))
        return [f.kind for f in findings([first, second], SCORE)]

    assert "unsteady_within_start" in again(105.0)
    assert "unsteady_within_start" not in again(101.0)


def test_a_machine_that_drifts_is_told(build_row: Build) -> None:
    def rows(rates: list[float]) -> list[Row]:
        made = []
        for n, rate in enumerate(rates):
            row = build_row(n, 8, rate, role="sentinel" if n else "baseline", repeats=0 if n else None)
            at = row.start.started_at
            assert at is not None
            made.append(
                dataclasses.replace(row, start=dataclasses.replace(row.start, started_at=at + timedelta(hours=n)))
            )
        return made

    drift = found_of(rows([100.0, 98.1, 95.9, 94.0, 92.1]), "drift")
    assert "over 5 starts of the baseline output_tokens_per_s@8 moved by -8.0 % in 240 min" in drift.text
    assert not [f for f in findings(rows([100.0, 98.0, 101.0, 99.0, 100.5]), SCORE) if f.kind == "drift"]


QUEUE = parse_objective("queue_time_ms@8")


def queued(row: Row, ms: float, minute: int) -> Row:
    assert row.level is not None
    metrics = dataclasses.replace(row.level.metrics, queue_time_ms=ms)
    started_at = (row.start.started_at or MOMENT) + timedelta(minutes=minute)
    start = dataclasses.replace(row.start, started_at=started_at)
    return dataclasses.replace(row, start=start, level=dataclasses.replace(row.level, metrics=metrics))


@pytest.mark.parametrize("zeros", [{0}, {1}, {4}, set(range(5))])
def test_a_queue_of_0_is_a_score_without_a_drift(build_row: Build, zeros: set[int]) -> None:
    def starts(zeros: set[int]) -> list[Row]:
        rows = [build_row(0, 8, role="baseline"), *(build_row(n, 8, role="sentinel", repeats=0) for n in range(1, 5))]
        return [queued(row, 0.0 if n in zeros else 2.0 + n, 60 * n) for n, row in enumerate(rows)]

    assert [f.kind for f in findings(starts(set()), QUEUE) if f.kind == "drift"] == ["drift"]
    # Four are left of five, and tell another story.
    assert [f.kind for f in findings(starts(zeros), QUEUE) if f.kind == "drift"] == []


def test_a_search_whose_baseline_had_no_queue_tells_no_percent_of_it(build_row: Build) -> None:
    rows = [
        dataclasses.replace(r, level=queued(r, r.output_tokens_per_s or 0.0, 0).level) for r in study(build_row, STEADY)
    ]
    [first, *_] = [f for f in findings(rows, QUEUE) if f.kind.startswith("confirmed")]
    assert "The search had told 110.0, +10.0 % on the baseline's 100.0 there." in first.text
    rows[0] = queued(rows[0], 0.0, 0)
    [first, *_] = [f for f in findings(rows, QUEUE) if f.kind.startswith("confirmed")]
    assert first.text.endswith("The search had told 110.0.")
