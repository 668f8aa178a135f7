"""What holds for every test: the markers `real_sglang` and `browser`, and what becomes of such a test without them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import browser as browser_kit
import pytest
import real_sglang
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

#: By marker, the kit that its tests need.
_KITS: dict[str, ModuleType] = {"real_sglang": real_sglang, "browser": browser_kit}

#: Folders of the tests that take longest, in this order.
_LONGEST = ("resume", "sweep", "cluster", "contracts")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real_sglang: starts a real SGLang on the CPU; skipped where there is none")
    config.addinivalue_line("markers", "browser: looks at a page with Chromium; skipped where there is none")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The longest first: of two workers that meet them last one would wait for the other.
    items.sort(key=lambda item: next((i for i, part in enumerate(_LONGEST) if part in item.path.parts), len(_LONGEST)))


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, kit in _KITS.items():
        if item.get_closest_marker(marker) is None or kit.available():
            continue
        if kit.required():
            pytest.fail(kit.WHY_ABSENT, pytrace=False)
        pytest.skip(kit.WHY_ABSENT)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium, playwright's `Browser`; see `browser.watched_page`."""
    with browser_kit.chromium() as started:
        yield started


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Where the test puts its screenshots."""
    return browser_kit.pictures_folder(tmp_path / "pictures")
