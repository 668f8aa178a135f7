"""What processes use, read from real ones."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launchers import usage
from launchers.gpus import Gpu
from launchers.movement import Movement
from launchers.usage import Looker, usage_of

#: Does each line of its input, and says so.
OBEYS = """
import sys
kept = []
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


class Child:
    """A process that does what it is told, one thing at a time."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OBEYS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.does("pass")

    @property
    def pid(self) -> int:
        return self.process.pid

    def does(self, line: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


@pytest.fixture
def child() -> Iterator[Child]:
    made = Child()
    try:
        yield made
    finally:
        made.process.kill()
        made.process.communicate()


def test_reads_memory_and_cpu_time_are_seen(child: Child, tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"w" * (8 << 20))
    before = usage_of([child.pid])[child.pid]
    child.does(f"kept.append(open({str(tmp_path / 'weights')!r}, 'rb').read())")
    after = usage_of([child.pid])[child.pid]
    assert before.read_bytes is not None
    assert after.read_bytes is not None
    assert after.read_bytes - before.read_bytes >= 8 << 20
    assert after.resident_bytes - before.resident_bytes >= 6 << 20
    child.does("import time; end = time.process_time() + 0.2")
    child.does("any(iter(lambda: time.process_time() > end, True))")
    busy = usage_of([child.pid])[child.pid]
    assert 0.15 <= busy.cpu_s - after.cpu_s < 60


def test_a_process_that_has_ended_is_left_out(child: Child) -> None:
    child.process.kill()
    child.process.wait()
    assert usage_of([child.pid]) == {}


def test_a_process_that_only_waits_does_not_move_and_one_that_loads_does(child: Child) -> None:
    looker = Looker(lambda: [child.pid], gpus=False)
    movement = Movement(0.0)
    for second in range(0, 700, 10):
        movement.tick(0, float(second))
        movement.look(looker(), float(second))
    assert movement.still_s == 690.0
    child.does("kept.append(bytearray(b'w') * (4 << 20))")
    movement.tick(0, 700.0)
    movement.look(looker(), 700.0)
    assert (movement.still_s, movement.last) == (0.0, "memory")


def test_gpus_are_asked_aside_so_that_a_driver_that_hangs_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, hangs = threading.Event(), threading.Event()

    def gpus_now() -> tuple[Gpu, ...]:
        if asked.is_set():
            hangs.wait(30)
            return ()
        asked.set()
        return (Gpu(0, "GPU-0", "H", 700, 80_000), Gpu(1, "GPU-1", "H", 5, 80_000))

    monkeypatch.setattr(usage, "gpus_now", gpus_now)
    monkeypatch.setattr(usage, "_ASK_GPUS_S", 0.0)
    try:
        with Looker(list, gpus=True) as looker:
            assert asked.wait(30)
            end = time.monotonic() + 30
            while not looker().gpu_mib:
                assert time.monotonic() < end
                time.sleep(0.01)
            assert looker().gpu_mib == {0: 700, 1: 5}
    finally:
        hangs.set()


def test_without_gpus_no_driver_is_asked() -> None:
    before = set(threading.enumerate())
    with Looker(list, gpus=False) as looker:
        assert set(threading.enumerate()) <= before
        assert looker().gpu_mib == {}
