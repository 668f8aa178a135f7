"""The settings that a person is told of a trial."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from orchestrator.analysis.finding import settings_text
from orchestrator.analysis.rows import Row
from orchestrator.report.summary import fixed_settings
from orchestrator.yaml_source import parse_sweep

SPACE = """
study: told
model: tiny
launcher: {kind: simulated, profile: tiny}
server: {flags: {tp-size: 8}, env: {NCCL_BUFFSIZE: 1048576}}
space: {flags: {max-running-requests: {choices: [2, 4]}}}
workload: {concurrency: [1]}
score: {metric: output_tokens_per_s, concurrency: 1}
budget: {trials: 1}
"""


def test_what_every_server_has_is_left_out(build_row: Callable[..., Row]) -> None:
    config, _ = parse_sweep(SPACE, "told.yaml")
    row = build_row(1, 1, flags={"tp-size": 8, "max-running-requests": 4})
    env = {"NCCL_BUFFSIZE": "1048576"}
    row = dataclasses.replace(row, trial=dataclasses.replace(row.trial, requested_env=env))
    assert settings_text(row, fixed_settings(config)) == "max-running-requests=4"
    other = dataclasses.replace(row, trial=dataclasses.replace(row.trial, requested_env={"NCCL_BUFFSIZE": "4"}))
    assert settings_text(other, fixed_settings(config)) == "max-running-requests=4 NCCL_BUFFSIZE=4"
    assert settings_text(row, fixed_settings(config) | {"max-running-requests": 4}) == "the server's defaults"
