"""What a server was seen to own: its processes, and its files in shared memory, which no death removes.

Seen on SGLang 0.5.23: `sglang_loads_*.shm` stays even after a clean end, and KILL leaves everything else too
(`sem.mp-*`), until /dev/shm is full and the next server dies of SIGBUS. A file is the server's when it was not
there before the start, is our user's, and either a member of the server had it mapped or open for writing, or
its name holds the pid of one. Nothing is taken for granted by its name alone, since other programs use the same
names. Of the standard library only: the guard uses it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from launchers import proc

SHARED_MEMORY = Path("/dev/shm")
#: Names that hold the pid of who made them: SGLang 0.5.23 (stale_shm_cleanup.py) and PyTorch 2.13
#: (`/torch_{pid}_{random}_{count}` in libtorch_cpu.so); CUDA IPC's `cuda.shm.UID.PID.COUNT` is in hexadecimal.
_PID_NAMES = re.compile(r"(?:sgl_shm_\w+_(\d+)_[0-9a-f]+|multi_tokenizer_args_(\d+)|torch_(\d+)_\d+_\d+)")
_CUDA_NAME = re.compile(r"cuda\.shm\.[0-9a-f]+\.([0-9a-f]+)\.[0-9a-f]+")


class SharedFile(NamedTuple):
    """A file in shared memory; another one that takes its name has another inode."""

    name: str
    inode: int


def shared_files(folder: Path = SHARED_MEMORY) -> set[SharedFile]:
    """Our user's files in shared memory, folders and what is in them left out."""
    found = set()
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                facts = entry.stat(follow_symlinks=False)
                if facts.st_uid == os.getuid() and entry.is_file(follow_symlinks=False):
                    found.add(SharedFile(entry.name, facts.st_ino))
    return found


def pid_in_name(name: str) -> int | None:
    """The pid of the process that made a file in shared memory; None where its name does not tell."""
    if match := _PID_NAMES.fullmatch(name):
        return int(next(filter(None, match.groups())))
    match = _CUDA_NAME.fullmatch(name)
    return int(match[1], 16) if match else None


def mapped_inodes(maps: str, folder: Path, *, writable: bool) -> set[int]:
    """Inodes of the folder's files in /proc/PID/maps; `writable`: only those shared with write access.

    A file that is called deleted counts: glibc makes a semaphore under another name first, and links it.
    """
    found = set()
    for line in maps.splitlines():
        # ADDRESS PERMISSIONS OFFSET DEVICE INODE PATH (proc_pid_maps(5))
        words = line.split(maxsplit=5)
        if len(words) == 6 and Path(words[5]).parent == folder:
            if writable and words[1][1] + words[1][3] != "ws":
                continue
            found.add(int(words[4]))
    return found


def held_inodes(pids: Iterable[int], folder: Path = SHARED_MEMORY, *, writable: bool = False) -> set[int]:
    """Inodes of the folder's files that these processes have mapped or open, as far as one may see."""
    found: set[int] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            found |= mapped_inodes(Path(f"/proc/{pid}/maps").read_text(errors="replace"), folder, writable=writable)
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    link = f"/proc/{pid}/fd/{name}"
                    if Path(os.readlink(link)).parent != folder:
                        continue
                    # A descriptor's link has the write bit where the descriptor has it.
                    if not writable or os.lstat(link).st_mode & 0o200:
                        found.add(os.stat(link).st_ino)
    return found


def watch_new_files(folder: Path = SHARED_MEMORY) -> int | None:
    """A descriptor that becomes readable when a file appears in the folder (inotify(7)); None where there is none."""
    in_create, in_moved_to = 0x100, 0x80  # linux/inotify.h
    libc = ctypes.CDLL(None, use_errno=True)
    watch: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if watch < 0:
        return None
    if libc.inotify_add_watch(watch, os.fsencode(folder), in_create | in_moved_to) < 0:
        os.close(watch)
        return None
    return watch


class Ledger:
    """Of one server. Kept on disk too, for who has to clean up when its guard and its owner were killed."""

    def __init__(self, file: Path | None, folder: Path = SHARED_MEMORY) -> None:
        """What is in shared memory now is not the server's. `file`: where to keep what is seen, None for nowhere."""
        self._file = file
        self._folder = folder
        self._before = shared_files(folder)
        #: When each process began, by its pid.
        self.processes: dict[int, int] = {}
        self.files: set[SharedFile] = set()

    def note(self, members: Iterable[proc.Seen]) -> None:
        """Living members as they are now, and the shared memory that they hold."""
        living = [process for process in members if process.alive]
        lines = [
            f"process {process.pid} {process.began}\n"
            for process in living
            if self.processes.get(process.pid) != process.began
        ]
        self.processes |= {process.pid: process.began for process in living}
        if candidates := shared_files(self._folder) - self._before - self.files:
            held = held_inodes((process.pid for process in living), self._folder, writable=True)
            new = {f for f in candidates if f.inode in held or pid_in_name(f.name) in self.processes}
            lines += [f"memory {file.inode} {file.name}\n" for file in sorted(new)]
            self.files |= new
        if lines and self._file is not None:
            with contextlib.suppress(OSError), self._file.open("a") as out:
                out.writelines(lines)


def read_ledger(file: Path) -> tuple[dict[int, int], set[SharedFile]]:
    """Processes (when each began, by pid) and files of a ledger; a line that a kill cut short is left out."""
    processes: dict[int, int] = {}
    files: set[SharedFile] = set()
    with contextlib.suppress(OSError):
        for line in file.read_text(errors="replace").splitlines(keepends=True):
            kind, _, rest = line.partition(" ")
            number, _, value = rest.partition(" ")
            if not line.endswith("\n") or not number.isdigit():
                continue
            if kind == "process" and value.strip().isdigit():
                processes[int(number)] = int(value)
            elif kind == "memory" and "/" not in value:
                files.add(SharedFile(value[:-1], int(number)))
    return processes, files


def remove_files(files: Iterable[SharedFile], folder: Path = SHARED_MEMORY) -> tuple[set[str], set[str]]:
    """Names of the files that were removed, and of those that are still there: a living process holds them."""
    there = set(files) & shared_files(folder)
    held = held_inodes(proc.see_all(), folder) if there else set()
    removed = set()
    for file in there:
        if file.inode not in held:
            with contextlib.suppress(OSError):
                (folder / file.name).unlink()
                removed.add(file.name)
    return removed, {file.name for file in there} - removed
