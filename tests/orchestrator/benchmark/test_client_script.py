"""The benchmark of the client, small and without its peers: that it runs, and that its truth is the server's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.feather as feather
import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("client", ["ours", "bare"])
def test_it_measures_a_client_against_the_servers_stamps(client: str, tmp_path: Path) -> None:
    file = tmp_path / "figures.arrow"
    argv = [sys.executable, str(ROOT / "tests/benchmarks/client.py"), "--clients", client, "--out", str(file)]
    argv += ["--users", "3", "--interval-ms", "2", "--events", "8", "--requests-per-user", "2"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    table = feather.read_table(file)
    assert {"date", "machine", "versions"} <= json.loads(table.schema.metadata[b"about"]).keys()
    (row,) = table.to_pylist()
    assert (row["client"], row["users"], row["events"]) == (client, 3, 48)
    assert row["true.tpot_mean_ms"] > 0
    if client == "ours":
        # Nothing arrives before it has left: the two clocks are one.
        assert row["stamp_error_ms.p50"] > 0
        # The one figure that no delay can make wrong: the server counts from the request's arrival.
        assert row["told.ttft_mean_ms"] > row["true.ttft_mean_ms"]


def test_a_peer_that_is_not_there_is_named_before_anything_starts() -> None:
    argv = [sys.executable, str(ROOT / "tests/benchmarks/client.py"), "--clients", "aiperf"]
    argv += ["--aiperf-python", "/nowhere/python"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2
    assert "/nowhere/python for aiperf" in done.stderr
