"""Logs with their cause: recorded from SGLang 0.5.23, and made after public reports and its sources."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from launchers.base import Phase
from launchers.errors import (
    BadArgument,
    CudaError,
    DiskFull,
    GpuBusy,
    GpuBusyByOther,
    GpuBusyByOurs,
    InvalidCombination,
    KilledFromOutside,
    LaunchError,
    ModelUnavailable,
    NcclAlgorithm,
    NcclNvls,
    NcclTimeout,
    NcclUnknown,
    OutOfHostMemory,
    OutOfKVCache,
    OutOfMemory,
    PortTaken,
    ServerCrashed,
    SharedMemoryFull,
    UnequalGpus,
    UnknownFailure,
    Unsupported,
    WatchdogHang,
)
from launchers.facts import UNKNOWN, GpuHolder, NodeFacts

LOGS = Path(__file__).parents[1] / "data" / "logs"


@dataclass(frozen=True)
class Case:
    """A log, and what is to be made of it."""

    name: str
    log: str
    exit_code: int | None
    phase: Phase
    kind: type[LaunchError]
    #: A part of the first decisive line.
    line: str = ""
    hint: str = ""
    detail: str | None = None
    facts: NodeFacts = UNKNOWN

    def __str__(self) -> str:
        return self.name


def _recorded(
    name: str,
    exit_code: int,
    phase: Phase,
    kind: type[LaunchError],
    line: str,
    hint: str = "",
    detail: str | None = None,
) -> Case:
    return Case(name, (LOGS / f"{name}.log").read_text(), exit_code, phase, kind, line, hint, detail)


RECORDED = [
    _recorded("fail_badflag", 2, Phase.SPAWNED, BadArgument, "unrecognized arguments: --no-such-flag 3"),
    _recorded("fail_badint", 2, Phase.SPAWNED, BadArgument, "--max-running-requests: invalid int value: 'abc'"),
    _recorded("fail_badvalue", 2, Phase.SPAWNED, BadArgument, "--attention-backend: invalid choice: 'nonsense'"),
    _recorded("spec_badalgo", 1, Phase.SPAWNED, BadArgument, "Unknown speculative algorithm name: FOO"),
    _recorded("spec_partial", 1, Phase.SPAWNED, InvalidCombination, "TypeError: '>' not supported"),
    _recorded("spec_toomany", -9, Phase.WARMUP, InvalidCombination, "selected index k out of range"),
    _recorded("fail_nomodel", 1, Phase.SPAWNED, ModelUnavailable, "'/models/nope'", detail="missing"),
    _recorded("model_offline", 1, Phase.SPAWNED, ModelUnavailable, "Cannot find the requested files", detail="missing"),
    _recorded("draft_missing", 1, Phase.SPAWNED, ModelUnavailable, "'/models/no-drafter'", detail="missing"),
    _recorded("oom_frac", -9, Phase.KV_POOL, OutOfMemory, "leave no GPU memory", hint="raise", detail="raise"),
    _recorded("bad_tp", -9, Phase.DISTRIBUTED_INIT, InvalidCombination, "SGLANG_CPU_OMP_THREADS_BIND is not set"),
    _recorded("fail_port", -9, Phase.WARMUP, PortTaken, "('127.0.0.1', 30010): address already", detail="http"),
    _recorded("B_sameport", 3, Phase.WARMUP, PortTaken, "('127.0.0.1', 30020): address already", detail="http"),
    _recorded("nccl_port_taken", -9, Phase.DISTRIBUTED_INIT, PortTaken, "name: EADDRINUSE", detail="nccl"),
    _recorded("scheduler_killed", -9, Phase.READY, KilledFromOutside, "crashed with exit code -9", hint="dmesg"),
    _recorded("scheduler_bus", 1, Phase.LOADING_WEIGHTS, SharedMemoryFull, "(exit code: -7)", hint="/dev/shm"),
    *(
        _recorded(name, code, Phase.READY, KilledFromOutside, line, hint="someone else stopped it")
        for name, code, line in (
            ("sigint", -2, "KeyboardInterrupt"),
            ("small", 0, "SIGTERM received"),
            ("tp2", 0, "SIGTERM received"),
            ("dp2", 0, "SIGTERM received"),
            ("spec_eagle", 0, "SIGTERM received"),
        )
    ),
]

_SIGQUIT = "[2026-11-30 16:31:13] Received sigquit from a child process. It usually means the child failed.\n"
_HIT = "[2026-11-30 16:31:13 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
_UNBALANCED = (
    "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
    "pre_model_load_memory=60.1, local_gpu_memory=139.0, local_gpu_memory * 0.9=125.1\n"
)
_CAPTURE = (
    "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 448.00 MiB. GPU 7 has a total "
    "capacity of 139.80 GiB\nPossible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
    "2. set --cuda-graph-max-bs-decode to a smaller value (e.g., 16)\n"
    "3. disable cuda graph by --disable-cuda-graph. (Not recommended. Huge performance loss)\n"
)
_NVLS = (
    "m:17:90 [7] transport/nvls.cc:254 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 "
    ": CUDA error 401 'the operation cannot be performed in the present state'\n"
)
_NCCL = "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)\n"
_PYSPY = "Pyspy failed to dump PID 4242. Error: /bin/bash: line 1: py-spy: command not found\n"
OURS, THEIRS = GpuHolder(31, ours=True), GpuHolder(77, ours=False)

REPORTED = [
    # ---- arguments
    Case(
        "P04a a flag of another version",
        "usage: launch_server.py [-h] --model-path MODEL_PATH\n"
        "                        [--x CUDA out of memory. Tried EADDRINUSE]\n"
        "launch_server.py: error: unrecognized arguments: --reasoning_parser kimi_k2\n",
        2,
        Phase.SPAWNED,
        BadArgument,
        "--reasoning_parser kimi_k2",
        "correct the flag",
    ),
    Case(
        "P04b topk with pages",
        "ValueError: speculative_eagle_topk > 1 with page_size > 1 is unstable and produces incorrect results for "
        "paged attention backends.\n",
        1,
        Phase.SPAWNED,
        InvalidCombination,
        "speculative_eagle_topk > 1",
        "keep these values apart",
    ),
    Case(
        "P04c topk with trtllm_mha",
        "ValueError: trtllm_mha backend only supports topk = 1 for speculative decoding.\n",
        1,
        Phase.SPAWNED,
        InvalidCombination,
        "topk = 1",
    ),
    Case(
        "an abbreviated flag",
        "launch_server.py: error: ambiguous option: --cuda-graph-max-bs could match --cuda-graph-max-bs-decode\n",
        2,
        Phase.SPAWNED,
        BadArgument,
        "ambiguous option",
    ),
    Case(
        "chunks and pages",
        "AssertionError: chunked_prefill_size must be divisible by page_size\n",
        1,
        Phase.SPAWNED,
        InvalidCombination,
    ),
    Case(
        "cached weights with speculation",
        "ValueError: --weight-cache-mode is not supported together with speculative decoding\n",
        1,
        Phase.SPAWNED,
        InvalidCombination,
    ),
    Case(
        "topk on an MLA model",
        _HIT + "ValueError: Currently Flashinfer MLA only supports topk=1 for speculative decoding\n" + _SIGQUIT,
        -9,
        Phase.KV_POOL,
        InvalidCombination,
    ),
    Case(
        "more ranks than GPUs",
        _HIT + "torch.AcceleratorError: CUDA error: invalid device ordinal\n" + _SIGQUIT,
        -9,
        Phase.DISTRIBUTED_INIT,
        InvalidCombination,
        hint="lower tp-size",
    ),
    # ---- models
    Case(
        "a gated model",
        "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: x)\n\nCannot access gated repo for url "
        "https://huggingface.co/api/models/m.\n\nThe above exception was the direct cause:\n\nTraceback (most recent "
        "call last):\nOSError: You are trying to access a gated repo.\nMake sure to have access to it\n",
        1,
        Phase.SPAWNED,
        ModelUnavailable,
        hint="licence",
        detail="gated",
    ),
    Case(
        "a model with code of its own",
        "ValueError: The repository m contains custom code which must be executed to correctly load the model. Please "
        "pass the argument `trust_remote_code=True` to allow custom code to be run.\n",
        1,
        Phase.SPAWNED,
        ModelUnavailable,
        hint="trust-remote-code",
        detail="code",
    ),
    Case(
        "a folder without weights",
        _HIT + "RuntimeError: Cannot find any model weights with `/models/m`\n" + _SIGQUIT,
        -9,
        Phase.LOADING_WEIGHTS,
        ModelUnavailable,
        detail="missing",
    ),
    Case(
        "an unknown architecture",
        _HIT + "ValueError: Model architectures ['NewForCausalLM'] are not supported for now. Supported "
        "architectures: dict_keys(['LlamaForCausalLM'])\n" + _SIGQUIT,
        -9,
        Phase.LOADING_WEIGHTS,
        Unsupported,
        "NewForCausalLM",
    ),
    Case(
        "a model that feeds no EAGLE3 drafter",
        _HIT + "ValueError: Model X does not implement set_eagle3_layers_to_capture, which EAGLE3 needs.\n" + _SIGQUIT,
        -9,
        Phase.LOADING_WEIGHTS,
        Unsupported,
        hint="EAGLE3",
    ),
    Case(
        "a backend for other GPUs",
        _HIT + "AssertionError: FlashAttention v3 Backend requires SM>=80 and SM<=90. Please use fa4.\n" + _SIGQUIT,
        -9,
        Phase.KV_POOL,
        Unsupported,
        hint="another backend",
    ),
    Case(
        "a kernel for other GPUs",
        _HIT + "RuntimeError: TllmGenFmhaRunner not found: Unsupported architecture\n" + _SIGQUIT,
        -9,
        Phase.GRAPH_CAPTURE,
        Unsupported,
    ),
    Case(
        "a backend for another generation of GPUs",
        "Traceback (most recent call last):\n    server_args.resolve_once()\nValueError: TRTLLM MHA backend is only "
        "supported on Blackwell GPUs (SM100). Please use a different backend.\n",
        1,
        Phase.SPAWNED,
        Unsupported,
        "SM100",
    ),
    Case(
        "an older release's scheduler",
        "[2026-11-30 16:31:13 TP0] Traceback (most recent call last):\nRuntimeError: Some trouble in the first rank\n\n"
        "[2026-11-30 16:31:13 TP1] Traceback (most recent call last):\nException: Capture cuda graph failed: "
        "[pair.cc:534] Connection closed by peer\n" + _SIGQUIT,
        -9,
        Phase.GRAPH_CAPTURE,
        UnknownFailure,
        "Some trouble in the first rank",
    ),
    Case(
        "an unknown NCCL failure looked into",
        "m:17:90 [0] NCCL INFO NVLS multicast support is available on dev 0 (error handling on)\n"
        "m:17:90 [0] NCCL INFO Allocated 5767524 bytes of shared memory in /dev/shm/nccl-1a2b\n" + _HIT + _NCCL,
        -9,
        Phase.DISTRIBUTED_INIT,
        NcclUnknown,
    ),
    Case(
        "no kernel image",
        _HIT + "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device\n",
        -9,
        Phase.READY,
        Unsupported,
    ),
    # ---- memory
    Case(
        "P05a the capture does not fit",
        _HIT + _CAPTURE + _SIGQUIT,
        -9,
        Phase.GRAPH_CAPTURE,
        OutOfMemory,
        "Tried to allocate 448.00 MiB",
        "lower mem-fraction-static",
        "lower",
    ),
    Case(
        "P05b no room for the cache",
        _HIT + "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: "
        "mem_fraction_static=0.84\n" + _SIGQUIT,
        -9,
        Phase.KV_POOL,
        OutOfMemory,
        "mem_fraction_static=0.84",
        "raise mem-fraction-static",
        "raise",
    ),
    Case(
        "the weights do not fit",
        _HIT + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has\n" + _SIGQUIT,
        -9,
        Phase.LOADING_WEIGHTS,
        OutOfMemory,
        hint="tp-size",
    ),
    Case(
        "activations do not fit under load",
        _HIT + "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB.\n" + _SIGQUIT,
        -9,
        Phase.READY,
        OutOfMemory,
        hint="lower",
        detail="lower",
    ),
    Case(
        "P10b the cache does not suffice",
        "[2026-11-30 16:00:00 TP0] Decode out of memory happened. #retracted_reqs: 1, #new_token_ratio: 0.1 -> 0.2\n"
        + _HIT
        + "RuntimeError: Decode out of memory. Try to lower your batch size.\nTry to allocate 8 tokens.\n"
        + _SIGQUIT,
        -9,
        Phase.READY,
        OutOfKVCache,
        "Decode out of memory. Try",
        "max-running-requests",
        "raise",
    ),
    Case(
        "a prompt does not fit",
        _HIT + "RuntimeError: Prefill out of memory. Try to lower your batch size.\n" + _SIGQUIT,
        -9,
        Phase.READY,
        OutOfKVCache,
        detail="raise",
    ),
    Case(
        "the host's memory",
        _HIT + "RuntimeError: [enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory: you "
        "tried to allocate 68719476736 bytes.\n" + _SIGQUIT,
        -9,
        Phase.KV_POOL,
        OutOfHostMemory,
    ),
    Case(
        "the kernel's OOM killer",
        "[2026-11-30 16:31:13] Load weight begin. avail mem=3 GB\n",
        -9,
        Phase.LOADING_WEIGHTS,
        OutOfHostMemory,
        hint="want of memory",
        facts=NodeFacts(oom_kills=1),
    ),
    Case(
        "the OOM killer takes a scheduler",
        "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a "
        "common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check.\n",
        1,
        Phase.LOADING_WEIGHTS,
        OutOfHostMemory,
        "exit code: -9",
        facts=NodeFacts(oom_kills=2),
    ),
    Case(
        "killed without a word",
        "[2026-11-30 16:31:13] Load weight begin. avail mem=3 GB\n",
        -9,
        Phase.LOADING_WEIGHTS,
        KilledFromOutside,
        hint="dmesg",
        facts=NodeFacts(oom_kills=0),
    ),
    Case(
        "killed after a request that failed",
        "[2026-11-30 16:31:13] Exception in ASGI application\nTraceback (most recent call last):\n"
        "ValueError: one request was too long\n[2026-11-30 16:31:14] Decode batch, #running-req: 3\n",
        -9,
        Phase.READY,
        KilledFromOutside,
        hint="dmesg",
    ),
    Case("SIGBUS", "", -7, Phase.LOADING_WEIGHTS, SharedMemoryFull, hint="/dev/shm"),
    Case(
        "PyTorch finds no room in /dev/shm",
        _HIT + "RuntimeError: unable to write to file </torch_17_90_0>: No space left on device (28)\n" + _SIGQUIT,
        -9,
        Phase.DISTRIBUTED_INIT,
        SharedMemoryFull,
    ),
    Case(
        "a disk is full",
        _HIT + "OSError: [Errno 28] No space left on device: '/cache/kernels/x.so'\n" + _SIGQUIT,
        -9,
        Phase.GRAPH_CAPTURE,
        DiskFull,
        "/cache/kernels",
    ),
    # ---- the node
    Case(
        "P06i our own leftover holds a GPU",
        _HIT + _UNBALANCED + _SIGQUIT,
        -9,
        Phase.DISTRIBUTED_INIT,
        GpuBusyByOurs,
        "unbalanced",
        "stopped first",
        facts=NodeFacts((THEIRS, OURS)),
    ),
    Case(
        "P06ii someone holds a GPU",
        _HIT + _UNBALANCED + _SIGQUIT,
        -9,
        Phase.DISTRIBUTED_INIT,
        GpuBusyByOther,
        "unbalanced",
        "not ours to stop",
        facts=NodeFacts((THEIRS,)),
    ),
    Case(
        "P06iii nobody holds a GPU",
        _HIT + _UNBALANCED + _SIGQUIT,
        -9,
        Phase.DISTRIBUTED_INIT,
        UnequalGpus,
        "unbalanced",
        "cards differ",
        facts=NodeFacts(()),
    ),
    Case(
        "a holder that the container does not show",
        _HIT + _UNBALANCED + _SIGQUIT,
        -9,
        Phase.DISTRIBUTED_INIT,
        GpuBusy,
        hint="nvidia-smi",
        facts=NodeFacts((GpuHolder(None, None),)),
    ),
    Case("who holds a GPU is unknown", _UNBALANCED, -9, Phase.DISTRIBUTED_INIT, GpuBusy, hint="nvidia-smi"),
    Case(
        "P08a the rendezvous port is taken",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
        "port: 18121, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n" + _SIGQUIT,
        -9,
        Phase.DISTRIBUTED_INIT,
        PortTaken,
        "18121",
        detail="nccl",
    ),
    Case(
        "P08b another server has the HTTP port",
        "[2026-11-30 16:35:05] ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): "
        "address already in use\n[2026-11-30 16:35:07] The server is fired up and ready to roll!\n",
        1,
        Phase.READY,
        PortTaken,
        "30000",
        detail="http",
    ),
    Case(
        "P08c a leftover keeps a port",
        "[2026-11-30 16:35:05] port 30010 is in use. Waiting for 25 seconds for nccl_port to be available. nccl_port "
        "is used by a process already. pid=1\n"
        "ValueError: nccl_port at 30010 is not available in 120 seconds. nccl_port is used by a process already. "
        "process.name()='sglang::scheduler'\n",
        1,
        Phase.SPAWNED,
        PortTaken,
        "not available in 120 seconds",
        detail="internal",
    ),
    # ---- NCCL
    Case(
        "P07a no NVLink SHARP",
        _NVLS + _HIT + _NCCL + _SIGQUIT,
        -9,
        Phase.DISTRIBUTED_INIT,
        NcclNvls,
        "CUDA error 401",
        "NCCL_NVLS_ENABLE=0",
    ),
    Case(
        "P07b a small /dev/shm",
        "m:17:90 [0] misc/shmutils.cc:87 NCCL WARN Call to posix_fallocate failed : No space left on device\n"
        "m:17:90 [0] misc/shmutils.cc:129 NCCL WARN Error while creating shared memory segment nccl-shm-recv-1a2b\n"
        + _HIT
        + "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)\n"
        + _SIGQUIT,
        -9,
        Phase.DISTRIBUTED_INIT,
        SharedMemoryFull,
        "posix_fallocate",
        "larger",
    ),
    Case("P07c no cause", _HIT + _NCCL + _SIGQUIT, -9, Phase.DISTRIBUTED_INIT, NcclUnknown, hint="NCCL_DEBUG=INFO"),
    Case(
        "no way for a collective",
        "m:17:90 [0] NCCL WARN Error : No algorithm/protocol available for function AllGather with datatype x.\n"
        + _HIT
        + "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)\n",
        -9,
        Phase.GRAPH_CAPTURE,
        NcclAlgorithm,
        "AllGather",
        "by collective",
    ),
    Case(
        "NCCL_ALGO without prefixes",
        "m:17:90 [0] NCCL WARN All entries except the first must have a prefix: tree;ring\n" + _HIT + _NCCL,
        -9,
        Phase.DISTRIBUTED_INIT,
        NcclAlgorithm,
        hint="NCCL_ALGO",
    ),
    Case(
        "no such interface",
        "m:17:90 [0] NCCL WARN Bootstrap : no socket interface found\n" + _HIT + _NCCL,
        -9,
        Phase.DISTRIBUTED_INIT,
        NcclUnknown,
        "no socket interface",
        "NCCL_SOCKET_IFNAME",
    ),
    Case(
        "P09c a collective hangs",
        "[rank3]:[E ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=151721, OpType=_ALLGATHER_BASE, Timeout(ms)=600000) ran for 600049 milliseconds before "
        "timing out.\n[2026-11-30 16:31:13] Subprocess scheduler_3 (pid=9) crashed with exit code -6. Triggering "
        "SIGQUIT for cleanup...\n",
        -9,
        Phase.READY,
        NcclTimeout,
        "600049",
    ),
    # ---- under load
    Case(
        "P09a the old watchdog",
        _PYSPY + "[2026-11-30 16:31:13] Watchdog timeout (self.watchdog_timeout=300)\n" + _SIGQUIT,
        -9,
        Phase.READY,
        WatchdogHang,
        "self.watchdog_timeout=300",
    ),
    Case(
        "P09b the new watchdog",
        _PYSPY + "[2026-11-30 16:31:13 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n",
        -9,
        Phase.READY,
        WatchdogHang,
        "self.soft=False",
    ),
    Case(
        "P03 a crash that exits with 0",
        _HIT + "RuntimeError: CUDA error: an illegal memory access was encountered\n\n" + _SIGQUIT,
        0,
        Phase.READY,
        CudaError,
        "illegal memory access",
    ),
    Case(
        "an exception that no rule knows, under load",
        _HIT + "KeyError: 17\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most "
        "recent call last):\nRuntimeError: the batch is odd\n\n" + _SIGQUIT,
        -9,
        Phase.READY,
        ServerCrashed,
        "the batch is odd",
    ),
    Case(
        "a scheduler that raised and was then killed",
        _HIT
        + "KeyError: 17\n\n[2026-11-30 16:31:14] x\nTraceback (most recent call last):\nRuntimeError: Rank 0 scheduler "
        "died during initialization (exit code: -9). If exit code is -9, a common cause is the OS OOM killer.\n",
        1,
        Phase.LOADING_WEIGHTS,
        UnknownFailure,
        "KeyError: 17",
    ),
    Case("a segmentation fault", "", -11, Phase.GRAPH_CAPTURE, ServerCrashed, hint="SIGSEGV"),
    Case(
        "the second rank tells of its own death, the first of the cause",
        _HIT.replace("TP0", "TP1")
        + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n\n"
        + _HIT
        + "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:77, remote process exited\n"
        + _SIGQUIT,
        -9,
        Phase.GRAPH_CAPTURE,
        OutOfMemory,
        "Tried to allocate 2.00 GiB",
        detail="lower",
    ),
    # ---- nothing known
    Case(
        "a warm-up that fails",
        "[2026-11-30 16:31:13] Initialization failed. warmup error: Traceback (most recent call last):\n"
        "AssertionError: res=<Response [500]>\n\n[2026-11-30 16:31:14] kill_process_tree called: "
        "parent_pid=7, include_parent=True, pid=7\n",
        -9,
        Phase.WARMUP,
        UnknownFailure,
        "<Response [500]>",
    ),
    Case("a silent exit", "Bus trouble\n", 9, Phase.SPAWNED, UnknownFailure, hint="names no cause"),
    Case("a silent end with exit 0", "", 0, Phase.READY, UnknownFailure, hint="names no cause"),
    Case(
        "an exit code nobody knows",
        "[2026-11-30 16:31:13] Load weight begin. avail mem=3 GB\n",
        None,
        Phase.LOADING_WEIGHTS,
        UnknownFailure,
        hint="names no cause",
    ),
]
CASES = [*RECORDED, *REPORTED]
