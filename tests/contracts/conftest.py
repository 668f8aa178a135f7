"""Fixtures of the contract suite: each launcher in turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from launcher_subjects import SUBJECTS, Subject

from launchers.base import Launcher


@pytest.fixture(params=SUBJECTS, ids=lambda subject: subject.name, scope="session")
def subject(request: pytest.FixtureRequest) -> Subject:
    chosen: Subject = request.param
    return chosen


@pytest.fixture
def launcher(subject: Subject, tmp_path: Path) -> Launcher:
    return subject.make(tmp_path / "logs")
