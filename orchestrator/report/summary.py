"""What the sweep ends with: the front, the best launch command, what was found, where the files are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from launchers.base import LaunchSpec, shell_command
from launchers.sglang.launcher import SGLangLauncher
from orchestrator.analysis.confirmation import confirmations
from orchestrator.analysis.finding import settings_text
from orchestrator.analysis.findings import findings
from orchestrator.analysis.gains import Gains
from orchestrator.analysis.rows import Row, by_trial
from orchestrator.analysis.winner import winner
from orchestrator.config import SweepConfig
from orchestrator.results.store import Results, ResultStore
from orchestrator.study_command import command_text

#: SGLang's own default port.
_PORT = 30_000

#: Why a sweep ended, for a person.
REASONS = {
    "budget": "the budget is used up",
    "exhausted": "space exhausted: every configuration of the space has been measured",
    "time": "the time budget is used up",
    "stopped": "interrupted; the same command continues",
    "failed": "the study failed",
}


def print_summary(console: Console, config: SweepConfig, store: ResultStore, results: Results, ended: str) -> None:
    """The end of a sweep, for a person."""
    rows = results.rows
    simulated = any(row.trial.simulated for row in rows)
    trials = by_trial(rows)
    console.print()
    if simulated:
        console.print(
            "SIMULATED: every figure below comes from the simulated server, none from a GPU.",
            style="bold yellow",
        )
    console.print(
        f"Study {config.study}: {len(trials)} trials. The sweep ended: {REASONS.get(ended, ended)}.",
        markup=False,
    )
    if results.pareto.points:
        console.print(_front_table(config, results, simulated))
    best = winner(trials, config.score.objective, config.limits)
    if best is not None:
        console.print(_best_line(config, trials, best), markup=False)
        info = trials[best][0].trial
        console.print(f"\n    {info.launch_command}\n", markup=False, soft_wrap=True)
        if simulated:
            spec = LaunchSpec(config.model, info.requested_flags, {k: str(v) for k, v in info.requested_env.items()})
            command = shell_command(*SGLangLauncher(Path(), python="python").command(spec, _PORT))
            console.print(f"The same settings for a real SGLang:\n\n    {command}\n", markup=False, soft_wrap=True)
    for finding in findings(rows, config.score.objective, config.limits):
        console.print(f"- {finding.text}", markup=False)
    console.print(f"\nFiles: {store.root}", markup=False)
    tables = (store.measurements_file, store.pareto_file, store.frontier_file, store.journal_file)
    console.print(f"  {', '.join(path.name for path in tables)}", markup=False)
    console.print("  trials/, requests/, counters/, logs/, study.yaml, study.db", markup=False)
    if best is not None:
        console.print(f"\nTo run it: {command_text('export', store.root)}", markup=False, soft_wrap=True)


def _best_line(config: SweepConfig, trials: Mapping[int, Sequence[Row]], best: int) -> str:
    objective = config.score.objective
    found = confirmations([row for rows in trials.values() for row in rows], objective, config.limits)
    own = next((c for c in found if c.trial == best), None)
    if own is not None:
        return f"Best by {objective.metric}: trial {best}, {own.value:,.1f} as confirmed. Launch it with"
    value = Gains([row for rows in trials.values() for row in rows], objective, config.limits).trial(trials[best])
    figure = "" if value is None else f", {value.value:,.1f}"
    if found:
        return f"Best by {objective.metric}: trial {best}{figure}: no other was confirmed to be better. Launch it with"
    return f"Best by {objective.metric}: trial {best}{figure}, unconfirmed. Launch it with"


def fixed_settings(config: SweepConfig) -> dict[str, Any]:
    """The settings that every server of the study has; variables as the text that a server gets."""
    return {**config.server.flags, **{name: str(value) for name, value in config.server.env.items()}}


def _front_table(config: SweepConfig, results: Results, simulated: bool) -> Table:
    title = "Pareto front, best of the first objective first" + (" (simulated)" if simulated else "")
    table = Table(title=title, title_justify="left")
    table.add_column("trial", justify="right")
    for objective in config.objectives:
        table.add_column(str(objective.metric), justify="right")
    table.add_column("settings", overflow="fold")
    sign = -1 if config.objectives[0].direction == "maximize" else 1
    for point in sorted(results.pareto.points, key=lambda p: (sign * p.values[0], p.row.trial.trial)):
        trial = point.row.trial
        name = f"{trial.trial} (baseline)" if trial.role == "baseline" else str(trial.trial)
        settings = escape(settings_text(point.row, fixed_settings(config)))
        table.add_row(name, *(f"{value:,.1f}" for value in point.values), settings)
    return table
