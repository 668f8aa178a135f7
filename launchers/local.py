"""Starting a server on this node and waiting until it answers. SGLang and its twin differ in their command only."""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import sys
import tempfile
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from launchers.base import Launcher, LaunchSpec, OnProgress, Phase, ShouldStop, StartProgress
from launchers.command import CONFIG_NAME, config_text, private_words
from launchers.dialect import Dialect
from launchers.environment import for_interpreter, node_environment, started_with
from launchers.errors import CannotRun, LaunchError, NotStopped, PortTaken
from launchers.facts import FactsReader
from launchers.identity import Identity
from launchers.local_server import LocalServer, Start, server_info
from launchers.ports import PortBlock, Ports
from launchers.private import make_folder, remove_folder
from launchers.process import RUN_MARKER, STUDY_MARKER, OwnedProcess
from launchers.secrets import secret_values, spellings
from launchers.usage import Looker
from launchers.watch import StartLimits, StartWatch

_PORT_TRIES = 3
#: Of this process: two launchers do not race for the same port.
_PORTS = Ports()
#: A start that failed has nothing to drain.
_FAILED_GRACE_S = 5.0


def new_key() -> str:
    """A key for one start. Hexadecimal: one that begins with a dash would be taken for a flag."""
    return secrets.token_hex(24)


class LocalLauncher(Launcher):
    """Starts a command on this node, behind a guard, on free ports."""

    def __init__(
        self,
        log_folder: Path,
        dialect: Dialect,
        *,
        startup_timeout_s: float,
        stall_s: float = 600.0,
        stall_s_by_phase: Mapping[str, float] | None = None,
        hang_s: float = 90.0,
        stop_grace_s: float = 90.0,
        clock: Callable[[], float] = time.monotonic,
        key: Callable[[], str] = new_key,
    ) -> None:
        """`startup_timeout_s` is the deadline of one start, by `clock`; `stop_grace_s` lies between TERM and KILL.

        `stall_s` is how long nothing of a start may move, in each phase that `stall_s_by_phase` does not name;
        `hang_s` how long a ready server may answer nothing and not move; `key` makes the key of each start.
        """
        self.log_folder = log_folder
        self._dialect = dialect
        self._limits = StartLimits(startup_timeout_s, stall_s, stall_s_by_phase or {})
        self._hang_s = hang_s
        self._stop_grace_s = stop_grace_s
        self._clock = clock
        self._key = key

    @abstractmethod
    def interpreter(self) -> str:
        """Path of the interpreter that runs the server. Raises CannotRun where there is none."""

    def own_environment(self) -> dict[str, str]:
        """Variables that this launcher needs, beyond those of the trial."""
        return {}

    def gpu_environment(self, spec: LaunchSpec, node: Mapping[str, str]) -> dict[str, str]:
        """Which of the GPUs that the node shows the server shall see. Raises CannotRun where it cannot have them."""
        return {}

    def inherited_environment(self) -> dict[str, str]:
        """What every server gets before the trial's variables: the node's, for the server's interpreter."""
        node = node_environment(os.environ, started_with())
        return for_interpreter(node, self.interpreter(), sys.executable) | self.own_environment()

    @abstractmethod
    def startup_s(self, info: Mapping[str, Any], wall_s: Mapping[str, float]) -> dict[str, float]:
        """Seconds of each phase to store, from /server_info and the wall clock's seconds by phase."""

    def launch(self, spec: LaunchSpec, on_progress: OnProgress, should_stop: ShouldStop) -> LocalServer:
        """Start a server and wait until it has answered a generation.

        A port that is taken is nobody's fault: another one is tried, three times in all; the phases then
        begin anew.
        """
        for _ in range(_PORT_TRIES - 1):
            with contextlib.suppress(PortTaken):
                return self._launch(spec, on_progress, should_stop)
        return self._launch(spec, on_progress, should_stop)

    def _launch(self, spec: LaunchSpec, on_progress: OnProgress, should_stop: ShouldStop) -> LocalServer:
        start = self._spawn(spec, uuid.uuid4().hex[:12])
        process = start.process

        def progressed(progress: StartProgress) -> None:
            if progress.phase is not Phase.SPAWNED:
                # It is read with the arguments, before anything else.
                start.config.unlink(missing_ok=True)
            on_progress(progress)

        try:
            with Looker(process.members, gpus=spec.gpus > 0 and not self.simulated) as look:
                watch = StartWatch(
                    process,
                    start.identity,
                    self._dialect,
                    progressed,
                    should_stop,
                    limits=self._limits,
                    clock=self._clock,
                    look=look,
                    facts=start.facts,
                )
                wall_s = watch.until_ready()
            phase_s = self.startup_s(server_info(start.url, start.identity.api_key, start.secrets), wall_s)
            return LocalServer(start, self._dialect, phase_s, self.simulated, self._hang_s)
        except BaseException as error:
            report = start.stop(_FAILED_GRACE_S)
            if report.survivors:
                raise NotStopped(
                    f"processes {list(report.survivors)} of a failed start ({error}) do not die, so the node "
                    "cannot be used",
                    hint="stop them by hand, or restart the machine",
                    phase=getattr(error, "phase", Phase.SPAWNED),
                    exit_code=report.exit_code,
                ) from error
            if isinstance(error, LaunchError):
                raise error.logged_in(process.log.name) from error.__cause__
            raise

    def _spawn(self, spec: LaunchSpec, start_id: str) -> Start:
        """The running process. Raises a LaunchError."""
        env = self.inherited_environment()
        log = self._new_log(start_id)
        try:
            ports = _PORTS.take()
        except OSError as error:
            raise PortTaken(str(error)) from error
        try:
            return self._run(spec, start_id, env, log, ports)
        except BaseException:
            ports.release()
            raise

    def _run(self, spec: LaunchSpec, start_id: str, env: dict[str, str], log: Path, ports: PortBlock) -> Start:
        argv, variables = self.command(spec, ports.http)
        gpus = self.gpu_environment(spec, env)
        identity = Identity(f"sweep-{start_id}", self._key())
        try:
            private = make_folder(spec.study_marker, spec.run_marker, start_id)
        except OSError as error:
            raise CannotRun(f"no private folder can be made: {error}", hint="make room, or set TMPDIR") from error
        config = private / CONFIG_NAME
        uses_gpus = spec.gpus > 0 and not self.simulated
        facts = FactsReader(f"{STUDY_MARKER}={spec.study_marker}", gpus=uses_gpus)
        try:
            _write_private(config, config_text(identity))
            # SGLang 0.5.23 leaves ten sockets among the temporary files, after a clean end too.
            env = {**_kept_cache(), **env, "TMPDIR": str(private), **gpus, **variables, **_MARKED}
            env |= {STUDY_MARKER: spec.study_marker, RUN_MARKER: spec.run_marker}
            hidden = secret_values(env) | {identity.api_key}
            process = OwnedProcess(
                [*argv, *private_words(spec, identity, ports.nccl, config)],
                env,
                log,
                start_id,
                ports.http,
                self._stop_grace_s,
                folder=spec.folder if spec.folder is not None and spec.folder.is_dir() else None,
                secrets=spellings(hidden),
                private=private,
                more_ports=(ports.nccl,),
                uses_gpus=uses_gpus,
            )
        except OSError as error:
            remove_folder(private)
            raise CannotRun(f"{argv[0]} cannot be run: {error}", hint="check launcher.python") from error
        return Start(start_id, process, identity, ports, config, hidden, facts)

    def _new_log(self, start_id: str) -> Path:
        log = self.log_folder / f"{start_id}.log"
        try:
            self.log_folder.mkdir(parents=True, exist_ok=True)
            log.touch()
        except OSError as error:
            raise CannotRun(
                f"the server's log cannot be written: {error}", hint="make room or check the folder's rights"
            ) from error
        return log

    @property
    def startup_timeout_s(self) -> float:
        """The deadline of one start."""
        return self._limits.deadline_s


#: setproctitle writes a title over the environment that marks a process as ours; with this it does not.
_MARKED = {"SPT_NOENV": "1"}


def _kept_cache() -> dict[str, str]:
    """Inductor's cache lies among the temporary files: it stays where torch has it, for the next start to find."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = f"uid_{os.getuid()}"
    return {"TORCHINDUCTOR_CACHE_DIR": str(Path(tempfile.gettempdir(), f"torchinductor_{user}"))}


def _write_private(file: Path, text: str) -> None:
    """A file that only this user can read, from its first moment on."""
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)
