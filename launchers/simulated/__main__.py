"""`python -m launchers.simulated --profile NAME --startup-speedup X <SGLang flags>`."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence

from launchers.base import Phase
from launchers.simulated.arguments import parse_arguments
from launchers.simulated.endings import refuse
from launchers.simulated.faults import Refusal
from launchers.simulated.log import Log
from launchers.simulated.profile import load_profile
from launchers.simulated.settings import VERSION, resolve
from launchers.simulated.startup import Pace, start


def main(argv: Sequence[str]) -> int:
    """Run one simulated server to its end. The exit code, where it is not ended by a signal."""
    # as SGLang while it loads: both signals simply end the process
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        arguments = parse_arguments(argv)
    except (ValueError, OSError):
        # The traceback and exit code 1, as SGLang.
        traceback.print_exc()
        return 1
    try:
        profile = load_profile(arguments.profile)
        settings = resolve(arguments, profile, os.environ)
    except ValueError as error:
        print(f"python -m launchers.simulated: error: {error}", file=sys.stderr)
        return 2
    log = Log(sys.stderr, settings.ranks())
    log.line(
        f"SIMULATED SERVER: no model is served and no figure is measured. Profile {profile.name}, "
        f"a digital twin of SGLang {VERSION}, start shortened {arguments.startup_speedup:g} times."
    )
    if isinstance(settings.fault, Refusal):
        refuse(log, settings.fault.text, settings.fault.exit_code)
    verdict = settings.verdict
    if verdict.rejected and not verdict.ours and verdict.dies_in in (None, Phase.SPAWNED):
        for rewrite in verdict.rewrites:
            if rewrite.log_line:
                log.line(rewrite.log_line)
        refuse(log, verdict.error_text or verdict.rejected, verdict.exit_code or 1)
    log.line(f"server_args={settings.server_arguments()}")
    pace = Pace(arguments.startup_speedup, time.monotonic, time.sleep)
    startup = start(settings, log, pace, _import_server)
    import asyncio

    from launchers.simulated.lifecycle import serve

    return asyncio.run(serve(settings, startup, log))


def _import_server() -> None:
    import launchers.simulated.lifecycle  # noqa: F401  (aiohttp takes a third of a second)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
