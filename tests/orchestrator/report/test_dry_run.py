"""What a sweep would do is told without starting anything, knobs that cannot act included."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import optuna
import pytest
from rich.console import Console

from launchers.simulated.launcher import SimulatedLauncher
from orchestrator.config import SweepConfig
from orchestrator.report.dry_run import print_dry_run
from orchestrator.search.study import Study


def printed(
    folder: Path,
    ranks: int,
    env: dict[str, Any],
    nvlink: bool | None = None,
    flags: dict[str, Any] | None = None,
    dataset: dict[str, Any] | None = None,
    warnings: list[str] | None = None,
    constraints: list[str] | None = None,
) -> str:
    config = SweepConfig.model_validate(
        {
            "study": "s",
            "model": "m",
            "server": {"flags": {"tp-size": ranks}},
            "space": {"flags": {"max-running-requests": {"choices": [4, 8]}, **(flags or {})}, "env": env},
            "workload": {"dataset": dataset or {}},
            "constraints": constraints or [],
            "score": {"metric": "output_tokens_per_s", "concurrency": 8},
            "sampler": {"kind": "random", "seed": 0},
        }
    )
    launcher = SimulatedLauncher(folder, "tiny")
    study = Study(optuna.storages.InMemoryStorage(), "s", config, nvlink=bool(nvlink))
    console = Console(file=io.StringIO(), width=200)
    print_dry_run(console, config, config, launcher, study, nvlink, warnings or [])
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_variable_of_nccl_on_one_rank_is_said_to_do_nothing(tmp_path: Path) -> None:
    knob = {"NCCL_PROTO": {"choices": [None, "LL"]}}
    assert "NCCL_PROTO does nothing here: the server has one rank" in printed(tmp_path, 1, knob)
    assert "cannot act" not in printed(tmp_path, 8, knob)


def test_what_speculation_makes_of_random_ids_is_warned_about(tmp_path: Path) -> None:
    flags = {"speculative-algorithm": {"choices": [None, "NGRAM"]}}
    ids = {"kind": "random_ids"}
    assert "what a drafter accepts of it means nothing" in printed(tmp_path, 1, {}, flags=flags, dataset=ids)
    assert "Warnings" not in printed(tmp_path, 1, {}, flags=flags, dataset=ids | {"natural": True})
    assert "Warnings" not in printed(tmp_path, 1, {}, dataset=ids)
    assert "\n  the file is old\n" in printed(tmp_path, 1, {}, warnings=["the file is old"])


@pytest.mark.parametrize("nvlink", [True, False])
def test_how_the_gpus_are_joined_decides_what_is_said_and_counted(tmp_path: Path, nvlink: bool) -> None:
    text = printed(tmp_path, 8, {"NCCL_PROTO": {"choices": [None, "LL128"]}}, nvlink)
    assert ("custom all-reduce" in text) is nvlink
    assert ("is refused and never started" in text) is not nvlink
    assert f"holds {4 if nvlink else 2} distinct configurations" in text


def test_a_confirmation_is_priced_with_the_loads_of_the_constraints(tmp_path: Path) -> None:
    alone = printed(tmp_path, 1, {})
    assert "started afresh and measured at 8 " in f"{alone} ".replace(".", " ")
    both = printed(tmp_path, 1, {}, constraints=["ttft_ms.p99@1 <= 150"])
    assert "measured at 1, 8, those of the score and the constraints" in both

    def each(text: str) -> float:
        """What a start of the confirmation costs, in trials."""
        [cost] = re.findall(r"([0-9.]+) trials' worth", text)
        [(aa, rounds)] = re.findall(r"([0-9]) A/A start.* of ([0-9]) rounds, the baseline and finalist", text)
        return (float(cost) - int(aa)) / (2 * int(rounds))

    assert each(both) > each(alone)
