"""Which launcher a sweep gets: decided by what is found, said aloud, and never by a guess."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.config import SGLangLauncher, SimulatedLauncher
from orchestrator.resolve import Resolved, resolve
from orchestrator.yaml_source import ConfigError, parse_sweep

HEAD = """\
study: s
model: m
space: {flags: {schedule-policy: {choices: [fcfs, lpm]}}}
score: {metric: output_tokens_per_s, concurrency: 8}
budget: {trials: 24, time: 4h}
"""
BLOCK = "simulated: {launcher: {startup_speedup: 300}, budget: {trials: 16}, workload: {level: {min_s: 1}}}\n"


def resolved(
    body: str,
    kind: str | None = None,
    changes: dict[str, Any] | None = None,
    gpus: int = 0,
    sglang: bool = False,
) -> Resolved:
    written, simulated = parse_sweep(HEAD + body, "f.yaml")
    return resolve(written, simulated, kind, changes or {}, lambda: gpus, lambda python: sglang)


@pytest.mark.parametrize(
    ("gpus", "sglang", "kind", "why"),
    [
        (8, True, "sglang", None),
        (8, False, "simulated", "no sglang found"),
        (0, True, "simulated", "no GPU found"),
        (0, False, "simulated", "no GPU found"),
    ],
)
def test_auto_needs_gpus_and_an_sglang_and_says_what_is_missing(
    gpus: int, sglang: bool, kind: str, why: str | None
) -> None:
    found = resolved("launcher: {kind: auto, python: p}\n", gpus=gpus, sglang=sglang)
    assert found.launcher.kind == kind
    assert found.config.launcher == found.launcher
    assert found.simulated == (kind == "simulated")
    if why is None:
        assert found.notes == ()
        assert found.launcher == SGLangLauncher(python="p")
    else:
        assert found.notes[0].startswith(f"SIMULATED ({why})")
        assert "No GPU is measured" in found.notes[0]


def test_the_interpreter_of_the_file_is_asked_for_its_sglang() -> None:
    asked = []
    written, simulated = parse_sweep(f"{HEAD}launcher: {{kind: auto, python: venv/bin/python}}\n", "f")
    resolve(written, simulated, None, {}, lambda: 1, lambda python: bool(asked.append(python)))
    assert asked == ["venv/bin/python"]


def test_the_command_line_goes_over_the_file() -> None:
    def nobody(*arguments: Any) -> Any:
        raise AssertionError("what is asked for is not looked for")

    written, simulated = parse_sweep(f"{HEAD}launcher: {{kind: sglang, python: p}}\n{BLOCK}", "f")
    found = resolve(written, simulated, "simulated", {}, nobody, nobody)
    assert found.launcher == SimulatedLauncher(profile="tiny", startup_speedup=300)
    assert "asked for" in found.notes[0]
    again = resolve(*parse_sweep(f"{HEAD}launcher: {{kind: simulated}}\n", "f"), "sglang", {}, nobody, nobody)
    assert again.launcher == SGLangLauncher()


def test_the_block_is_merged_in_for_a_simulated_launcher_and_said_key_by_key() -> None:
    found = resolved(f"launcher: {{kind: auto, profile: spec-wins}}\n{BLOCK}")
    assert found.launcher == SimulatedLauncher(profile="spec-wins", startup_speedup=300)
    assert (found.config.budget.trials, found.config.budget.time) == (16, "4h")
    assert (found.config.workload.level.min_s, found.config.workload.level.max_s) == (1, 120)
    assert found.config.simulated == {}
    assert found.written.budget.trials == 24
    for key in ("launcher.startup_speedup = 300", "budget.trials = 16", "workload.level.min_s = 1"):
        assert key in found.notes[1]


def test_the_block_stays_out_of_a_measured_sweep() -> None:
    found = resolved(f"launcher: {{kind: auto}}\n{BLOCK}", gpus=8, sglang=True)
    assert (found.config.budget.trials, found.config.workload.level.min_s) == (24, 5)
    assert found.config.simulated == {}
    assert found.notes == ()


@pytest.mark.parametrize("gpus", [0, 8])
def test_options_go_over_the_file_and_the_block(gpus: int) -> None:
    changes = {"budget": {"trials": 3}}
    found = resolved(f"launcher: {{kind: auto}}\n{BLOCK}", changes=changes, gpus=gpus, sglang=True)
    assert (found.config.budget.trials, found.config.budget.time) == (3, "4h")


def test_an_unknown_profile_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"launcher\.profile: .*'spec-win'.*Did you mean 'spec-wins'"):
        resolved("launcher: {kind: simulated, profile: spec-win}\n")
    with pytest.raises(ConfigError, match=r"launcher\.profile: "):
        resolved(f"launcher: {{kind: auto, profile: {tmp_path}/no.yaml}}\n")
    # A measured sweep has no use for it.
    assert not resolved("launcher: {kind: auto, profile: nonsense}\n", gpus=1, sglang=True).simulated
