"""Three cells of the kill matrix on a real SGLang: all are `python tests/resume/real_kill_matrix.py`."""

from __future__ import annotations

import pytest
import real_kill_matrix


@pytest.mark.real_sglang
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", ["driver KILL measuring C=2", "worker KILL loading", "scheduler KILL loading"])
def test_whoever_is_killed_beside_a_real_server_nothing_is_lost_or_left(name: str) -> None:
    cell = real_kill_matrix.run_cell(name)
    assert cell.problems == ()
    # What was measured before the kill had to stay.
    assert cell.kept == (1 if "C=2" in name else 0)
