"""How the GPUs of this machine are joined, as `nvidia-smi topo -m` draws it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Collection

_TIMEOUT_S = 60.0
#: The tool underlines its header.
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def nvlink_everywhere(gpus: Collection[int] | None = None) -> bool | None:
    """Whether every pair of these GPUs (default: all) is joined by NVLink; None where nobody tells."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        told = subprocess.run([tool, "topo", "-m"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return nvlink_in(told.stdout, gpus) if told.returncode == 0 else None


def nvlink_in(matrix: str, gpus: Collection[int] | None = None) -> bool | None:
    """What a matrix says: `NV<n>` joins a pair by n links, any other word (PIX, PXB, PHB, NODE, SYS) by PCIe.

    `gpus` are the numbers of its rows (default: all of them). None where there are fewer than two GPUs, or the
    text is no such matrix.
    """
    rows = [line.split() for line in _STYLE.sub("", matrix).splitlines()]
    header = next((row for row in rows if row[:1] == ["GPU0"] and row[1:2] != ["X"]), None)
    if header is None:
        return None
    columns = {word: position for position, word in enumerate(header) if word.startswith("GPU")}
    links = {row[0]: row[1:] for row in rows if row and row[0] in columns and row is not header}
    asked = list(links) if gpus is None else [f"GPU{number}" for number in gpus]
    if len(asked) < 2 or any(name not in links or name not in columns for name in asked):
        return None
    return all(links[a][columns[b]].startswith("NV") for a in asked for b in asked if a != b)
