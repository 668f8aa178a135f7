"""`live.json`: written seldom and whole, never by a run that did not begin, and read with doubt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from snapshots import SNAPSHOT

from orchestrator import lock
from orchestrator.live_file import LiveFile, live_path, read_live


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def live(tmp_path: Path, clock: Clock, said: list[str]) -> LiveFile:
    owner = lock.owner_of_this_process("run-1")
    return LiveFile(live_path(tmp_path), owner, "the command", said.append, clock)


def test_it_is_written_at_most_every_two_seconds(live: LiveFile, tmp_path: Path, clock: Clock) -> None:
    live.begin()
    path = live_path(tmp_path)
    stamps = set()
    for _ in range(21):
        live.update(SNAPSHOT)
        stamps.add(json.loads(path.read_text())["written_at"])
        clock.now += 0.5
    assert sorted(stamps) == [1_000.0, 1_002.0, 1_004.0, 1_006.0, 1_008.0, 1_010.0]
    state = read_live(path)
    assert state is not None
    assert state.snapshot == SNAPSHOT
    assert (state.state, state.command) == ("running", "the command")
    assert list(tmp_path.iterdir()) == [path]


def test_a_clock_that_is_set_back_does_not_silence_it(live: LiveFile, tmp_path: Path, clock: Clock) -> None:
    live.begin()
    clock.now -= 5_000.0
    live.update(SNAPSHOT)
    state = read_live(live_path(tmp_path))
    assert state is not None
    assert state.snapshot == SNAPSHOT


def test_a_run_that_never_began_leaves_the_file_of_another_alone(live: LiveFile, tmp_path: Path) -> None:
    live_path(tmp_path).write_text("of another sweep")
    live.update(SNAPSHOT)
    live.end("failed", "the space has changed")
    assert live_path(tmp_path).read_text() == "of another sweep"


def test_the_end_stays(live: LiveFile, tmp_path: Path, clock: Clock) -> None:
    live.begin(SNAPSHOT)
    live.end("interrupted", "stopped by hand")
    clock.now += 60.0
    live.update(SNAPSHOT)
    state = read_live(live_path(tmp_path))
    assert state is not None
    assert (state.state, state.reason, state.written_at) == ("interrupted", "stopped by hand", 1_000.0)
    assert state.snapshot == SNAPSHOT
    assert not state.alive(clock.now)


def test_a_sweep_lives_as_long_as_its_process(live: LiveFile, tmp_path: Path, clock: Clock) -> None:
    live.begin()
    path = live_path(tmp_path)
    state = read_live(path)
    assert state is not None
    assert state.alive(clock.now + 3_600.0)
    data = json.loads(path.read_text())
    data["owner"]["started"] -= 100.0  # another process has the pid by now
    path.write_text(json.dumps(data))
    other = read_live(path)
    assert other is not None
    assert not other.alive(clock.now)


def test_of_another_host_the_file_s_age_tells(live: LiveFile, tmp_path: Path, clock: Clock) -> None:
    live.begin()
    path = live_path(tmp_path)
    data = json.loads(path.read_text())
    data["owner"] |= {"host": "elsewhere", "renewed": 0.0}
    path.write_text(json.dumps(data))
    state = read_live(path)
    assert state is not None
    assert state.alive(clock.now + lock.STALE_AFTER_S - 1)
    assert not state.alive(clock.now + lock.STALE_AFTER_S + 1)


def test_a_disk_that_refuses_is_told_once_and_stops_nothing(
    live: LiveFile, tmp_path: Path, clock: Clock, said: list[str]
) -> None:
    live_path(tmp_path).mkdir()
    live.begin()
    for _ in range(3):
        clock.now += 5.0
        live.update(SNAPSHOT)
    assert len(said) == 1
    assert "live.json cannot be written" in said[0]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"version": 2}', "null"])
def test_what_is_not_understood_counts_as_absent(tmp_path: Path, text: str) -> None:
    assert read_live(live_path(tmp_path)) is None
    live_path(tmp_path).write_text(text)
    assert read_live(live_path(tmp_path)) is None
