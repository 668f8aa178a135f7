"""The commands to launch a setting with."""

from __future__ import annotations

from pathlib import Path

from launchers.base import LaunchSpec, shell_command
from launchers.sglang.launcher import SGLangLauncher
from orchestrator.report.page.view import View

#: SGLang's own default port.
_PORT = 30_000


def launch_commands(view: View, trial: int) -> list[tuple[str, str]]:
    """What each is for, and the line to paste into a shell; of a simulated study that of a real SGLang as well."""
    info = view.trials[trial][0].trial
    found = []
    if info.launch_command:
        found.append(("The simulated server" if info.simulated else "The server", info.launch_command))
    if info.simulated:
        spec = LaunchSpec(view.config.model, info.requested_flags, {k: str(v) for k, v in info.requested_env.items()})
        argv, env = SGLangLauncher(Path(), python="python").command(spec, _PORT)
        # Of whatever machine it is pasted on, not of this one.
        found.insert(0, ("A real SGLang with the same settings", shell_command(["python", *argv[1:]], env)))
    return found
