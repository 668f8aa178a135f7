"""One cell of the kill matrix: the whole matrix is `python tests/resume/kill_matrix.py`."""

from __future__ import annotations

import kill_matrix


def test_a_sweep_that_is_killed_while_measuring_loses_repeats_and_leaves_nothing() -> None:
    cell = kill_matrix.run_cell("measuring second level")
    assert cell.problems == ()
    # The baseline's two levels and the first of trial 1.
    assert cell.kept == 3
