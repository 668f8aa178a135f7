"""The GPUs of this machine are what the driver's tool tells, and none where it tells nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchers import gpus


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("printf 'NVIDIA H200\\nNVIDIA H200\\n'", ("NVIDIA H200", "NVIDIA H200")),
        ("printf 'No devices were found\\n'; exit 6", ()),
        ("printf 'NVIDIA-SMI has failed\\n' >&2; exit 9", ()),
    ],
)
def test_gpus_are_named_by_the_drivers_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, names: tuple[str, ...]
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f'#!/bin/sh\n[ "$1" = --query-gpu=name ] || exit 3\n{script}\n')
    tool.chmod(0o755)
    monkeypatch.setattr(gpus.shutil, "which", lambda name: str(tool) if name == "nvidia-smi" else None)
    assert gpus.gpu_names() == names


def test_no_tool_and_a_broken_tool_are_no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus.shutil, "which", lambda name: None)
    assert gpus.gpu_names() == ()
    monkeypatch.setattr(gpus.shutil, "which", lambda name: str(tmp_path))
    assert gpus.gpu_names() == ()
