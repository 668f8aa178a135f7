"""The GPUs of this machine are what the driver's tool tells, and none where it tells nothing."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from launchers import gpus
from launchers.gpus import Gpu, GpuBaseline, GpuProcess, memory_left_mib, read_gpus, unclaimed_mib

#: As `nvidia-smi --format=csv,noheader,nounits` writes it.
GPUS = textwrap.dedent(
    """\
    0, GPU-1111, NVIDIA RTX PRO 6000 Blackwell Server Edition, 81234, 97887
    1, GPU-2222, NVIDIA RTX PRO 6000 Blackwell Server Edition, 2, 97887
    """
)
PROCESSES = "GPU-1111, 4242, 80000\nGPU-1111, 4343, [N/A]\n"


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A driver's tool that runs this shell script."""

    def make(script: str) -> Path:
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(gpus.shutil, "which", lambda name: str(path) if name == "nvidia-smi" else None)
        return path

    return make


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("printf 'NVIDIA H200\\nNVIDIA H200\\n'", ("NVIDIA H200", "NVIDIA H200")),
        ("printf 'No devices were found\\n'; exit 6", ()),
        ("printf 'NVIDIA-SMI has failed\\n' >&2; exit 9", ()),
    ],
)
def test_gpus_are_named_by_the_drivers_tool(tool: Callable[[str], Path], script: str, names: tuple[str, ...]) -> None:
    tool(f'[ "$1" = --query-gpu=name ] || exit 3\n{script}')
    assert gpus.gpu_names() == names


def test_no_tool_and_a_broken_tool_are_no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus.shutil, "which", lambda name: None)
    assert gpus.gpu_names() == ()
    assert gpus.gpus_now() == ()
    monkeypatch.setattr(gpus.shutil, "which", lambda name: str(tmp_path))
    assert gpus.gpu_names() == ()


def test_memory_and_processes_of_each_gpu_are_read() -> None:
    first, second = read_gpus(GPUS, PROCESSES)
    assert (first.index, first.used_mib, first.total_mib) == (0, 81234, 97887)
    assert first.name == "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    assert first.processes == (GpuProcess(4242, 80000), GpuProcess(4343, None))
    assert (second.uuid, second.processes) == ("GPU-2222", ())


@pytest.mark.parametrize(
    "line", ["No devices were found", "", "0, GPU-1, name, [GPU is lost], [GPU is lost]", "Unable to determine, 1"]
)
def test_a_message_of_the_driver_is_no_gpu(line: str) -> None:
    assert read_gpus(line, line) == ()


def test_the_tool_is_asked_for_both_tables(tool: Callable[[str], Path]) -> None:
    tool(
        f"""case "$1" in
        --query-gpu=index,uuid,name,memory.used,memory.total) printf '{GPUS}';;
        --query-compute-apps=gpu_uuid,pid,used_memory) printf '{PROCESSES}';;
        *) exit 3;; esac"""
    )
    assert gpus.gpus_now() == read_gpus(GPUS, PROCESSES)
    assert [gpu.processes for gpu in gpus.gpus_now()] == [(GpuProcess(4242, 80000), GpuProcess(4343, None)), ()]


def gpu(used_mib: int, *processes: GpuProcess, uuid: str = "a") -> Gpu:
    return Gpu(0, uuid, "card", used_mib, 1000_000, processes)


@pytest.mark.parametrize(
    ("before", "now", "left_mib"),
    [
        ([gpu(10)], [gpu(10)], 0),
        # What the driver takes on its own.
        ([gpu(10)], [gpu(60)], 0),
        ([gpu(10)], [gpu(500)], 490),
        # Ours is still there, shown as a process or not.
        ([gpu(10)], [gpu(500, GpuProcess(1, 480))], 490),
        # Another program came meanwhile; the second one's share is not told.
        ([gpu(10)], [gpu(500, GpuProcess(77, 480), GpuProcess(78, None))], 0),
        ([gpu(10)], [gpu(900, GpuProcess(77, 480), GpuProcess(1, 400))], 410),
        # Another program ended meanwhile, and what it held is not ours.
        ([gpu(500, GpuProcess(77, 480))], [gpu(10)], 0),
        ([gpu(500, GpuProcess(77, 480))], [gpu(400)], 380),
        # Over all GPUs; one that was not there before says nothing.
        ([gpu(10), gpu(10, uuid="b")], [gpu(310), gpu(510, uuid="b"), gpu(999, uuid="c")], 800),
        ([], [gpu(500)], 0),
    ],
)
def test_the_memory_that_did_not_come_back(before: list[Gpu], now: list[Gpu], left_mib: int) -> None:
    others = {77, 78}
    assert memory_left_mib(unclaimed_mib(before, others), unclaimed_mib(now, others)) == left_mib


@pytest.mark.parametrize(("alive", "left_mib"), [(True, 0), (False, 5000)])
def test_what_a_living_process_of_another_program_took_is_not_waited_for(
    tool: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alive: bool, left_mib: int
) -> None:
    monkeypatch.setattr(gpus, "_POLL_S", 0.01)
    monkeypatch.setattr(gpus, "RELEASE_TIMEOUT_S", 0.05)
    asked = tmp_path / "asked"
    # No process has a pid beyond the largest one: a container does not see who has it outside.
    pid = os.getpid() if alive else 1 << 30
    tool(
        f"""if [ "$1" = --query-compute-apps=gpu_uuid,pid,used_memory ]; then
            [ -e {asked} ] && echo "GPU-1, {pid}, 5000"
            touch {asked}
        else
            used=3; [ -e {asked} ] && used=5003; echo "0, GPU-1, card, $used, 97887"
        fi"""
    )
    baseline = GpuBaseline()
    assert baseline.wait_left_mib() == left_mib


def test_a_stop_waits_until_the_memory_is_back(
    tool: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "_POLL_S", 0.01)
    asked = tmp_path / "asked"
    # The first answer is the baseline; two more show memory that is still held.
    tool(
        f"""[ "$1" = --query-compute-apps=gpu_uuid,pid,used_memory ] && exit 0
        echo x >> {asked}
        case "$(wc -l < {asked})" in 2|3) used=5000;; *) used=3;; esac
        echo "0, GPU-1, card, $used, 97887\""""
    )
    baseline = GpuBaseline()
    assert baseline.wait_left_mib() == 0
    assert len(asked.read_text().splitlines()) == 4


def test_memory_that_stays_is_told_after_the_deadline(
    tool: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "_POLL_S", 0.01)
    asked = tmp_path / "asked"
    tool(
        f"""[ "$1" = --query-compute-apps=gpu_uuid,pid,used_memory ] && exit 0
        used=3; [ -e {asked} ] && used=5000; touch {asked}
        echo "0, GPU-1, card, $used, 97887\""""
    )
    monkeypatch.setattr(gpus, "RELEASE_TIMEOUT_S", 0.05)
    assert GpuBaseline().wait_left_mib() == 4997


def test_without_gpus_there_is_no_memory_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus.shutil, "which", lambda name: None)
    assert GpuBaseline().wait_left_mib() is None
