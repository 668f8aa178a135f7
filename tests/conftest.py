"""What holds for every test: the marker `real_sglang`, and what becomes of such a test without a real SGLang."""

from __future__ import annotations

import pytest
import real_sglang


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real_sglang: starts a real SGLang on the CPU; skipped where there is none")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The kills take longest by far: two workers that meet them last would wait for each other.
    items.sort(key=lambda item: "resume" not in item.path.parts)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("real_sglang") is None or real_sglang.available():
        return
    if real_sglang.required():
        pytest.fail(real_sglang.WHY_ABSENT, pytrace=False)
    pytest.skip(real_sglang.WHY_ABSENT)
