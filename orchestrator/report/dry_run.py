"""What a sweep would do, without starting anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console

from launchers.base import Launcher, LaunchSpec, shell_command
from launchers.sglang.inert import inert_knobs
from orchestrator.config import SweepConfig
from orchestrator.price import confirmation_cost, level_s, start_min, trial_s
from orchestrator.prompts import prompt_warnings
from orchestrator.report.view import clock
from orchestrator.search.candidate import Candidate, Configurations
from orchestrator.search.repeats import RepeatPlan, plan_repeats
from orchestrator.search.space import Knob
from orchestrator.search.study import Study

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
        out(f"Cost of this simulated run: {_plan(config).launches} starts, minutes on this machine.")
    out(_repeats(config))
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
    """Starts and node-hours: each trial is one start and one walk over the ladder, but for the confirmation's."""
    ladder = config.workload.ladder
    plan = _plan(config)
    whole, short = trial_s(config, len(ladder)), trial_s(config, len(config.confirmation_ladder))
    full = plan.launches - plan.confirmations
    low, high = ((full * a + plan.confirmations * b) / 3600 for a, b in zip(whole, short, strict=True))
    minutes, seconds = start_min(config), level_s(config)
    text = (
        f"{plan.launches} starts at most, {full} of them measuring {len(ladder)} levels "
        f"({', '.join(load.text for load in ladder)}): {low:.1f} to {high:.1f} node-hours, at {minutes[0]:g} to "
        f"{minutes[1]:g} min a start and {seconds[0]:g} to {seconds[1]:g} s a level, warm-up included."
    )
    if config.budget.time_s is not None:
        text += f" The time budget ends it after {clock(config.budget.time_s)}."
    return text


def _plan(config: SweepConfig) -> RepeatPlan:
    return plan_repeats(config.repeats, config.budget.trials, confirmation_cost(config))


def _repeats(config: SweepConfig) -> str:
    """What the starts beyond the search are, what they cost, and what was asked for beyond that."""
    wanted, plan = config.repeats, _plan(config)
    parts = []
    if plan.aa:
        parts.append(f"{plan.aa} A/A start{'s' if plan.aa > 1 else ''} of the baseline")
    if plan.sentinels:
        parts.append(f"a sentinel (the baseline again) after candidates {', '.join(map(str, plan.sentinels))}")
    if plan.rounds:
        names = "finalist" if plan.finalists == 1 else f"{plan.finalists} finalists"
        loads = ", ".join(load.text for load in config.confirmation_ladder)
        also = ", those of the score and the constraints" if len(config.confirmation_ladder) > 1 else ""
        parts.append(
            f"a confirmation of {plan.rounds} rounds, the baseline and {names} each started afresh and measured at "
            f"{loads}{also}"
        )
    trials = config.budget.trials
    if not parts:
        text = f"none: {100 * wanted.share:g} % of {trials} trials pays for no repeat. The winner will be unconfirmed"
    else:
        text = (
            f"{plan.searched} of {trials} trials are the search; {plan.cost:.1f} trials' worth of node-hours "
            f"({100 * plan.cost / trials:.0f} %, at most {100 * wanted.share:g} %) go to {'; '.join(parts)}"
        )
    short = plan.finalists < wanted.finalists or plan.rounds < wanted.starts or plan.aa < wanted.aa
    if short and wanted.share:
        text += (
            f". Asked for: {wanted.finalists} finalists, {wanted.starts} rounds, {wanted.aa} A/A; a larger "
            "budget.trials or repeats.share pays for them"
        )
    return f"Repeats: {text}."


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
