"""What a person sees in Ray's dashboard and in optuna-dashboard, looked at with Chromium."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from browser import watched_page
from conductor_desk import Desk
from waiting import until

from launchers.errors import OutOfMemory
from orchestrator.attributes import note_text, study_attributes

pytestmark = pytest.mark.browser


def beside_python(program: str) -> str:
    return str(Path(sys.executable).with_name(program))


def test_ray_shows_the_job_and_who_owns_which_node(
    sweep: Callable[..., Any], small_space: str, browser: Any, pictures: Path
) -> None:
    run = sweep(space=small_space.replace("min_s: 0.5, max_s: 5", "min_s: 40, max_s: 60"))
    run.wait_for("trial 0: measuring C=1")
    url = re.search(r"Ray dashboard: (http://\S+);", run.output)
    assert url is not None
    token = subprocess.run(
        [beside_python("ray"), "get-auth-token"], capture_output=True, text=True, check=True
    ).stdout.strip()
    with watched_page(browser) as seen:
        page = seen.page
        page.goto(f"{url[1]}/#/jobs")
        # As a person does: Ray asks for the token, and the sweep has told how to get it.
        dialog = page.get_by_role("dialog")
        dialog.locator("input").fill(token)
        dialog.get_by_role("button", name="Submit").click()
        page.get_by_text("SIMULATED sweep small").wait_for()
        page.get_by_text("RUNNING").first.wait_for()
        page.screenshot(path=pictures / "ray-job.png")
        page.goto(f"{url[1]}/#/actors")
        page.get_by_text(re.compile(r"NodeTrial\(.+, study small, SIMULATED\)")).wait_for()
        page.get_by_text("Board(study small)").wait_for()
        page.screenshot(path=pictures / "ray-actors.png")
        assert token not in run.output
        outside = [address for address in seen.requested if not address.startswith(("http://127.0.0.1", "data:"))]
        assert outside == []
    for _ in range(2):
        run.process.send_signal(signal.SIGINT)
        run.wait_for("stopping")
    assert run.wait() == 130, run.output


@pytest.fixture
def dashboard(desk: Callable[..., Desk], tmp_path: Path) -> Iterator[str]:
    """optuna-dashboard on a study's storage as it is; the address."""
    study = desk(
        changes={"budget": {"trials": 7}, "pareto": ["maximize output_tokens_per_s@4", "minimize ttft_ms.p99@4"]}
    )
    attributes = study_attributes(study.config, "results/conducted", simulated=True)
    study.study.describe(attributes, note_text(study.config, attributes, ["At C=4 trial 1 gives +20.0 %."]))
    study.run("a")
    for rate, ttft_ms in ((120.0, 50.0), (150.0, 300.0), (95.0, 40.0)):
        study.run(str(rate), rate=rate, ttft_ms=ttft_ms)
    study.fail("d", OutOfMemory.kind, "CUDA out of memory")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    command = [beside_python("optuna-dashboard"), f"sqlite:///{tmp_path}/study.db", "--port", str(port)]
    with (tmp_path / "dashboard.log").open("wb") as log:
        server = subprocess.Popen([*command, "--host", "127.0.0.1"], stdout=log, stderr=subprocess.STDOUT)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


def test_optuna_dashboard_opens_the_storage_as_it_is(dashboard: str, browser: Any, pictures: Path) -> None:
    pytest.importorskip("optuna_dashboard")

    def up() -> bool:
        try:
            return requests.get(f"{dashboard}/api/studies", timeout=5).ok
        except requests.ConnectionError:
            return False

    until(up, "optuna-dashboard")
    (study,) = requests.get(f"{dashboard}/api/studies", timeout=5).json()["study_summaries"]
    assert study["study_name"] == "conducted-id-1"
    with watched_page(browser, width=1600, height=1000) as seen:
        page, home = seen.page, f"{dashboard}/dashboard/studies/{study['study_id']}"
        page.goto(home)
        page.get_by_text("output_tokens_per_s@4").first.wait_for()
        page.screenshot(path=pictures / "optuna-study.png")
        page.goto(f"{home}/trials?numbers=2")
        page.get_by_text("breaks ttft_ms.p99@4 <= 150 (600, 450 beyond)").first.wait_for()
        page.goto(f"{home}/trials?numbers=5")
        page.get_by_text("CUDA out of memory").first.wait_for()
        page.screenshot(path=pictures / "optuna-failed-trial.png", full_page=True)
        page.goto(f"{home}/trials?numbers=1")
        for text in ("max-running-requests", "+20 % at C=4", "constraint ttft_ms.p99@4 <= 150", "met: 100"):
            page.get_by_text(text).first.wait_for()
        page.screenshot(path=pictures / "optuna-trial.png", full_page=True)
        page.goto(f"{home}/note")
        page.get_by_text("SIMULATED: no GPU is measured").first.wait_for()
        assert page.get_by_role("link", name="results/conducted/report.html").count() == 1
        page.screenshot(path=pictures / "optuna-note.png")
