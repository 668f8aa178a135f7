"""A start from the first line to the open port: SGLang's progress lines, in order, at their due times.

Runs before there is an event loop, so that signals meanwhile have their plain effect, as with SGLang.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from launchers.base import Phase
from launchers.simulated.endings import end, scheduler_exception
from launchers.simulated.faults import Hang, IgnoreSigterm, OutOfMemory, SlowLoad
from launchers.simulated.log import Log
from launchers.simulated.settings import Settings

DRAFT_LOAD = "loading draft weights"
DRAFT_CAPTURE = "draft graph capture"
#: A fault's name of a phase.
_FAULT_PHASE = {
    Phase.DISTRIBUTED_INIT.value: "distributed_init",
    Phase.LOADING_WEIGHTS.value: "load_weight",
    Phase.KV_POOL.value: "kv_pool",
    Phase.GRAPH_CAPTURE.value: "graph_capture",
}
_OUT_OF_MEMORY = {
    "load_weight": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.05 GiB.",
    # recorded from 0.5.23 with a memory fraction that was too low
    "kv_pool": (
        "ValueError: Loaded weights leave no GPU memory for the KV cache under "
        "--mem-fraction-static={fraction}. Not enough memory. Please try to increase --mem-fraction-static."
    ),
    "graph_capture": (
        "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 512.00 MiB.\n"
        "Possible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
        "2. set --cuda-graph-max-bs-decode to a smaller value (e.g., 16)"
    ),
}
#: A bar is not redrawn more often than this.
_REDRAW_S = 0.02


class Pace:
    """Simulated time of a start: seconds since `begin` are real ones times `speedup`."""

    def __init__(self, speedup: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._speedup = speedup
        self._clock = clock
        self._sleep = sleep
        self._begin_s = clock()
        #: Simulated seconds so far.
        self.now_s = 0.0

    def advance(self, seconds: float) -> None:
        """Let simulated seconds pass; what was late before is caught up."""
        self.now_s += seconds
        left = self._begin_s + self.now_s / self._speedup - self._clock()
        if left > 0:
            self._sleep(left)

    def real_s(self, seconds: float) -> float:
        """Real length of simulated seconds."""
        return seconds / self._speedup


@dataclass(frozen=True)
class StartupTime:
    """Simulated seconds of a start, as /server_info tells them."""

    load_weight_s: float
    kv_cache_allocation_s: float
    graph_s: float
    draft_graph_s: float
    scheduler_s: float
    total_s: float
    speculative: bool

    def as_info(self) -> dict[str, object]:
        """The `startup_time` object of 0.5.23."""
        return {
            "load_weight": self.load_weight_s,
            "kv_cache_allocation": self.kv_cache_allocation_s,
            "scheduler_e2e": self.scheduler_s,
            "cuda_graph": self.graphs(),
            "tokenizer_e2e": self.total_s,
        }

    def graphs(self) -> dict[str, float]:
        """Seconds by kind of graph; the drafter's are told in two equal parts."""
        half = self.draft_graph_s / 2
        return {
            "prefill": 0.0,
            "decode": 0.0 if self.speculative else self.graph_s,
            "target_verify": self.graph_s if self.speculative else 0.0,
            "draft_prefill": 0.0,
            "draft_decode": half,
            "draft_extend": half,
        }


def start(settings: Settings, log: Log, pace: Pace, import_server: Callable[[], None]) -> StartupTime:
    """Load, with every line SGLang prints. Returns when the port is to be opened; may end the process.

    `import_server` is called within the first phase: it takes its time where a real start takes more.
    """
    if isinstance(settings.fault, IgnoreSigterm):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for rewrite in settings.verdict.rewrites:
        if rewrite.log_line:
            log.line(rewrite.log_line)
    log.line(f"server_args={settings.server_arguments()}")
    seconds: dict[str, float] = {}
    for phase, length_s in settings.times.startup_phases():
        if phase == Phase.WARMUP.value:
            break
        if phase in (Phase.GRAPH_CAPTURE.value, DRAFT_CAPTURE) and not settings.graphs:
            continue
        seconds[phase] = length_s
        _begin_line(phase, settings, log)
        if phase == Phase.DISTRIBUTED_INIT.value:
            import_server()
        _trouble(phase, settings, log)
        if phase == Phase.LOADING_WEIGHTS.value:
            _load(settings, log, pace, length_s, settings.profile.startup.shards)
        elif phase == DRAFT_LOAD:
            _load(settings, log, pace, length_s, 1)
        else:
            pace.advance(length_s)
        _end_line(phase, length_s, settings, log)
    times = StartupTime(
        load_weight_s=seconds[Phase.LOADING_WEIGHTS.value] + seconds.get(DRAFT_LOAD, 0.0),
        kv_cache_allocation_s=seconds.get(Phase.KV_POOL.value, 0.0),
        graph_s=seconds.get(Phase.GRAPH_CAPTURE.value, 0.0),
        draft_graph_s=seconds.get(DRAFT_CAPTURE, 0.0),
        scheduler_s=sum(seconds.values()),
        total_s=pace.now_s,
        speculative=settings.times.speculative,
    )
    _loaded_lines(times, settings, log)
    return times


def _begin_line(phase: str, settings: Settings, log: Log) -> None:
    memory = f"avail mem={settings.profile.hardware.gpu_memory_gb:.2f} GB"
    if phase == Phase.DISTRIBUTED_INIT.value:
        log.every_rank("Init parallel begin.")
    elif phase in (Phase.LOADING_WEIGHTS.value, DRAFT_LOAD):
        log.every_rank(f"Load weight begin. {memory}")
    elif phase == Phase.GRAPH_CAPTURE.value:
        kind = "verify" if settings.times.speculative else "decode"
        log.every_rank(f"Capture target {kind} CUDA graph begin. This can take up to several minutes.")
    elif phase == DRAFT_CAPTURE:
        log.every_rank("Capture draft decode CUDA graph begin. This can take up to several minutes.")


def _end_line(phase: str, length_s: float, settings: Settings, log: Log) -> None:
    if phase == Phase.DISTRIBUTED_INIT.value:
        log.every_rank(f"Init parallel ends. elapsed={length_s:.2f} s")
    elif phase == Phase.LOADING_WEIGHTS.value:
        log.every_rank(f"Load weight end. elapsed={length_s:.2f} s, type=SimulatedForCausalLM")
    elif phase == DRAFT_LOAD:
        log.every_rank(f"Load weight end. elapsed={length_s:.2f} s, type=SimulatedForCausalLMEagle")
    elif phase == Phase.KV_POOL.value:
        for _ in range(2 if settings.times.speculative else 1):
            log.every_rank(f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {settings.engine.kv_tokens}")
            log.every_rank("Memory pool end.")
    elif phase == Phase.GRAPH_CAPTURE.value:
        kind = "verify" if settings.times.speculative else "decode"
        log.every_rank(f"Capture target {kind} CUDA graph end. elapsed={length_s:.2f} s")
    elif phase == DRAFT_CAPTURE:
        log.every_rank(f"Capture draft decode CUDA graph end. elapsed={length_s / 2:.2f} s")
        log.every_rank("Capture draft extend CUDA graph begin. This can take up to several minutes.")
        log.every_rank(f"Capture draft extend CUDA graph end. elapsed={length_s / 2:.2f} s")


def _load(settings: Settings, log: Log, pace: Pace, length_s: float, shards: int) -> None:
    """The shards' progress bar, redrawn with carriage returns on the first rank."""
    if isinstance(settings.fault, SlowLoad):
        pace.advance(settings.fault.seconds)
    begun_s, drawn_s = pace.now_s, -1.0
    for done in range(shards + 1):
        if done:
            pace.advance(length_s / shards)
        elapsed_s = pace.now_s - begun_s
        if done not in (0, shards) and pace.real_s(elapsed_s - drawn_s) < _REDRAW_S:
            continue
        drawn_s = elapsed_s
        speed = f"{done / elapsed_s:.2f}it/s" if done and elapsed_s > 0 else "?it/s"
        left = _minutes(elapsed_s * (shards - done) / done) if done else "?"
        log.raw(
            f"\rMulti-thread loading shards: {100 * done // shards:3d}% Completed | {done}/{shards} "
            f"[{_minutes(elapsed_s)}<{left}, {speed}]"
        )
    log.raw("\n")


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def _trouble(phase: str, settings: Settings, log: Log) -> None:
    """End here, or hang, where a rule of SGLang or a fault says so."""
    verdict, fault = settings.verdict, settings.fault
    refused = verdict.rejected is not None and not verdict.ours and verdict.error_text is not None
    if refused and verdict.dies_in is not None and verdict.dies_in.value == phase:
        scheduler_exception(log, str(verdict.error_text), starting=True)
        end(verdict.exit_code if verdict.exit_code is not None else -9)
    if isinstance(fault, Hang) and fault.phase == _FAULT_PHASE.get(phase):
        while True:
            time.sleep(60)
    if isinstance(fault, OutOfMemory) and fault.phase == _FAULT_PHASE.get(phase):
        fraction = settings.flags.get("mem-fraction-static", "(default)")
        scheduler_exception(log, _OUT_OF_MEMORY[fault.phase].format(fraction=fraction), starting=True)
        end(-9)


def _loaded_lines(times: StartupTime, settings: Settings, log: Log) -> None:
    engine, limits = settings.engine, settings.limits
    log.first_rank(
        f"max_total_num_tokens={engine.kv_tokens // settings.dp_ranks}, "
        f"chunked_prefill_size={engine.chunked_prefill_size or -1}, "
        f"max_prefill_tokens={engine.max_prefill_tokens}, "
        f"max_running_requests={settings.max_running_per_dp}, context_len={limits.context_length}, "
        f"available_gpu_mem={settings.profile.hardware.gpu_memory_gb:.2f} GB"
    )
    log.every_rank("Tree cache initialized: source=default impl=SimulatedRadixCache")
    graphs = ", ".join(f"{name}={seconds:.2f}" for name, seconds in times.graphs().items())
    log.line(
        f"Engine startup timings (s): load_weight={times.load_weight_s:.2f}, "
        f"kv_cache_allocation={times.kv_cache_allocation_s:.2f}, scheduler_e2e={times.scheduler_s:.2f}, "
        f"cuda_graph={{{graphs}}}, tokenizer_e2e={times.total_s:.2f}"
    )
