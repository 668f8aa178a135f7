"""Where an exported setting comes from: lines for a comment. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from orchestrator.analysis.comparisons import number
from orchestrator.analysis.objectives import Metric
from orchestrator.analysis.rows import Row
from orchestrator.export.choice import Choice
from orchestrator.kept_study import KeptStudy

#: In the first lines of everything that is written, so that only our own files are overwritten.
MARK = "Written by sglang-orchestrator"
#: Variables that tell something of how a server ran.
_TELLING = ("NCCL_", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_", "OMP_NUM_THREADS")


def comment(lines: tuple[str, ...], sign: str = "# ") -> str:
    """The lines as a comment: nothing in them can leave it."""
    return "".join(f"{sign}{part}".rstrip() + "\n" for line in lines for part in (line.splitlines() or [""]))


def provenance(study: KeptStudy, choice: Choice, twin: bool) -> Iterator[str]:
    """Study, trial, why it was chosen, what was measured of it and on what; `twin`: the simulated server is started."""
    config, first = study.config, choice.rows[0]
    role = " (the baseline)" if choice.baseline else ""
    yield f"{MARK}: trial {choice.trial}{role} of the study {config.study}, id {study.study_id}."
    if first.trial.simulated:
        yield (
            f"SIMULATED: every figure below comes from a simulated server (profile {first.trial.profile}), none from "
            "a GPU."
        )
        if not twin:
            yield "What is started is a real SGLang, which these settings were not measured on."
    yield choice.why
    yield from choice.findings
    yield ""
    yield f"Model: {config.model}"
    yield f"GPUs: {_gpus(first)}"
    yield f"Versions: {', '.join(f'{name} {version}' for name, version in sorted(first.start.versions.items()))}"
    yield from _when(choice)
    yield from (f"  {_figures(row)}" for row in choice.rows if row.level)
    if first.trial.launch_command:
        yield f"Command: {first.trial.launch_command}"
    beside = {
        name: value
        for name, value in first.start.server_environment.items()
        if name.startswith(_TELLING) and name not in first.trial.requested_env
    }
    if beside:
        told = ", ".join(f"{name}={value}" for name, value in sorted(beside.items()))
        yield f"Its processes had these too, from the node or set by SGLang itself, and they are not set here: {told}"


def _when(choice: Choice) -> Iterator[str]:
    moments = [row.level.measured_at for row in choice.rows if row.level]
    if not moments:
        return
    first, last = min(moments), max(moments)
    until = f"{last:%H:%M}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M}"
    starts = len({row.start.start_id for row in choice.rows if row.level})
    on = "one start" if starts == 1 else f"{starts} starts"
    yield f"Measured {first:%Y-%m-%d %H:%M} to {until} UTC, on {on} (± is half of the 95 % interval within it):"


def _gpus(row: Row) -> str:
    if not row.trial.gpus:
        return "none, it ran on the CPUs"
    names = Counter(row.start.gpu_names[: row.trial.gpus])
    kinds = ", ".join(names) or "of an unknown kind"
    return f"{row.trial.gpus} x {kinds}{' (pretended)' if row.trial.simulated else ''}"


def _figures(row: Row) -> str:
    level = row.level
    assert level is not None
    rate, half = level.metrics.output_tokens_per_s, level.metrics.output_tokens_per_s_half_width
    unit = "simulated tok/s" if row.trial.simulated else "tok/s"
    parts = []
    if rate is not None:
        parts.append(f"{number(rate)}{'' if half is None else f' ± {number(half)}'} {unit}")
    for name, stat, label in (("ttft_ms", "p99", "TTFT p99"), ("tpot_ms", "mean", "TPOT mean")):
        value = row.figure(Metric(name, stat, level.load.first))
        if value is not None:
            parts.append(f"{label} {value:,.1f} ms")
    if level.metrics.accept_length is not None:
        parts.append(f"accept length {level.metrics.accept_length:.2f}")
    if level.invalid_reason:
        parts.append(f"not comparable: {level.invalid_reason}")
    return f"{level.load.label}: {', '.join(parts) or 'nothing was measured'}"
