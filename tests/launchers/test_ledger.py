"""What a server is taken to own: by what it holds, never by a name alone."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launchers import proc
from launchers.ledger import (
    Ledger,
    SharedFile,
    held_inodes,
    mapped_inodes,
    pid_in_name,
    read_ledger,
    remove_files,
    shared_files,
)

#: Maps the file of the first argument; how: r(ead), w(rite), or o(pen for writing, without a map).
HOLDS = """if True:
    import mmap, os, sys
    file = os.open(sys.argv[1], os.O_RDONLY if sys.argv[2] == "r" else os.O_RDWR)
    if sys.argv[2] != "o":
        held = mmap.mmap(file, 0, prot=mmap.PROT_READ | (mmap.PROT_WRITE if sys.argv[2] == "w" else 0))
        os.close(file)
    print("up", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def hold() -> Iterator[Callable[[Path, str], proc.Seen]]:
    """A process that holds a file."""
    with contextlib.ExitStack() as started:

        def run(file: Path, how: str) -> proc.Seen:
            process = subprocess.Popen(
                [sys.executable, "-c", HOLDS, str(file), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            started.enter_context(process)
            started.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            seen = proc.see(process.pid)
            assert seen is not None
            return seen

        yield run


def make(folder: Path, name: str) -> Path:
    file = folder / name
    file.write_bytes(bytes(4096))
    return file


def names(ledger: Ledger) -> set[str]:
    return {file.name for file in ledger.files}


@pytest.mark.parametrize(("how", "owned"), [("w", True), ("o", True), ("r", False)])
def test_a_file_is_the_servers_when_a_member_can_write_to_it(
    hold: Callable[[Path, str], proc.Seen], tmp_path: Path, how: str, owned: bool
) -> None:
    ledger = Ledger(None, tmp_path)
    member = hold(make(tmp_path, "psm_1a2b3c4d"), how)
    ledger.note([member])
    assert names(ledger) == ({"psm_1a2b3c4d"} if owned else set())


def test_what_was_there_before_the_start_is_never_the_servers(
    hold: Callable[[Path, str], proc.Seen], tmp_path: Path
) -> None:
    weights = make(tmp_path, "model.safetensors")
    ledger = Ledger(None, tmp_path)
    ledger.note([hold(weights, "w")])
    assert names(ledger) == set()


def test_a_name_alone_is_no_proof_unless_it_holds_the_pid_of_a_member(
    hold: Callable[[Path, str], proc.Seen], tmp_path: Path
) -> None:
    ledger = Ledger(None, tmp_path)
    member = hold(make(tmp_path, "own"), "r")
    make(tmp_path, f"sgl_shm_mq_{member.pid}_0a1b2c3d")
    make(tmp_path, f"sgl_shm_mq_{os.getpid()}_0a1b2c3d")
    make(tmp_path, "nccl-Ab3dEf")
    ledger.note([member])
    assert names(ledger) == {f"sgl_shm_mq_{member.pid}_0a1b2c3d"}


@pytest.mark.parametrize(
    ("name", "pid"),
    [
        ("sgl_shm_mm_4242_0a1b2c3d", 4242),
        ("sgl_shm_some_kind_17_ffffffff", 17),
        ("multi_tokenizer_args_99", 99),
        ("torch_4242_1804289383_0", 4242),
        ("cuda.shm.0.1092.1", 0x1092),
        ("sglang_loads_c37941caeddc_c118fb9c.shm", None),
        ("psm_4242abcd", None),
        ("sem.mp-4242", None),
        ("my_torch_1_2_3", None),
    ],
)
def test_the_pid_in_a_name(name: str, pid: int | None) -> None:
    assert pid_in_name(name) == pid


def test_maps_are_read() -> None:
    maps = """\
7f02fa5a4000-7f02fa5a9000 rw-s 00000000 00:1b 218304                     /dev/shm/sglang_loads_c3_c1.shm
7f032fe35000-7f032fe36000 rw-s 00000000 00:1b 218305                     /dev/shm/sem.AY9ckb (deleted)
7f0330000000-7f0330001000 r--s 00000000 00:1b 218306                     /dev/shm/a name with spaces
7f0331000000-7f0331001000 rw-p 00000000 00:1b 218307                     /dev/shm/private-copy
7f0332000000-7f0332001000 rw-s 00000000 00:1b 218308                     /dev/shm/folder/model.safetensors
7f0333000000-7f0333001000 rw-p 00000000 00:00 0
7ffd1c000000-7ffd1c021000 rw-p 00000000 00:00 0                          [stack]
"""
    shm = Path("/dev/shm")
    assert mapped_inodes(maps, shm, writable=True) == {218304, 218305}
    assert mapped_inodes(maps, shm, writable=False) == {218304, 218305, 218306, 218307}


def test_a_file_that_a_living_process_holds_stays_and_is_named(
    hold: Callable[[Path, str], proc.Seen], tmp_path: Path
) -> None:
    free, held = make(tmp_path, "free"), make(tmp_path, "held")
    hold(held, "r")
    files = shared_files(tmp_path)
    assert {file.name for file in files} == {"free", "held"}
    assert remove_files(files, tmp_path) == ({"free"}, {"held"})
    assert (free.exists(), held.exists()) == (False, True)


def test_another_file_that_took_the_name_is_not_removed(tmp_path: Path) -> None:
    old = make(tmp_path, "psm_1")
    known = shared_files(tmp_path)
    # The old one lives on under another name, so that its inode cannot be given again.
    old.rename(tmp_path / "elsewhere")
    new = make(tmp_path, "psm_1")
    assert remove_files(known, tmp_path) == (set(), set())
    assert new.exists()


def test_a_ledger_can_be_read_by_who_comes_after(hold: Callable[[Path, str], proc.Seen], tmp_path: Path) -> None:
    shm = tmp_path / "shm"
    shm.mkdir()
    written = tmp_path / "ledger"
    ledger = Ledger(written, shm)
    member = hold(make(shm, "a name\twith spaces"), "w")
    ledger.note([member])
    size = written.stat().st_size
    ledger.note([member])
    assert written.stat().st_size == size
    assert read_ledger(written) == ({member.pid: member.began}, ledger.files)
    assert len(ledger.files) == 1


@pytest.mark.parametrize("cut", range(1, 22))
def test_a_line_that_a_kill_cut_short_says_nothing(tmp_path: Path, cut: int) -> None:
    written = tmp_path / "ledger"
    whole = "process 12 345\nmemory 77 psm_1\n"
    last = "memory 1234 sgl_loads\n"
    written.write_text(whole + last[:-cut])
    assert read_ledger(written) == ({12: 345}, {SharedFile("psm_1", 77)})


def test_a_ledger_names_no_file_outside_shared_memory(tmp_path: Path) -> None:
    written = tmp_path / "ledger"
    written.write_text("memory 1 ../etc/passwd\nmemory x y\nprocess 1 x\n\n")
    assert read_ledger(written) == ({}, set())
    assert read_ledger(tmp_path / "absent") == ({}, set())


def test_who_holds_a_file_is_seen_for_a_map_and_for_a_descriptor(
    hold: Callable[[Path, str], proc.Seen], tmp_path: Path
) -> None:
    mapped, opened = make(tmp_path, "mapped"), make(tmp_path, "opened")
    pids = {hold(mapped, "r").pid, hold(opened, "o").pid}
    assert held_inodes(pids, tmp_path) == {mapped.stat().st_ino, opened.stat().st_ino}
    assert held_inodes(pids, tmp_path, writable=True) == {opened.stat().st_ino}
