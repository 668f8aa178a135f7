"""Which trials and levels stand on the two fronts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest

from orchestrator.analysis.objectives import parse_constraint, parse_objective
from orchestrator.analysis.rows import Row
from orchestrator.offered_load import Load
from orchestrator.results.fronts import frontier, frontier_table, pareto_front, pareto_table

Build = Callable[..., Row]
BOTH = [
    parse_objective("maximize output_tokens_per_s@128"),
    parse_objective("maximize output_tokens_per_s@1"),
]


def trial(build_row: Build, number: int, at_128: float | None, at_1: float | None, **more: object) -> list[Row]:
    return [build_row(number, 1, at_1, **more), build_row(number, 128, at_128, **more)]


def numbers(rows: list[Row], **more: object) -> list[int]:
    return [point.row.trial.trial for point in pareto_front(rows, BOTH, **more).points]  # type: ignore[arg-type]


def test_the_front_with_ties_duplicates_and_values_that_are_none(build_row: Build) -> None:
    a, b, c, d = (
        trial(build_row, n, gpu, user) for n, gpu, user in [(1, 100, 10), (2, 100, 5), (3, 100, 10), (4, 90, 12)]
    )
    e, f = trial(build_row, 5, 200, math.nan), trial(build_row, 6, math.inf, 11)
    for rows in ([*a, *b, *c, *d, *e, *f], [*f, *e, *d, *c, *b, *a]):
        front = pareto_front(rows, BOTH)
        assert [p.row.trial.trial for p in front.points] == [1, 3, 4]
        assert front.excluded == {
            5: "no valid output_tokens_per_s@1",
            6: "no valid output_tokens_per_s@128",
        }
    assert pareto_front([], BOTH).points == ()


@pytest.mark.parametrize("value", [None, 0.0, -5.0, math.nan, math.inf])
def test_a_value_that_is_none_never_wins_even_when_less_is_better(build_row: Build, value: float | None) -> None:
    less = [parse_objective("minimize output_tokens_per_s@8")]
    front = pareto_front([build_row(1, 8, value), build_row(2, 8, 50.0)], less)
    assert [p.row.trial.trial for p in front.points] == [2]


@pytest.mark.parametrize("state", ["failed", "interrupted", "infeasible"])
def test_only_complete_trials_are_on_the_front(build_row: Build, state: str) -> None:
    assert numbers([*trial(build_row, 1, 900, 90, state=state), *trial(build_row, 2, 100, 10)]) == [2]


def test_a_trial_without_one_of_the_levels_is_left_out(build_row: Build) -> None:
    assert numbers([build_row(1, 1, 900.0), *trial(build_row, 2, 100, 10)]) == [2]


def test_a_level_of_failed_requests_or_on_a_warm_cache_is_left_out(build_row: Build) -> None:
    rows = [
        *trial(build_row, 1, 900, 90, failed=1, total=24),
        *trial(build_row, 2, 900, 90, cache_state="warm"),
    ]
    assert numbers([*rows, *trial(build_row, 3, 100, 10)]) == [3]


def test_constraints_keep_what_does_not_meet_them_off_the_front(build_row: Build) -> None:
    rows = [*trial(build_row, 1, 900, 90, ttft_ms=2001), *trial(build_row, 2, 100, 10, ttft_ms=2000)]
    limit = parse_constraint("ttft_ms.p99@128 <= 4000")
    front = pareto_front(rows, BOTH, [limit])
    assert [p.row.trial.trial for p in front.points] == [2]
    assert front.excluded == {1: "does not meet ttft_ms.p99@128 <= 4000"}
    # Not measured is not met.
    assert numbers(rows, constraints=[parse_constraint("accept_length@1 >= 1")]) == []


def test_simulated_and_measured_trials_never_share_a_front(build_row: Build) -> None:
    rows = [*trial(build_row, 1, 900, 90), *trial(build_row, 2, 100, 10, simulated=False)]
    with pytest.raises(ValueError, match="two studies"):
        pareto_front(rows, BOTH)
    with pytest.raises(ValueError, match="two studies"):
        frontier(rows)


def test_the_front_as_a_table_says_what_each_value_is(build_row: Build) -> None:
    rows = trial(build_row, 7, 900, 90, flags={"max-running-requests": 128})
    [values] = pareto_table(pareto_front(rows, BOTH)).to_pylist()
    assert values["trial"] == 7
    assert values["simulated"] is True
    assert values["objective_names"] == ["output_tokens_per_s@128", "output_tokens_per_s@1"]
    assert values["objective_values"] == [900.0, 90.0]
    assert values["directions"] == ["maximize", "maximize"]
    assert json.loads(values["canonical_flags"]) == {"max-running-requests": 128}
    assert pareto_table(pareto_front([], BOTH)).num_rows == 0


def test_the_frontier_sets_users_against_gpus_over_all_trials_and_levels(build_row: Build) -> None:
    rows = [
        build_row(0, 1, 64.0),
        build_row(0, 128, 2560.0),
        build_row(1, 1, 80.0),
        build_row(1, 128, 1280.0, state="complete"),
        build_row(2, 8, 400.0, state="interrupted"),
        build_row(3, 128, 9999.0, state="failed"),
        build_row(4, None, state="failed"),
        build_row(5, 8, None),
    ]
    points = frontier(reversed(rows))
    assert [(p.row.trial.trial, p.concurrency, p.on_front) for p in points] == [
        (0, 1, False),
        (0, 128, True),
        (1, 1, True),
        (1, 128, False),
        (2, 8, True),
    ]
    assert points[1].tokens_per_s_per_user == 20.0
    assert points[1].tokens_per_s == 2560.0
    assert points[1].tokens_per_s_per_gpu == 320.0
    table = frontier_table(points)
    assert table["on_front"].to_pylist() == [p.on_front for p in points]
    assert table["state"].to_pylist()[-1] == "interrupted"


def test_servers_without_gpus_are_set_against_each_other_by_what_the_whole_server_gives(build_row: Build) -> None:
    rows = [build_row(0, 1, 64.0, gpus=0), build_row(1, 1, 60.0, gpus=0), build_row(1, 4, 200.0, gpus=0)]
    points = frontier(rows)
    assert [(p.row.trial.trial, p.concurrency, p.on_front) for p in points] == [
        (0, 1, True),
        (1, 1, False),
        (1, 4, True),
    ]
    assert points[2].tokens_per_s_per_user == 50.0
    table = frontier_table(points)
    assert table["tokens_per_s"].to_pylist() == [64.0, 60.0, 200.0]
    assert table["tokens_per_s_per_gpu"].null_count == 3


def test_a_server_whose_output_is_not_the_baselines_stands_on_no_front(build_row: Build) -> None:
    rows = [*trial(build_row, 1, 900, 90, differs=True), *trial(build_row, 2, 100, 10)]
    front = pareto_front(rows, BOTH)
    assert [p.row.trial.trial for p in front.points] == [2]
    assert front.excluded == {1: "its output is not the baseline's"}
    assert {p.row.trial.trial for p in frontier(rows)} == {2}


def test_an_open_loop_and_a_repeat_are_no_points_of_the_frontier(build_row: Build) -> None:
    rows = [
        build_row(0, Load(8), 64.0),
        build_row(0, Load(8, repeat=1), 70.0),
        build_row(0, Load(request_rate=2.0), 9.0),
    ]
    assert [(p.concurrency, p.tokens_per_s) for p in frontier(rows)] == [(8, 64.0)]
