"""The Chromium that tests look at pages with: where it is, and a page whose console and requests are kept.

Mark a test `browser` and ask for the fixture of that name: without Chromium and playwright it is skipped, or fails
where ORCHESTRATOR_REQUIRE_CHROMIUM is set. Pictures go to the folder ORCHESTRATOR_PICTURES, or to the test's own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Debian's; playwright's own are not needed.
CHROMIUM = os.environ.get("ORCHESTRATOR_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")

WHY_ABSENT = (
    "no Chromium with playwright: `apt-get install chromium` and `pip install -e '.[browser]'`, or name a Chromium in "
    "ORCHESTRATOR_CHROMIUM"
)

#: As root, as on CI, it has no sandbox, and a container's /dev/shm is small.
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def available() -> bool:
    """Whether there is a Chromium and what drives it."""
    return CHROMIUM is not None and importlib.util.find_spec("playwright") is not None


def required() -> bool:
    """Whether a missing one is an error, as on CI, and not a reason to skip."""
    return os.environ.get("ORCHESTRATOR_REQUIRE_CHROMIUM", "") not in ("", "0")


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser, playwright's `Browser`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=_ARGUMENTS)
        try:
            yield started
        finally:
            started.close()


def pictures_folder(own: Path) -> Path:
    """Where pictures go: `own` unless ORCHESTRATOR_PICTURES names another."""
    folder = Path(os.environ.get("ORCHESTRATOR_PICTURES") or own)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@dataclass
class Watched:
    """A page, playwright's `Page`, and what it did."""

    page: Any
    #: Errors and warnings of its console, and exceptions of its scripts.
    complaints: list[str] = field(default_factory=list)
    #: Every address that it asked for, its own first.
    requested: list[str] = field(default_factory=list)


@contextlib.contextmanager
def watched_page(browser: Any, *, width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[Watched]:
    """A new page of this size in CSS pixels, in the light or the dark scheme; nothing is opened yet."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        device_scale_factor=2 if width < 500 else 1,
    )
    try:
        seen = Watched(context.new_page())

        def heard(message: Any) -> None:
            if message.type in ("error", "warning"):
                seen.complaints.append(f"{message.type}: {message.text}")

        seen.page.on("console", heard)
        seen.page.on("pageerror", lambda error: seen.complaints.append(f"exception: {error}"))
        seen.page.on("request", lambda request: seen.requested.append(request.url))
        yield seen
    finally:
        context.close()
