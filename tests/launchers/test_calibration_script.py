"""The calibration script still measures; what it measures is for whoever runs it."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from launchers.simulated.launcher import SimulatedLauncher
from launchers.simulated.profile import load_profile


def test_a_target_is_measured_over_http(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    calibration = importlib.import_module("calibration")
    profile = load_profile("kimi-k2.5-8x-rtx-pro-6000")
    short = {"prompt_tokens": 16, "output_tokens": 8, "requests_per_user": 2, "warmup_requests_per_user": 0}
    target = profile.targets[0].model_copy(update=short)
    outcome = calibration.measure(target, profile, SimulatedLauncher(tmp_path, profile.name, 1000.0))
    assert (outcome.metrics.requests_total, outcome.metrics.requests_failed) == (2, 0)
    assert outcome.metrics.output_tokens == 16
