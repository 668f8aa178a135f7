"""The private folder of a start: what its server must not share, and what shows whose it was when all else is dead.

It holds the server's key, its temporary files and its ledger (`launchers.ledger`), goes with the server, and
is found again by its name. Of the standard library only: the guard uses it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "sglang-start"
_LEDGER = "ledger"


def make_folder(study_marker: str, run_marker: str, start_id: str) -> Path:
    """A new folder that only this user can enter. Raises OSError.

    Its path is short, since SGLang puts sockets into its temporary folder, and theirs have 107 bytes at most.
    """
    folder = Path(tempfile.gettempdir(), "+".join((_PREFIX, study_marker, run_marker, start_id)))
    folder.mkdir(mode=0o700)
    return folder


def folders_of_other_runs(study_marker: str, run_marker: str) -> list[Path]:
    """Folders that starts of other runs of this study have left on this host."""
    ours = f"{_PREFIX}+{study_marker}+"
    found = []
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if not entry.name.startswith(ours) or entry.name.startswith(f"{ours}{run_marker}+"):
                continue
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.getuid():
                    found.append(Path(entry.path))
    return found


def ledger_of(folder: Path) -> Path:
    """Where the guard notes what the server owns."""
    return folder / _LEDGER


def remove_folder(folder: Path, *, keep_ledger: bool = False) -> None:
    """Remove it with all that is in it, or all but the ledger, for who comes after."""
    if not keep_ledger:
        shutil.rmtree(folder, ignore_errors=True)
        return
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name == _LEDGER:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
