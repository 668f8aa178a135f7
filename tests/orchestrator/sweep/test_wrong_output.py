"""A study in which the fastest setting gives out garbage."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

#: Four requests at once are faster than two under four users; here with broken output.
FAULT = {"kind": "garbled", "when": {"max-running-requests": 4}}


def test_a_faster_setting_with_broken_output_is_flagged_and_never_crowned(
    sweep: Callable[..., Any], small_space: str
) -> None:
    server = f"server: {{flags: {{schedule-policy: fcfs}}, env: {{SIMULATED_FAULT: '{json.dumps(FAULT)}'}}}}\n"
    run = sweep(space=f"{small_space}{server}")
    assert run.wait() == 0, run.output
    assert "trial 0: checking output" in run.output

    trials = run.store.trials()
    four = next(n for n, rows in trials.items() if rows[0].trial.requested_flags.get("max-running-requests") == 4)
    two = next(n for n, rows in trials.items() if rows[0].trial.requested_flags.get("max-running-requests") == 2)
    for row in trials[four]:
        assert row.outcome.state == "complete"
        assert (row.start.output_differs, row.start.output_self_agreement) == (True, 1.0)
        assert row.start.output_agreement < 0.2
        assert row.output_tokens_per_s is None
        assert row.level.metrics.output_tokens_per_s > 0
    assert [row.start.output_differs for row in (*trials[0], *trials[two])] == [False] * 4
    assert trials[0][0].start.outputs == trials[0][0].start.outputs_alone == trials[two][0].start.outputs

    assert f"The output of trial {four} is not the baseline's" in run.output
    assert f"trial {four}" not in run.output.split("Best by")[1].split("\n")[0]
    for name in ("pareto.arrow", "frontier.arrow"):
        assert four not in pa.ipc.open_file(run.root / name).read_all()["trial"].to_pylist()
    rows = pa.ipc.open_file(run.root / "measurements.arrow").read_all().to_pylist()
    limited = {(row["trial"], row["concurrency"]): row["admission_limited"] for row in rows}
    assert limited[two, 4] is True
    assert limited[two, 1] is False
    assert all(json.loads(row["stop_report"])["proven"] for row in rows)

    # Told so to the search as well: a later run knows it without the files being read again.
    again = sweep(space=f"{small_space}{server}")
    assert again.wait() == 0, again.output
    assert f"The output of trial {four} is not the baseline's" in again.output
