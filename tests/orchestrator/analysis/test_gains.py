"""One figure for the baseline and one for a trial's gain on it, whoever tells it; the confirmation's is the other."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.analysis.baseline import baseline_of
from orchestrator.analysis.causes.evidence import Evidence
from orchestrator.analysis.comparisons import against_baseline
from orchestrator.analysis.explain import explain
from orchestrator.analysis.gains import Gains
from orchestrator.analysis.objectives import parse_objective
from orchestrator.analysis.rows import Row, by_trial
from orchestrator.analysis.settings_at import along
from orchestrator.analysis.winner import winner
from orchestrator.attributes import trial_attributes
from orchestrator.kept_study import KeptStudy, open_study
from orchestrator.offered_load import Load
from orchestrator.report.snapshot import results_view

Build = Callable[..., Row]
STUDIES = Path(__file__).parents[2] / "data" / "studies"
SCORE = parse_objective("output_tokens_per_s@8")


@pytest.fixture(params=["nccl", "cpu"])
def study(request: pytest.FixtureRequest, tmp_path: Path) -> KeptStudy:
    """A study as a sweep left it."""
    return open_study(Path(shutil.copytree(STUDIES / request.param, tmp_path / "study")))


def starts(build_row: Build) -> list[Row]:
    """The baseline at 100 and 121, a candidate, and a round of the confirmation an hour of a slower machine later."""
    return [
        build_row(0, 8, 100.0, role="baseline"),
        build_row(1, 8, 121.0, role="sentinel", repeats=0),
        build_row(2, 8, 143.0),
        build_row(3, 8, 50.0, role="confirmation", repeats=0, repeat=1),
        build_row(4, 8, 55.0, role="confirmation", repeats=2, repeat=1),
        build_row(5, 8, 50.0, role="confirmation", repeats=0, repeat=2),
        build_row(6, 8, 56.0, role="confirmation", repeats=2, repeat=2),
    ]


def test_the_baseline_is_the_geometric_mean_of_its_starts_in_the_search(build_row: Build) -> None:
    base = baseline_of(starts(build_row), SCORE.metric)
    assert base is not None
    assert (base.value, base.starts) == (pytest.approx(110.0), 2)


def test_a_start_that_may_not_be_compared_is_none_of_the_baselines(build_row: Build) -> None:
    first, again = build_row(0, 8, 100.0, role="baseline"), {"role": "sentinel", "repeats": 0}
    for spoilt in ({"cache_state": "warm"}, {"state": "failed"}, {"differs": True}, {"concurrency": 16}):
        base = baseline_of([first, build_row(1, **{"concurrency": 8, "rate": 400.0, **again, **spoilt})], SCORE.metric)
        assert base is not None
        assert (base.value, base.starts) == (100.0, 1)
    assert baseline_of([build_row(1, 8, 400.0, **again)], SCORE.metric) is None


def test_a_finalist_has_its_gain_in_the_search_and_is_judged_by_its_fresh_starts(build_row: Build) -> None:
    rows = starts(build_row)
    gain = Gains(rows, SCORE).of(rows[2])
    assert gain is not None
    assert gain.fresh is not None
    assert gain.ratio.mean == pytest.approx(1.3)
    assert gain.judged.mean == pytest.approx((1.1 * 1.12) ** 0.5)
    searched = Gains(rows[:3], SCORE).of(rows[2])
    assert searched is not None
    assert searched.ratio == searched.judged


@pytest.mark.parametrize(("of", "verdict"), [(0.5, "better"), (1.0, "tie"), (2.0, "worse")])
def test_less_is_better_for_a_latency(build_row: Build, of: float, verdict: str) -> None:
    first = build_row(0, 8, ttft_ms=50.0, role="baseline")
    base = [first, build_row(1, 8, ttft_ms=50.5, role="sentinel", repeats=0)]
    row = build_row(2, 8, ttft_ms=50.25 * of)
    gain = Gains([*base, row], parse_objective("minimize ttft_ms.mean@8")).of(row)
    assert gain is not None
    assert gain.verdict == verdict


def test_every_command_gives_the_baseline_the_same_figure(study: KeptStudy) -> None:
    rows, objective = study.results.rows, study.config.score.objective
    base = baseline_of(rows, objective.metric)
    assert base is not None
    assert base.starts == {"nccl": 2, "cpu": 3}[study.config.study]
    load = objective.metric.load
    told = {
        "the charts": along(rows, objective, [load]).value(0, load),
        "the causes": Evidence(rows).gains(load.concurrency or 0).base,
    }
    assert told == dict.fromkeys(told, base)
    score = results_view(study.config, rows).score
    assert (score.baseline, score.baseline_starts) == (base.value, base.starts)
    [line] = [entry for entry in study.journal() if entry.trial == 0]
    assert f"{base.value:,.{0 if base.value >= 1000 else 1}f}" in line.finding.split(" over its ")[0]
    assert f"over its {base.starts} starts in the search" in line.finding
    on_front = [point for point in study.results.frontier if point.row.trial.trial == 0]
    assert base.value in [point.tokens_per_s for point in on_front]
    for point in study.results.pareto.points:
        if point.row.trial.trial == 0:
            assert point.values[0] == base.value


def test_every_command_gives_a_trial_the_same_gain_and_verdict(study: KeptStudy) -> None:
    rows, objective = study.results.rows, study.config.score.objective
    load, gains, evidence = objective.metric.load, Gains(rows, objective), Evidence(rows)
    charts, trials = along(rows, objective, [load]), by_trial(rows)
    judged = 0
    for entry in study.journal():
        group = trials.get(entry.trial if entry.trial is not None else -1, [])
        gain = gains.trial_gain(group) if entry.role == "candidate" else None
        if gain is None or entry.trial is None:
            assert entry.gain_percent is None
            continue
        judged += 1
        percents = [100 * (end - 1) for end in (gain.ratio.mean, gain.ratio.low, gain.ratio.high)]
        assert [entry.gain_percent, entry.gain_low_percent, entry.gain_high_percent] == percents
        assert charts.ratio(entry.trial, 0, load) == gain.ratio
        assert charts.judged(entry.trial, load) == gain.judged
        [row] = [row for row in group if row.level and row.level.load == load]
        assert evidence.against_baseline(row) == gain.judged
        assert (gain.verdict == "tie") == ("tie" in entry.finding or "no difference" in entry.finding)
        assert trial_attributes(study.config, group, by_trial(rows))["finding"] == entry.finding
    assert judged > 5


def test_findings_and_status_tell_the_gain_of_the_journal(study: KeptStudy) -> None:
    rows, objective = study.results.rows, study.config.score.objective
    lines = {entry.trial: entry for entry in study.journal()}
    at = [f for f in against_baseline(rows) if f.data.get("concurrency") == objective.metric.load.concurrency]
    for found in at:
        line = lines[found.data["trial"]]
        assert found.data["gain_percent"] == line.gain_percent
        # The best of many is in more doubt than one of them.
        assert found.data["gain_low_percent"] < line.gain_low_percent
    score = results_view(study.config, rows).score
    if score.best_trial:
        assert score.gain is not None
        assert 100 * score.gain == pytest.approx(lines[score.best_trial].gain_percent)
        assert score.verdict == "tie"


def test_a_setting_is_held_against_all_starts_of_the_baseline(build_row: Build) -> None:
    rows = [
        build_row(0, 8, 100.0, role="baseline", half_width=0.5),
        build_row(1, 8, 121.0, role="sentinel", repeats=0, half_width=0.5),
        build_row(2, 8, 143.0, flags={"schedule-policy": "lpm"}, half_width=0.5),
    ]
    [effect] = [f for f in explain(rows) if f.kind in ("setting_effect", "no_effect")]
    assert effect.data["percent"] == {8: pytest.approx(30.0)}
    assert effect.rows == ((0, "C=8"), (1, "C=8"), (2, "C=8"))


def test_the_search_s_best_is_better_than_the_baseline_s_mean_and_not_than_its_luckiest_start(
    build_row: Build,
) -> None:
    rows = [
        build_row(0, 8, 130.0, role="baseline"),
        build_row(1, 8, 100.0, role="sentinel", repeats=0),
        build_row(2, 8, 120.0),
    ]
    assert Gains(rows, SCORE).base is not None
    assert along(rows, SCORE, [Load(8)]).best_candidate(Load(8)) == 2
    assert winner(by_trial(rows), SCORE, ()) == 2
