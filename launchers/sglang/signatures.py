"""Texts by which SGLang, PyTorch and NCCL name the cause of a server's end, and what each is a sign of.

Read in the sources of SGLang 0.5.23, Transformers 5 and NCCL 2.30, or recorded from 0.5.23 on CPU; older
wordings are from public reports. Each is matched against lines without their time stamps.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from launchers.base import Phase
from launchers.errors import (
    BadArgument,
    CudaError,
    DiskFull,
    GpuBusy,
    InvalidCombination,
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
    SharedMemoryFull,
    Unsupported,
    WatchdogHang,
)


class Signature(NamedTuple):
    """A text and what it is a sign of."""

    pattern: re.Pattern[str]
    kind: type[LaunchError]
    #: What to do.
    hint: str
    detail: str | None = None
    #: Phases in which it means this; None for all.
    phases: Collection[Phase] | None = None


def _sign(
    pattern: str,
    kind: type[LaunchError],
    hint: str,
    detail: str | None = None,
    phases: Collection[Phase] | None = None,
) -> Signature:
    return Signature(re.compile(pattern, re.MULTILINE), kind, hint, detail, phases)


_GPU_OOM = (
    r"CUDA out of memory|^(?:[\w.]+: )*(?:torch\.(?:cuda\.)?)?OutOfMemoryError|CUDA error: out of memory"
    r"|Cuda failure (?:\d+ )?'out of memory'"
)
COMBINATION_HINT = "SGLang never takes this combination: keep these values apart"
_EVERY_TRIAL = "every trial would carry it: correct the flag"
_LARGER_SHM = "make /dev/shm larger (docker: --shm-size), or remove what dead servers left in it"
_OTHER_PORT = "another program holds the port: the next start gets other ports"

#: First match wins. The order is from what names a cause for itself to what may be its consequence.
SIGNATURES = (
    # ---- the command line
    _sign(
        r"^[^\[\n]*: error: (?:unrecognized arguments|ambiguous option|argument |the following arguments)",
        BadArgument,
        _EVERY_TRIAL,
    ),
    _sign(r"Unknown speculative algorithm name:", BadArgument, "correct speculative-algorithm"),
    # ---- the model
    _sign(
        r"GatedRepoError|(?:access|Access) (?:a |to )?(?:gated repo|model .* is restricted)",
        ModelUnavailable,
        "accept the model's licence on its page and give the node a token, or point to a local copy",
        "gated",
    ),
    _sign(
        r"pass the argument `?trust_remote_code=True|set the option `?trust_remote_code=True",
        ModelUnavailable,
        "the model brings code of its own: read it, then set trust-remote-code under `server:`",
        "code",
    ),
    _sign(
        r"Repo id must be in the form|is not a local folder and is not a valid model identifier"
        r"|RepositoryNotFoundError|LocalEntryNotFoundError|OfflineModeIsEnabled|We couldn't connect to '\S+' to load"
        r"|does not appear to have a file named|Cannot find any model weights|^OSError: Can't load \w+",
        ModelUnavailable,
        "check the path of the model or drafter, or download it before the sweep",
        "missing",
    ),
    # ---- memory
    _sign(
        r"(?:Decode|Prefill) out of memory\b",
        OutOfKVCache,
        "lower max-running-requests, or raise mem-fraction-static",
        "raise",
    ),
    _sign(
        r"Not enough memory\. Please try to increase|leave no GPU memory for the KV cache"
        r"|leaves no room for the full KV pool|state cache is too small to serve",
        OutOfMemory,
        "raise mem-fraction-static",
        "raise",
    ),
    _sign(
        _GPU_OOM,
        OutOfMemory,
        "the weights do not fit: more GPUs for them (tp-size), or a smaller or quantized model",
        None,
        {
            Phase.SPAWNED,
            Phase.DISTRIBUTED_INIT,
            Phase.LOADING_WEIGHTS,
            Phase.PROCESSING_WEIGHTS,
            Phase.LOADING_DRAFT,
        },
    ),
    _sign(
        _GPU_OOM,
        OutOfMemory,
        "lower mem-fraction-static, max-running-requests or the batch sizes that are captured",
        "lower",
    ),
    _sign(
        r"DefaultCPUAllocator: .*memory|^MemoryError\b|^OSError: \[Errno 12\]|std::bad_alloc",
        OutOfHostMemory,
        "the host's memory is used up: lower what the setting keeps there (hicache, max-total-tokens on a CPU)",
    ),
    # NCCL and PyTorch tell of shared memory in the words that others use for a full disk.
    _sign(
        r"posix_fallocate failed : No space left on device|Error while creating shared memory segment"
        r"|(?:/dev/shm|</?torch_)\S*.*No space left on device|insufficient shared memory"
        r"|unable to (?:allocate|open|resize) shared memory",
        SharedMemoryFull,
        _LARGER_SHM,
    ),
    _sign(r"No space left on device", DiskFull, "make room on the disk that the line names"),
    # ---- the node
    # As a warning, without an exception's name, it ends nothing.
    _sign(r"^\w+Error: The memory capacity is unbalanced", GpuBusy, "free every GPU first"),
    _sign(
        r"error while attempting to bind on address",
        PortTaken,
        _OTHER_PORT,
        "http",
    ),
    _sign(
        r"server socket has failed to listen|EADDRINUSE",
        PortTaken,
        _OTHER_PORT,
        "nccl",
    ),
    _sign(
        r"^(?!.*Waiting for \d+ seconds).*is used by a process already"
        r"|_port at \d+ is not available in \d+ seconds|(?i:address already in use)|_port \d+ is already in use",
        PortTaken,
        "another program or a dead server's rest holds the port: the next start gets other ports",
        "internal",
    ),
    # ---- combinations
    _sign(r"selected index k out of range", InvalidCombination, "fewer draft tokens, or more steps or topk"),
    _sign(
        r"only supports? topk ?= ?1\b|speculative_eagle_topk\S* > 1 with page_size"
        r"|chunked_prefill_size must be divisible by page_size|is not supported together with speculative",
        InvalidCombination,
        COMBINATION_HINT,
    ),
    _sign(
        r"invalid device ordinal",
        InvalidCombination,
        "there are fewer GPUs than ranks: lower tp-size, dp-size or pp-size",
    ),
    _sign(
        r"SGLANG_CPU_OMP_THREADS_BIND is not set",
        InvalidCombination,
        "name the cores of each rank in SGLANG_CPU_OMP_THREADS_BIND, or lower the number of ranks",
    ),
    # ---- what does not exist here
    _sign(
        r"Model architectures .* are not supported for now|does not recognize this architecture"
        r"|^\w+: Unrecognized model in",
        Unsupported,
        "this SGLang does not know the model: another release may",
    ),
    _sign(
        r"does not implement set_eagle3_layers_to_capture",
        Unsupported,
        "the model cannot feed an EAGLE3 drafter: take EAGLE or another algorithm",
    ),
    _sign(
        r"Backend requires SM|Unsupported architecture|no kernel image is available|is not supported on SM\d+"
        r"|only supported on (?:Blackwell|Hopper|SM|sm)|\bOnly SM [\d.x]+ ",
        Unsupported,
        "these GPUs lack the kernel: take another backend",
    ),
    # ---- NCCL
    _sign(
        # With NCCL_DEBUG=INFO healthy starts tell of NVLS as well.
        r"NCCL WARN .*\bNVLS\b",
        NcclNvls,
        "NVLink SHARP cannot be set up here: keep NCCL_NVLS_ENABLE=0",
    ),
    _sign(
        r"No algorithm/protocol available for function",
        NcclAlgorithm,
        "NCCL_ALGO and NCCL_PROTO leave no way for this collective: name others, by collective",
    ),
    _sign(
        r"All entries except the first must have a prefix|Unrecognized element token",
        NcclAlgorithm,
        "NCCL cannot read NCCL_ALGO or NCCL_PROTO: only the first entry may lack its collective",
    ),
    # ---- a kernel, or a rank, under way
    _sign(
        r"CUDA error: |AcceleratorError|CUBLAS_STATUS_\w+|CUDNN_STATUS_\w+|device-side assert",
        CudaError,
        "a kernel failed: if it comes again on another node, keep this setting's backend out of the space",
    ),
    _sign(
        r"Watchdog caught collective operation timeout",
        NcclTimeout,
        "a rank hangs in a collective; on PCIe boxes NCCL_P2P_DISABLE=1 may help",
    ),
    _sign(
        r"[Ww]atchdog timeout \(self\.watchdog_timeout=(?!.*self\.soft=True)",
        WatchdogHang,
        "the scheduler stood still; if it is only slow, raise watchdog-timeout",
    ),
    _sign(
        r"no socket interface found",
        NcclUnknown,
        "NCCL_SOCKET_IFNAME names no interface of this machine: correct or drop it",
    ),
    _sign(
        r"NCCL error|ncclUnhandledCudaError|ncclSystemError|ncclInternalError|unhandled (?:cuda|system) error",
        NcclUnknown,
        "the log does not tell why: a start with NCCL_DEBUG=INFO may",
    ),
)
