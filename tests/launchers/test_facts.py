"""What the node shows at a server's end: who holds its GPUs, and what came about since the start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from launchers import facts
from launchers.facts import FactsReader, GpuHolder, holders
from launchers.gpus import Gpu, GpuProcess

MARKER = "FACTS_OF_STUDY=facts-test"


def gpu(index: int, used_mib: int, *processes: GpuProcess) -> Gpu:
    return Gpu(index, f"GPU-{index}", "H200", used_mib, 143_771, processes)


@pytest.fixture
def marked() -> Iterator[int]:
    """A process with the study's marker."""
    name, value = MARKER.split("=")
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={name: value})
    try:
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def test_the_holders_of_gpus_are_told_without_the_server_itself() -> None:
    seen = [
        gpu(0, 91_000, GpuProcess(31, 90_000), GpuProcess(77, 500)),
        gpu(1, 90_500, GpuProcess(31, 90_000)),
        gpu(2, 400),
    ]
    assert holders(seen, {31}, lambda pid: False) == (GpuHolder(77, False),)
    assert holders(seen, {31, 77}, lambda pid: False) == ()
    assert holders(seen, set(), lambda pid: pid == 31) == (GpuHolder(31, True), GpuHolder(77, False))


def test_memory_of_no_known_process_has_a_holder_who_is_not_shown() -> None:
    assert holders([gpu(0, 60_000, GpuProcess(31, 1000))], {31}, lambda pid: True) == (GpuHolder(None, None),)
    # A process whose memory is not told may hold it all.
    assert holders([gpu(0, 60_000, GpuProcess(31, None))], {31}, lambda pid: True) == ()


def test_a_holder_is_known_by_the_mark_of_its_study(marked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = 2**22 + 1
    seen = (gpu(0, 900, *(GpuProcess(pid, 300) for pid in (marked, os.getpid(), gone))),)
    monkeypatch.setattr(facts, "gpus_now", lambda: seen)
    told = FactsReader(MARKER, gpus=True)(own=())
    assert told.gpu_holders is not None
    # One that this container does not show may be anybody's.
    assert {h.pid: h.ours for h in told.gpu_holders} == {marked: True, os.getpid(): False, gone: None}


def test_without_gpus_nobody_is_said_to_hold_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> tuple[Gpu, ...]:
        raise AssertionError("the driver was asked")

    reader = FactsReader(MARKER, gpus=False)
    with monkeypatch.context() as patch:
        patch.setattr(facts, "gpus_now", asked)
        assert reader(own=()).gpu_holders is None
    monkeypatch.setattr(facts, "gpus_now", tuple)
    # Neither where the driver does not answer.
    assert FactsReader(MARKER, gpus=True)(own=()).gpu_holders is None


def test_kills_for_want_of_memory_are_counted_since_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    count = iter([7, 9])
    monkeypatch.setattr(facts, "_oom_kills", lambda: next(count))
    assert FactsReader(MARKER, gpus=False)(own=()).oom_kills == 2
    monkeypatch.setattr(facts, "_oom_kills", lambda: None)
    assert FactsReader(MARKER, gpus=False)(own=()).oom_kills is None


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no /dev/shm here")
def test_this_machine_tells_its_shared_memory_and_its_kills() -> None:
    told = FactsReader(MARKER, gpus=False)(own=())
    assert told.shm_free_bytes is not None
    assert 0 <= told.shm_free_bytes <= shutil.disk_usage("/dev/shm").total
    assert told.oom_kills is None or told.oom_kills >= 0
