"""Faults of a running server: what happens once enough requests have begun."""

from __future__ import annotations

from launchers.simulated.endings import end, scheduler_exception
from launchers.simulated.engine import Engine
from launchers.simulated.faults import Crash, FaultConfig, Hang, OutOfMemory
from launchers.simulated.log import Log

_RUNTIME_OUT_OF_MEMORY = (
    "RuntimeError: Decode out of memory. Try to lower your batch size.\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB."
)
_CRASH = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"


class Trouble:
    """Asked before every engine step; counts requests of clients (warm-up and health checks do not count)."""

    def __init__(
        self,
        fault: FaultConfig | None,
        log: Log,
        *,
        settle_s: float,
        watchdog_s: float,
        warmup_error: str | None = None,
    ) -> None:
        self._fault = fault
        self._log = log
        self._settle_s = settle_s
        self._watchdog_s = watchdog_s
        #: A configuration that SGLang dies of at its first request.
        self._warmup_error = warmup_error
        self._begun = 0

    def began(self) -> None:
        """A client's request came in."""
        self._begun += 1

    def before_step(self, engine: Engine) -> bool:
        """End the process, say False for a hang, or True."""
        # the first draft comes after the first prefill
        if self._warmup_error is not None and engine.running:
            scheduler_exception(self._log, self._warmup_error, starting=False, settle_s=self._settle_s)
            end(-9)
        fault = self._fault
        if not isinstance(fault, Crash | Hang | OutOfMemory) or self._begun == 0:
            return True
        if self._begun < fault.after_requests:
            return True
        if isinstance(fault, Hang):
            return fault.phase != "running"
        if isinstance(fault, Crash):
            scheduler_exception(self._log, _CRASH, starting=False, settle_s=self._settle_s)
            end(fault.exit_code)
        if fault.phase == "running":
            scheduler_exception(self._log, _RUNTIME_OUT_OF_MEMORY, starting=False, settle_s=self._settle_s)
            end(-9)
        return True

    def watchdog_fired(self) -> None:
        """A hang lasted `--watchdog-timeout`: SGLang's own watchdog ends the server."""
        self._log.every_rank(
            f"Scheduler watchdog timeout (self.watchdog_timeout={self._watchdog_s:g}, self.soft=False)"
        )
        self._log.line("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        end(-9)
