"""The report as a person sees it: in light and dark, on a phone, by keyboard, printed; with pictures of each.

One study is made up, the others are those of tests/data/studies. ORCHESTRATOR_STUDIES names more, separated by colons.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import browser as kit
import pytest
from kept_studies import kept, report_config

from orchestrator.analysis.rows import Row
from orchestrator.kept_study import KeptStudy, open_study
from orchestrator.report.page.write import write_report

if TYPE_CHECKING or kit.available():
    from playwright.sync_api import expect

pytestmark = pytest.mark.browser
Build = Callable[..., Row]
RECORDED = sorted(path.parent for path in (Path(__file__).parents[3] / "data" / "studies").glob("*/study.yaml"))
STUDIES = [*RECORDED, *(Path(text) for text in os.environ.get("ORCHESTRATOR_STUDIES", "").split(":") if text)]
PHONE, DESK = 390, 1280


def made_up(build: Build, folder: Path) -> KeptStudy:
    """A study that has every part of a report, with names and messages that are long or mean ill."""
    space = {
        "flags": {
            "max-running-requests": {"choices": [48, 128, 2048]},
            "speculative-algorithm": {"choices": [None, "EAGLE3"]},
            "speculative-draft-model-path": {
                "choices": ["a/drafter-of-a-rather-long-name", "b/another"],
                "when": {"speculative-algorithm": "EAGLE3"},
            },
            "speculative-num-steps": {"int": [1, 10], "when": {"speculative-algorithm": "EAGLE3"}},
        },
        "env": {"NCCL_PROTO": {"choices": ["LL"]}},
    }
    config = report_config(space=space, server={}, workload={"concurrency": [1, 8, 32]})
    rows = []
    for number in range(14):
        flags: dict[str, Any] = {"max-running-requests": (48, 128, 2048)[number % 3]} if number else {}
        speculative = number % 3 == 2
        if speculative:
            flags |= {
                "speculative-algorithm": "EAGLE3",
                "speculative-num-steps": 1 + number % 10,
                "speculative-draft-model-path": ("a/drafter-of-a-rather-long-name", "b/another")[number % 2],
            }
        for c in (1, 8, 32):
            rate = c**0.8 * (100.0 + 3 * number) * (1.2 - 0.1 * c**0.5 if speculative else 1)
            role = "candidate" if number else "baseline"
            accept = 2.0 + 0.1 * number if speculative else None
            width = 0.02 * rate
            rows.append(build(number, c, rate, role=role, flags=flags, accept_length=accept, half_width=width))
    rows += [build(15 + n, 32, 1600.0 + 20 * n, role="sentinel", repeats=0, repeat=1 + n) for n in range(2)]
    message = "<script>document.title = 'taken'</script> " + "x" * 200
    rows.append(build(20, None, state="failed", failure_kind="crash", failure_message=message))
    return kept(folder, rows, config)


@pytest.fixture(scope="module", params=["made-up", *STUDIES], ids=lambda param: getattr(param, "name", param))
def report(request: pytest.FixtureRequest, build_row: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a study, in a folder of its name."""
    param = request.param
    folder = tmp_path_factory.mktemp("reports") / getattr(param, "name", param)
    study = made_up(build_row, folder) if param == "made-up" else open_study(param)
    return write_report(study, folder)[0]


@contextmanager
def opened(browser: Any, report: Path, **how: Any) -> Iterator[kit.Watched]:
    """The page with every chart drawn; at the end it has complained of nothing and asked for nothing but itself."""
    with kit.watched_page(browser, **how) as seen:
        seen.page.goto(report.as_uri())
        seen.page.wait_for_selector("html[data-drawn=all]", state="attached")
        yield seen
        assert seen.complaints == []
        assert seen.requested == [report.as_uri()]


@pytest.mark.parametrize(
    ("look", "width", "dark"), [("light", DESK, False), ("dark", DESK, True), ("phone", PHONE, False)]
)
def test_it_draws_everything_and_has_no_serious_fault(
    browser: Any, report: Path, pictures: Path, look: str, width: int, dark: bool
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    with opened(browser, report, width=width, dark=dark) as seen:
        page = seen.page
        page.screenshot(path=pictures / f"report-{report.parent.name}-{look}.png", full_page=True)
        assert page.locator(".plot").count() >= 5
        assert page.locator(".plot:not(:has(svg.main-svg))").count() == 0
        # Nothing is wider than the screen, on a phone above all.
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        wide = "e => e.querySelector('svg.main-svg').getBoundingClientRect().width - e.getBoundingClientRect().width"
        assert all(page.locator(".plot").nth(n).evaluate(wide) <= 1 for n in range(page.locator(".plot").count()))
        assert page.title() != "taken"
        faults = [v for v in Axe().run(page).response["violations"] if v["impact"] in ("serious", "critical")]
        assert [(v["id"], v["nodes"][0]["target"]) for v in faults] == []


def test_the_scheme_may_change_while_it_is_open(browser: Any, report: Path) -> None:
    with opened(browser, report) as seen:
        label = seen.page.locator(".plot .xtick text").first
        light = label.evaluate("e => getComputedStyle(e).fill")
        seen.page.emulate_media(color_scheme="dark")
        expect(label).not_to_have_css("fill", light)


def test_it_is_used_by_keyboard(browser: Any, report: Path) -> None:
    with opened(browser, report) as seen:
        page = seen.page
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the answer"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "answer"
        button = page.locator("button[data-copy]").first
        button.focus()
        page.keyboard.press("Enter")
        expect(page.locator("#copied")).not_to_be_empty()
        summary = page.locator("#front summary").first
        summary.focus()
        page.keyboard.press("Enter")
        assert page.locator("#front details table").first.is_visible()


def test_the_command_is_copied_whole(browser: Any, report: Path) -> None:
    with opened(browser, report) as seen:
        seen.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        seen.page.locator("button[data-copy]").first.click()
        expect(seen.page.locator("#copied")).not_to_be_empty()
        command = seen.page.locator("#command-1").text_content()
        assert seen.page.evaluate("navigator.clipboard.readText()") == command


def test_it_prints_with_everything_open(browser: Any, report: Path, pictures: Path) -> None:
    with opened(browser, report) as seen:
        page = seen.page
        open_ones = "document.querySelectorAll('details[open]').length"
        assert page.evaluate(open_ones) == 0
        page.evaluate(f"addEventListener('beforeprint', () => {{ window.opened = {open_ones} }})")
        content = page.pdf(path=pictures / f"report-{report.parent.name}.pdf", format="A4", print_background=True)
        assert content.startswith(b"%PDF")
        assert page.evaluate("window.opened") == page.locator("details").count()
        assert page.evaluate(open_ones) == 0
