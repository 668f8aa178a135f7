"""The GPUs of this machine, as NVIDIA's driver tells them."""

from __future__ import annotations

import shutil
import subprocess


def gpu_names() -> tuple[str, ...]:
    """The name of each GPU in the driver's order; empty where there is no driver or no GPU."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    asked = [tool, "--query-gpu=name", "--format=csv,noheader"]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(filter(None, map(str.strip, told.stdout.splitlines()))) if told.returncode == 0 else ()
