"""A trial on its node, from launch to end, without Ray: what is reported for each way that it can go."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import real_sglang

import orchestrator.node
import orchestrator.pulse
from launchers.base import Launcher, LaunchSpec
from launchers.errors import InvalidCombination, ServerCrashed
from launchers.sglang.launcher import SGLangLauncher
from launchers.simulated.launcher import SimulatedLauncher
from orchestrator import config as schema
from orchestrator.analysis.agreement import PROMPTS, judged
from orchestrator.analysis.rows import Row
from orchestrator.benchmark.datasets.files import FilePrompts
from orchestrator.benchmark.datasets.prompts import Prompts
from orchestrator.benchmark.records import LevelRecord, RequestRecord
from orchestrator.board import LevelReport, Stop
from orchestrator.datasets import JSONL, RandomIds
from orchestrator.node import Node, NodeTrial
from orchestrator.offered_load import Load
from orchestrator.plan import Report, Reservation, StudyContext, TrialPlan
from orchestrator.workload import Level, Workload


class Board:
    """The board as a node sees it, in this process."""

    def __init__(self) -> None:
        self.on_disk: list[Load] = []
        self.prompts_given: Prompts | None = None
        self.levels: list[LevelReport] = []
        self.phases: list[str] = []
        self.logs: dict[str, bytes] = {}

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=getattr(self, f"on_{name}"))

    def on_kept(self, ordinal: int) -> list[Load]:
        return self.on_disk

    def on_post(self, ordinal: int, report: LevelReport) -> None:
        self.levels.append(report)

    def on_beat(self, status: Any) -> Stop:
        self.phases.append(status.phase)
        return Stop.NO

    def on_post_log(self, name: str, text: bytes) -> None:
        self.logs[name] = text

    def on_prompts(self) -> Prompts | None:
        return self.prompts_given

    def on_leave(self, node: str) -> None:
        pass


class Refusing(SimulatedLauncher):
    """Knows beforehand that the server would refuse the setting."""

    launches = 0
    findings = ("the rules took topk 2 for right",)

    def preflight(self, spec: LaunchSpec) -> None:
        raise InvalidCombination("topk 2 does not go with this backend", hint="use topk 1")

    def launch(self, *words: Any) -> Any:
        Refusing.launches += 1
        raise AssertionError("it was launched")


Run = Callable[..., tuple[list[Report], Board]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs a whole trial; its reports and what the board has got."""
    here = SimpleNamespace(get_node_id=lambda: "abcdef123456")
    for module in (orchestrator.node, orchestrator.pulse):
        monkeypatch.setattr(module.ray, "get", lambda value: value)
        monkeypatch.setattr(module.ray, "get_runtime_context", lambda: here)
    trials: list[NodeTrial] = []

    def whole(
        ordinal: int = 1,
        flags: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        fault: Mapping[str, Any] | None = None,
        launcher: Callable[[Path], Launcher] = lambda logs: SimulatedLauncher(logs, "tiny", 1000.0),
        model: str = "tiny",
        gpus: int = 1,
        kept: Sequence[int] = (),
        logs: Path | None = None,
        prompts: Prompts | None = None,
    ) -> tuple[list[Report], Board]:
        monkeypatch.setattr(orchestrator.node, "make_launcher", lambda settings, folder, cwd: launcher(folder))
        context = StudyContext(
            study="noded",
            study_id=f"noded-{tmp_path.name}",
            run_id="run-1",
            launcher=schema.SimulatedLauncher(profile="tiny"),
            workload=Workload(
                dataset=RandomIds(input_tokens=16, output_tokens=16, vocab_size=1900),
                concurrency=(1, 4),
                level=Level(
                    requests_per_user=2,
                    min_s=0,
                    max_s=5,
                    half_width=None,
                    warmup_tolerance=None,
                    max_client_lag_ms=10_000,
                ),
                api="native",
            ),
            model=model,
            logs=logs or tmp_path,
            gpus=gpus,
            reservation=Reservation("GPU", 1),
            folder=Path.cwd(),
        )
        variables = dict(env or {}) | ({"SIMULATED_FAULT": json.dumps(fault)} if fault else {})
        board, trial = Board(), NodeTrial.__new__(NodeTrial)
        board.on_disk = list(map(Load, kept))
        board.prompts_given = prompts
        trials.append(trial)
        plan = TrialPlan(ordinal, 1, dict(flags or {}), variables, context.workload.ladder)
        trial.setup({"context": context, "board": board, "plan": plan})
        reports: list[Report] = []
        while not reports or reports[-1].event != "end":
            reports.append(trial.step()["report"])
        return reports, board

    yield whole
    for trial in trials:
        trial.cleanup()


def test_a_trial_tells_what_really_ran(run: Run) -> None:
    asked = {"max-running-requests": 3, "schedule-policy": "lpm"}
    reports, board = run(ordinal=0, flags=asked, env={"NCCL_PROTO": "LL"})
    assert [report.event for report in reports] == ["ready", "level", "level", "end"], reports[-1].outcome
    assert "checking output" in board.phases
    ready, end = reports[0].start, reports[-1].start
    assert ready is not None
    assert end is not None
    assert ready.effective_settings["max-running-requests"] == 3
    assert ready.effective_settings["schedule-policy"] == "lpm"
    assert ready.effective_max_running_requests == 3
    assert ready.server_environment["NCCL_PROTO"] == "LL"
    assert ready.outputs is not None
    assert len(ready.outputs) == len(PROMPTS)
    assert ready.outputs_alone == ready.outputs
    assert end.stop_report is not None
    assert end.stop_report["proven"] is True
    assert end.stop_report["signals"]
    levels = [posted.level for posted in board.levels]
    assert [level.cache_state for level in levels] == ["flushed", "flushed"]
    assert [level.invalid_reason for level in levels] == [None, None]
    for posted in board.levels:
        metrics = posted.level.metrics
        assert metrics.counter_output_tokens == metrics.client_output_tokens
        assert metrics.counter_prompt_tokens == metrics.client_prompt_tokens
        assert metrics.counter_requests == metrics.client_requests
        assert metrics.client_requests
        assert posted.counters is not None
        assert "num_running_reqs" in posted.counters["name"].to_pylist()
    # What the prompts left in the prefix cache is gone when the first level begins.
    assert levels[0].metrics.cached_tokens == 0


def test_the_drivers_prompts_are_sent_and_those_that_came_again_are_counted(run: Run) -> None:
    prompts = FilePrompts(JSONL(path="of the driver", reuse=True), [(f"{n}aaa bbbb cccc", 5) for n in range(7)])
    _, board = run(prompts=prompts)
    for report, requests in zip(board.levels, (1 * 3, 4 * 3), strict=True):
        assert set(report.requests["prompt_tokens"].to_pylist()) == {3}
        assert set(report.requests["output_tokens"].to_pylist()) == {5}
        assert report.level.repeated_prompts == max(0, requests - 7)
        # What comes again is found in the cache, as was asked for.
        assert (report.level.cache_state, report.level.invalid_reason) == ("flushed", None)


def test_a_level_that_finds_its_prompts_in_the_cache_is_warm_though_the_flush_was_confirmed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FilePrompts, "level", lambda self, key: (self.prompt(key, n % 2) for n in itertools.count()))
    words = "aaaa " * 40
    _, board = run(prompts=FilePrompts(JSONL(path="x"), [(f"{n}aaa {words}", 5) for n in range(50)]))
    for report in board.levels:
        assert report.level.cache_state == "warm"
        assert re.search(r"[4-9]\d % of their tokens were found there", report.level.invalid_reason or "")


def test_only_levels_that_are_not_on_disk_are_measured(run: Run) -> None:
    reports, board = run(kept=[1])
    assert [report.event for report in reports] == ["ready", "level", "end"]
    assert [posted.level.load.concurrency for posted in board.levels] == [4]


def test_a_trial_that_lost_only_its_end_needs_no_server(run: Run) -> None:
    reports, board = run(kept=[1, 4])
    [end] = reports
    assert end.outcome is not None
    assert end.outcome.state == "complete"
    assert end.start is not None
    assert end.start.start_id is None
    assert board.levels == []


def test_only_the_baseline_is_asked_twice(run: Run) -> None:
    reports, _ = run(ordinal=1)
    assert reports[0].start is not None
    assert reports[0].start.outputs is not None
    assert reports[0].start.outputs_alone is None


def test_a_node_that_does_not_see_the_study_hands_its_logs_over(run: Run, tmp_path: Path) -> None:
    reports, board = run(logs=tmp_path / "on another machine", fault={"kind": "out_of_memory", "phase": "kv_pool"})
    outcome, start = reports[-1].outcome, reports[-1].start
    assert outcome is not None
    [(name, text)] = board.logs.items()
    assert f"(log: {name})" in (outcome.failure_message or "")
    assert b"memory" in text
    assert start is not None
    assert start.start_id is None


def test_a_node_that_sees_the_study_leaves_its_logs_there(run: Run, tmp_path: Path) -> None:
    _, board = run()
    assert board.logs == {}
    assert len(list(tmp_path.glob("*.log"))) == 1


def test_the_times_that_requests_lost_their_memory_are_kept(run: Run) -> None:
    _, board = run(flags={"max-total-tokens": 96, "schedule-conservativeness": 0.01})
    level = board.levels[-1].level
    assert level.retracted_requests
    assert level.retraction_events
    assert level.retraction_events <= level.retracted_requests


def test_what_preflight_refuses_is_never_launched(run: Run) -> None:
    reports, board = run(launcher=lambda logs: Refusing(logs, "tiny"))
    [end] = reports
    assert end.outcome is not None
    assert (end.outcome.state, end.outcome.failure_kind) == ("failed", "invalid_combination")
    assert "use topk 1" in (end.outcome.failure_message or "")
    assert end.start is not None
    assert end.start.start_id is None
    assert end.start.rule_disagreements == Refusing.findings
    assert Refusing.launches == 0
    assert board.levels == []


def test_a_server_that_dies_of_the_prompts_never_becomes_ready(run: Run) -> None:
    [end], board = run(fault={"kind": "crash", "after_requests": 8})
    assert end.outcome is not None
    assert (end.outcome.state, end.outcome.failure_kind) == ("failed", "cuda_error")
    assert end.start is not None
    assert end.start.start_id is not None
    assert end.start.outputs is None
    assert end.start.stop_report is not None
    assert board.levels == []


def test_a_server_that_breaks_off_its_answers_is_given_time_to_end(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([True] * 6)

    def breaks_off(launcher: SimulatedLauncher, *words: Any, **named: Any) -> Any:
        server = SimulatedLauncher.launch(launcher, *words, **named)
        monkeypatch.setattr(server, "alive", lambda: next(looks, False))
        monkeypatch.setattr(server, "failure", lambda: ServerCrashed("it is gone"))
        server.process.stop(0)
        return server

    [end], _ = run(launcher=lambda logs: type("Dying", (SimulatedLauncher,), {"launch": breaks_off})(logs, "tiny"))
    assert end.outcome is not None
    assert (end.outcome.failure_kind, end.outcome.failure_message) == (ServerCrashed.kind, "it is gone")
    assert next(looks, None) is None


def test_a_death_under_load_keeps_its_class_and_says_where(run: Run) -> None:
    # The prompts, the first level (one user, three requests), and into the second.
    reports, board = run(fault={"kind": "out_of_memory", "phase": "running", "after_requests": len(PROMPTS) + 5})
    assert [report.event for report in reports][-2:] == ["level", "end"]
    outcome = reports[-1].outcome
    assert outcome is not None
    assert (outcome.state, outcome.failure_phase) == ("failed", "benchmark")
    assert outcome.failure_kind in ("out_of_memory", "out_of_kv_cache")
    assert (outcome.failure_message or "").startswith("under 4 users: ")
    assert board.levels[-1].level.comparable is False


def test_a_server_that_hangs_under_load_fails_its_trial_and_is_stopped(run: Run) -> None:
    # It says nothing more in the second level, and SGLang's own watchdog is minutes away.
    reports, board = run(
        fault={"kind": "hang", "phase": "running", "after_requests": len(PROMPTS) + 5},
        launcher=lambda logs: SimulatedLauncher(logs, "tiny", 1000.0, hang_s=3.0),
    )
    assert [report.event for report in reports] == ["ready", "level", "end"]
    outcome, start = reports[-1].outcome, reports[-1].start
    assert outcome is not None
    assert (outcome.state, outcome.failure_kind, outcome.failure_phase) == ("failed", "stalled", "benchmark")
    assert (outcome.failure_message or "").startswith("under 4 users it has answered nothing for ")
    assert [posted.level.load.concurrency for posted in board.levels] == [1]
    assert start is not None
    assert start.stop_report is not None
    assert start.stop_report["proven"] is True


@pytest.mark.parametrize(
    ("kinds", "kind"),
    [((None,) * 4 + ("connect",) * 2, "requests_failed"), (("connect",) * 2, "server_unreachable"), ((), None)],
)
def test_a_level_that_was_given_up_fails_the_trial_of_a_server_that_lives(
    build_row: Callable[..., Row], kinds: Sequence[str | None], kind: str | None
) -> None:
    gave_up = "2 requests in a row failed" if kinds else None
    requests = tuple(RequestRecord(n, 0, False, 0.0, 1.0, error_kind=kind) for n, kind in enumerate(kinds))
    record = LevelRecord(Load(4), requests, None, (0.0, 1.0), True, gave_up)
    # Less than 1 % failed.
    level = dataclasses.replace(
        build_row(1, 4, failed=2 if kinds else 0, total=2000 if kinds else 0).level, gave_up=gave_up
    )
    outcome = Node.__new__(Node).failure(SimpleNamespace(alive=lambda: True), level, record)
    assert (outcome and outcome.failure_kind) == kind
    assert kind is None or (outcome and gave_up and gave_up in (outcome.failure_message or ""))


@pytest.mark.real_sglang
@pytest.mark.timeout(600)
def test_a_real_server_tells_what_it_made_of_a_setting(run: Run) -> None:
    asked = real_sglang.FLAGS | real_sglang.spec_flags(noise=0.1, steps=3, draft_tokens=6)
    reports, board = run(
        ordinal=0,
        flags=asked,
        env=real_sglang.ENV | {"NCCL_PROTO": "LL"},
        launcher=lambda logs: SGLangLauncher(logs, str(real_sglang.PYTHON)),
        model=str(real_sglang.MARKOV),
        gpus=0,
    )
    assert [report.event for report in reports] == ["ready", "level", "level", "end"], reports[-1].outcome
    start = reports[-1].start
    assert start is not None
    # Asked and rewritten, with the server's own word for it.
    assert start.effective_settings["speculative-num-draft-tokens"] == 4
    assert any("speculative_num_draft_tokens is adjusted" in line for line in start.start_changes)
    assert (start.effective_max_running_requests, start.effective_kv_tokens) == (8, 20_000)
    # What we set, and what SGLang sets for itself before it starts its schedulers.
    assert start.server_environment["NCCL_PROTO"] == "LL"
    assert start.server_environment["NCCL_CUMEM_ENABLE"] == "0"
    assert start.server_environment["NCCL_NVLS_ENABLE"] == "0"
    # Greedy answers are the same in a batch of eight and one by one.
    compared = judged(start, start)
    assert compared.output_self_agreement is not None
    assert compared.output_self_agreement > 0.9
    assert compared.output_differs is False
    metrics = [posted.level.metrics for posted in board.levels]
    assert [(m.accept_source, m.accept_partial) for m in metrics] == [("counters", False)] * 2
    assert all(1.5 < (m.accept_length or 0) <= 4 for m in metrics)
    assert start.stop_report is not None
    assert start.stop_report["proven"] is True


def test_a_node_may_open_a_socket_for_each_request_in_flight(run: Run) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    try:
        run(kept=[1, 4])
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(4 + 1024, before[1]), before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
