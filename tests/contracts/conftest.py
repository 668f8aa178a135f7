"""Fixtures of the contract suite: each launcher in turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from launcher_subjects import SIMULATED, SUBJECTS, Subject

from launchers.base import Launcher

PARAMS = [
    pytest.param(subject, id=subject.name, marks=() if subject is SIMULATED else pytest.mark.real_sglang)
    for subject in SUBJECTS
]


@pytest.fixture(params=PARAMS, scope="session")
def subject(request: pytest.FixtureRequest) -> Subject:
    chosen: Subject = request.param
    return chosen


@pytest.fixture
def launcher(subject: Subject, tmp_path: Path) -> Launcher:
    return subject.make(tmp_path / "logs")
