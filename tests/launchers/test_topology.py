"""Whether the GPUs are joined by NVLink, from the matrix that the driver's tool draws."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchers import topology
from launchers.topology import nvlink_everywhere, nvlink_in

UNDERLINED, PLAIN = "\x1b[4m", "\x1b[0m"
LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def matrix(cells: list[str], nic: bool = True) -> str:
    """As `nvidia-smi topo -m` draws it for GPUs whose links are `cells`, row by row."""
    count = int(len(cells) ** 0.5)
    heads = [f"GPU{i}" for i in range(count)] + (["NIC0"] if nic else [])
    rows = []
    for row in range(count):
        links = ["X" if row == column else cells[row * count + column] for column in range(count)]
        rows.append("\t".join([f"GPU{row}", *links, *(["NODE"] if nic else []), "0-31", "0", "N/A"]))
    if nic:
        rows.append("\t".join(["NIC0", *["NODE"] * count, "X"]))
    header = f"\t{UNDERLINED}" + "\t".join([*heads, "CPU Affinity", "NUMA Affinity", f"GPU NUMA ID{PLAIN}"])
    return "\n".join([header, *rows, LEGEND])


def test_all_pairs_by_nvlink() -> None:
    assert nvlink_in(matrix(["NV18"] * 16)) is True
    assert nvlink_in(matrix(["NV18"] * 16, nic=False)) is True


@pytest.mark.parametrize("link", ["PIX", "PXB", "PHB", "NODE", "SYS"])
def test_one_pair_by_pcie_is_enough(link: str) -> None:
    cells = ["NV4"] * 9
    cells[2] = cells[6] = link
    assert nvlink_in(matrix(cells)) is False
    # The pair that is used is joined by NVLink.
    assert nvlink_in(matrix(cells), [0, 1]) is True
    assert nvlink_in(matrix(cells), [2, 0]) is False


@pytest.mark.parametrize("text", ["", "No devices were found", matrix(["X"]), "GPU0\tX\tNV4\nGPU1\tNV4\tX\n"])
def test_what_tells_nothing_is_none(text: str) -> None:
    assert nvlink_in(text) is None


def test_gpus_that_are_not_in_the_matrix_tell_nothing() -> None:
    assert nvlink_in(matrix(["NV18"] * 4), [0, 5]) is None
    assert nvlink_in(matrix(["NV18"] * 4), [0]) is None


def test_the_drivers_tool_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "drawn").write_text(matrix(["NV18"] * 4))
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f'#!/bin/sh\n[ "$1 $2" = "topo -m" ] || exit 3\ncat {tmp_path}/drawn\n')
    tool.chmod(0o755)
    monkeypatch.setattr(topology.shutil, "which", lambda name: str(tool) if name == "nvidia-smi" else None)
    assert nvlink_everywhere() is True
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert nvlink_everywhere() is None
    monkeypatch.setattr(topology.shutil, "which", lambda name: None)
    assert nvlink_everywhere() is None
