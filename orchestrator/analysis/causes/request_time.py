"""Where a request's time went: in the queue, to its first token, decoding; beside the baseline's. Pure."""

from __future__ import annotations

from orchestrator.analysis.causes.evidence import Evidence, users
from orchestrator.analysis.causes.step_time import StepTime, StepTimes
from orchestrator.analysis.finding import Finding, rows_behind


def request_times(steps: StepTimes, only: int) -> list[Finding]:
    """A sentence for each load of one trial, by the means over its requests."""
    evidence, found = steps.evidence, []
    for row in evidence.compared_of(only):
        step = steps.of(row)
        if step is None or step.decode_ms is None or step.queue_ms is None or step.first_token_ms is None:
            continue
        what = "cycles" if row.trial.speculative else "steps"
        text = (
            f"At C={users(row)} a request took {_parts(step)}, in {what} of {step.cycle_ms:,.1f} ms with {step.batch} "
            "at once"
        )
        beside = _baseline_at(steps, users(row), evidence)
        behind = [row]
        if beside is not None and row.trial.trial != beside.row.trial.trial:
            text += (
                f"; in the baseline's first start {_parts(beside)}, in steps of {beside.cycle_ms:,.1f} ms with "
                f"{beside.batch} at once"
            )
            behind.append(beside.row)
        data = {**step.data, "baseline": beside.data if beside else None}
        found.append(Finding("request_time", f"{text}.", data, rows_behind(behind)))
    return found


def _parts(step: StepTime) -> str:
    assert step.queue_ms is not None
    assert step.first_token_ms is not None
    assert step.decode_ms is not None
    total = step.queue_ms + step.first_token_ms + step.decode_ms
    return (
        f"{total:,.0f} ms: {step.queue_ms:,.0f} in the queue, {step.first_token_ms:,.0f} from there to its first "
        f"token, {step.decode_ms:,.0f} decoding"
    )


def _baseline_at(steps: StepTimes, load: int, evidence: Evidence) -> StepTime | None:
    base = evidence.baseline
    for row in evidence.compared_of(base.trial.trial) if base is not None else []:
        if users(row) == load:
            step = steps.of(row)
            told = step is not None and None not in (step.queue_ms, step.first_token_ms, step.decode_ms)
            return step if told else None
    return None
