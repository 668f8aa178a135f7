"""One driver a study: refused while the owner lives, free as soon as it is dead, however it died."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchestrator import lock
from orchestrator.lock import StudyBusy, alive, owner_of_this_process, study_lock
from orchestrator.results.files import StoreError

_HOLDER = """
import sys
from pathlib import Path
from orchestrator.lock import owner_of_this_process, study_lock
with study_lock(Path(sys.argv[1]), owner_of_this_process("other")):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the lock is; the folder does not exist yet."""
    return tmp_path / "results" / "study.lock"


@pytest.fixture
def holder(file: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_second_driver_is_refused_and_told_who_the_first_is(file: Path, holder: subprocess.Popen[str]) -> None:
    with (
        pytest.raises(StudyBusy, match=f"process {holder.pid} on {os.uname().nodename}"),
        study_lock(file, owner_of_this_process("mine")),
    ):
        pytest.fail("two drivers at once")
    # The refusal has not touched the first one's claim.
    assert json.loads(file.read_text())["pid"] == holder.pid


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_lock_is_free_once_its_owner_is_killed(
    file: Path, holder: subprocess.Popen[str], number: signal.Signals
) -> None:
    holder.send_signal(number)
    holder.wait(30)
    with study_lock(file, owner_of_this_process("mine")):
        assert json.loads(file.read_text())["run"] == "mine"


def test_the_lock_is_free_after_an_error_inside_it(file: Path) -> None:
    with pytest.raises(ZeroDivisionError), study_lock(file, owner_of_this_process("a")):
        raise ZeroDivisionError
    with study_lock(file, owner_of_this_process("b")):
        pass


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1, "host": "elsewhere"}', "x" * 10_000])
def test_what_a_dead_owner_left_in_the_file_does_no_harm(file: Path, content: str) -> None:
    file.parent.mkdir()
    file.write_text(content)
    mine = owner_of_this_process("mine")
    with study_lock(file, mine):
        assert json.loads(file.read_text()) == mine


def test_a_claim_that_is_not_written_yet_is_a_driver_that_has_just_started(
    file: Path, holder: subprocess.Popen[str]
) -> None:
    file.write_text("")
    with pytest.raises(StudyBusy, match="just started"), study_lock(file, owner_of_this_process("mine")):
        pytest.fail("two drivers at once")


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    path = tmp_path / "a file" / "study.lock"
    with pytest.raises(StoreError, match="cannot lock"), study_lock(path, owner_of_this_process("mine")):
        pytest.fail("no lock can be there")


def test_a_lock_file_that_was_moved_away_meanwhile_is_not_held(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening and locking, another driver moved the study aside and made a new lock."""

    def flock(descriptor: Any, how: int) -> None:
        file.rename(file.with_name("moved.lock"))
        file.write_text("the new one")

    monkeypatch.setattr(lock.fcntl, "flock", flock)
    with pytest.raises(StudyBusy, match="moved"), study_lock(file, owner_of_this_process("mine")):
        pytest.fail("the new lock is another's")
    assert file.read_text() == "the new one"


# ---- alive -------------------------------------------------------------------------------------------------


def test_this_process_lives_until_it_releases() -> None:
    mine = owner_of_this_process("r")
    assert alive(mine, now=mine["renewed"] + 10_000)
    assert not alive({**mine, "released": True}, now=mine["renewed"])


def test_a_pid_that_came_back_is_another_process() -> None:
    mine = owner_of_this_process("r")
    assert not alive({**mine, "started": mine["started"] - 100.0}, now=mine["renewed"])


def test_a_dead_owner_is_dead_as_a_zombie_and_after(file: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        started = psutil.Process(process.pid).create_time()
        owner = {**owner_of_this_process("r"), "pid": process.pid, "started": started}
        assert alive(owner, now=0.0)
        process.kill()
        # Dead, but not yet waited for: a zombie.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
        assert not alive(owner, now=0.0)
    finally:
        process.kill()
        process.communicate()
    assert not alive(owner, now=0.0)


def test_an_owner_elsewhere_lives_as_long_as_it_renews() -> None:
    elsewhere = {**owner_of_this_process("r"), "host": "another-host", "renewed": 1000.0}
    assert alive(elsewhere, now=1000.0 + lock.STALE_AFTER_S - 1)
    assert not alive(elsewhere, now=1000.0 + lock.STALE_AFTER_S + 1)
