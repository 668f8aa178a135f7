"""Fixtures of the search tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from study_bench import Bench

_MEMORY = Path("/dev/shm")


@pytest.fixture
def bench() -> Iterator[Bench]:
    """An empty database: a file, in memory where the system has a place for it, since each write waits for the disk."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        yield Bench(Path(folder))
