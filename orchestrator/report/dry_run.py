"""What a sweep would do, without starting anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console

from launchers.base import Launcher, LaunchSpec, shell_command
from launchers.sglang.inert import inert_knobs
from orchestrator.config import SweepConfig
from orchestrator.prompts import prompt_warnings
from orchestrator.report.progress import clock
from orchestrator.search.candidate import Candidate, Configurations
from orchestrator.search.space import Knob
from orchestrator.search.study import Study

#: What a start of a model of hundreds of gigabytes takes on eight GPUs, minutes (reported: 5 to 10).
_START_MIN = (5, 10)
#: And of a tiny one on two CPU cores (0.3 to 0.5 seen).
_CPU_START_MIN = (0.3, 1)
_PORT = 30_000


def print_dry_run(
    console: Console,
    config: SweepConfig,
    written: SweepConfig,
    launcher: Launcher,
    study: Study,
    nvlink: bool | None = None,
    warnings: Sequence[str] = (),
) -> None:
    """Parameters with their conditions, the size of the space, the price, the first three commands.

    `written` is the file without its `simulated:` block: what real GPUs would be asked for. `study` is in
    memory: its draws are those of the sweep until results steer the sampler. `nvlink`: whether the GPUs are all
    joined by NVLink, None where that is not known. `warnings`: what else is to be known of the prompts.
    """

    def out(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    configurations = study.configurations
    kind = "SIMULATED" if launcher.simulated else "SGLang"
    out(f"Study {config.study}: {config.model} on {_node(config)}, {kind}")
    out("\nParameters")
    for knob in configurations.space.knobs:
        out(f"  {describe(knob)}")
    inert = inert_knobs(*configurations.values(), nvlink=nvlink)
    if inert:
        out("\nKnobs that cannot act here, or act little")
        for sentence in inert:
            out(f"  {sentence}")
    warnings = (*prompt_warnings(config.workload, configurations.values()[0]), *warnings)
    if warnings:
        out("\nWarnings")
        for sentence in warnings:
            out(f"  {sentence}")
    out(f"\n{_size(configurations)}")
    out(f"Cost{' on real GPUs' if written.node.gpus else ''}: {_price(written)}")
    if launcher.simulated:
        out(f"Cost of this simulated run: {config.budget.trials} starts, minutes on this machine.")
    out("\nThe first three trials")
    baseline = configurations.baseline()
    _show(out, 0, "baseline", baseline, config, launcher)
    study.ask_baseline()
    for _ in range(2):
        trial = study.ask()
        if trial is None:
            break
        _show(out, trial.ordinal, "candidate", trial.candidate, config, launcher)


def describe(knob: Knob) -> str:
    """`speculative-num-steps (flag): 1 to 10, when speculative-algorithm is EAGLE3`."""
    parameter = knob.parameter
    if parameter.choices is not None:
        values = ", ".join("(left out)" if c is None else str(c) for c in parameter.choices)
    else:
        low, high = parameter.int_range or parameter.float_range or (0, 0)
        step = f" in steps of {parameter.step}" if parameter.step else ""
        values = f"{low} to {high}{step}{', log scale' if parameter.log else ''}"
    conditions = [f"{name} is {_allowed(wanted)}" for name, wanted in parameter.when.items()]
    when = f", when {' and '.join(conditions)}" if conditions else ""
    return f"{knob.name} ({'flag' if knob.target == 'flags' else 'environment'}): {values}{when}"


def _allowed(wanted: object) -> str:
    values = wanted if isinstance(wanted, list) else [wanted]
    return " or ".join("left out" if v is None else str(v) for v in values)


def _size(configurations: Configurations) -> str:
    if not configurations.space.enumerable:
        names = [k.name for k in configurations.space.knobs if k.choices is None]
        return f"The space is continuous in {', '.join(names)}: its configurations cannot be counted."
    points, distinct, whole = configurations.space.count(configurations.identity)
    if not whole:
        return f"The space holds more than {points:,} points; {distinct:,} distinct configurations among as many."
    others = f" ({points:,} points; the others are the same server again, or one that SGLang refuses)"
    return f"The space holds {distinct:,} distinct configurations{'' if points == distinct else others}."


def _node(config: SweepConfig) -> str:
    return f"{config.node.gpus} GPUs" if config.node.gpus else "CPUs"


def _price(config: SweepConfig) -> str:
    """Starts and node-hours: each trial is one start and one walk over the ladder."""
    start_min = _START_MIN if config.node.gpus else _CPU_START_MIN
    trials, ladder = config.budget.trials, config.workload.concurrency
    # The warm-up has a bound of its own, as long as the measured part's.
    shortest, longest = config.workload.level.min_s, 2 * config.workload.level.max_s
    low, high = (
        trials * (minutes * 60 + len(ladder) * level_s) / 3600
        for minutes, level_s in zip(start_min, (shortest, longest), strict=True)
    )
    text = (
        f"{trials} starts at most, each measuring {len(ladder)} levels ({', '.join(map(str, ladder))}): "
        f"{low:.1f} to {high:.1f} node-hours, at {start_min[0]:g} to {start_min[1]:g} min a start and "
        f"{shortest:g} to {longest:g} s a level, warm-up included."
    )
    if config.budget.time_s is not None:
        text += f" The time budget ends it after {clock(config.budget.time_s)}."
    return text


def _show(
    out: Callable[[str], None],
    ordinal: int,
    role: str,
    candidate: Candidate,
    config: SweepConfig,
    launcher: Launcher,
) -> None:
    spec = LaunchSpec(config.model, candidate.flags, candidate.env, config.node.gpus)
    out(f"  trial {ordinal} ({role}), identity {candidate.identity}")
    out(f"    {shell_command(*launcher.command(spec, _PORT))}")
