"""The class of a failure follows its cause, over logs recorded from SGLang 0.5.23 and its texts elsewhere."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from launchers.base import Phase
from launchers.errors import (
    BadArgument,
    InvalidCombination,
    LaunchError,
    OutOfMemory,
    PortTaken,
    ServerCrashed,
)
from launchers.sglang.failures import classify
from launchers.sglang.progress import ProgressReader
from launchers.sglang.rejections import REJECTIONS
from launchers.sglang.rules import judge
from launchers.simulated.endings import scheduler_exception
from launchers.simulated.log import Log

LOGS = Path(__file__).parents[1] / "data" / "logs"


def recorded(name: str) -> str:
    return (LOGS / f"{name}.log").read_text()


@pytest.mark.parametrize(
    ("name", "exit_code", "kind", "says"),
    [
        ("fail_badflag", 2, BadArgument, "unrecognized arguments: --no-such-flag 3"),
        ("fail_badint", 2, BadArgument, "argument --max-running-requests: invalid int value: 'abc'"),
        ("fail_badvalue", 2, BadArgument, "argument --attention-backend: invalid choice: 'nonsense'"),
        ("spec_badalgo", 1, BadArgument, "ValueError: Unknown speculative algorithm name: FOO"),
        ("spec_partial", 1, InvalidCombination, "TypeError: '>' not supported between instances of 'NoneType'"),
        ("spec_toomany", -9, InvalidCombination, "RuntimeError: selected index k out of range"),
        ("oom_frac", -9, OutOfMemory, "Loaded weights leave no GPU memory for the KV cache"),
        ("fail_port", -9, PortTaken, "('127.0.0.1', 30010): address already in use"),
        ("B_sameport", 3, PortTaken, "('127.0.0.1', 30020): address already in use"),
        ("fail_nomodel", 1, ServerCrashed, "OSError: Repo id must be in the form"),
        ("bad_tp", -9, ServerCrashed, "AssertionError: SGLANG_CPU_OMP_THREADS_BIND is not set"),
        ("sigint", -2, ServerCrashed, "KeyboardInterrupt"),
        ("small", 0, ServerCrashed, "SIGTERM received"),
        ("tp2", 0, ServerCrashed, "SIGTERM received"),
        ("spec_eagle", 0, ServerCrashed, "SIGTERM received"),
    ],
)
def test_recorded_ends_are_classed_by_their_cause(
    name: str, exit_code: int, kind: type[LaunchError], says: str
) -> None:
    reader = ProgressReader()
    reader.feed(recorded(name))
    error = classify(recorded(name), exit_code, reader.phase)
    assert type(error) is kind
    assert says in error.message
    assert (error.exit_code, error.phase) == (exit_code, reader.phase)
    assert 1 <= len(error.tail.splitlines()) <= 20


#: Texts of 0.5.23 that no CPU shows, with where they are read.
@pytest.mark.parametrize(
    ("text", "phase", "kind", "hint"),
    [
        (
            "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 448.00 MiB. GPU 7 has\n"
            "Possible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
            "4. disable cuda graph by --disable-cuda-graph\n",
            Phase.GRAPH_CAPTURE,
            OutOfMemory,
            "lower mem-fraction-static",
        ),
        (
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
            "Current value: mem_fraction_static=0.84",
            Phase.KV_POOL,
            OutOfMemory,
            "raise mem-fraction-static",
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
            Phase.LOADING_WEIGHTS,
            OutOfMemory,
            "lower",
        ),
        ("RuntimeError: Decode out of memory. Try to lower your batch size.", Phase.READY, OutOfMemory, "lower"),
        (
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
            "port: 18121, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
            Phase.DISTRIBUTED_INIT,
            PortTaken,
            "another one",
        ),
        (
            "ValueError: trtllm_mha backend only supports topk = 1 for speculative decoding.",
            Phase.SPAWNED,
            InvalidCombination,
            "keep these values apart",
        ),
        (
            "ValueError: speculative_eagle_topk > 1 with page_size > 1 is unstable and produces incorrect results "
            "for paged attention backends.",
            Phase.SPAWNED,
            InvalidCombination,
            "keep these values apart",
        ),
        ("No algorithm/protocol available for function AllGather", Phase.GRAPH_CAPTURE, InvalidCombination, "NCCL"),
        # What the node's state does to a start says nothing about its memory settings.
        (
            "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes.",
            Phase.DISTRIBUTED_INIT,
            ServerCrashed,
            "unbalanced",
        ),
        (
            "RuntimeError: CUDA error: an illegal memory access was encountered\n\n"
            "[2026-11-30 16:31:13] Received sigquit from a child process. It usually means the child failed.",
            Phase.READY,
            ServerCrashed,
            "illegal memory access",
        ),
        ("Subprocess scheduler_0 (pid 17) crashed with exit code -9", Phase.READY, ServerCrashed, "scheduler_0"),
        ("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)", Phase.READY, ServerCrashed, "300"),
    ],
)
def test_texts_of_gpu_servers_are_classed_by_their_cause(
    text: str, phase: Phase, kind: type[LaunchError], hint: str
) -> None:
    error = classify(text, -9, phase)
    assert type(error) is kind
    assert hint in error.message


def test_a_usage_text_matches_nothing_but_its_own_error() -> None:
    # The recorded usage text with a line that would fit a signature, and no error line behind it.
    whole = recorded("fail_badflag")
    usage = whole[: whole.index("sglang serve: error:")] + "    [--x CUDA out of memory. Tried EADDRINUSE]\n"
    assert usage.startswith("usage: ")
    error = classify(usage, 2, Phase.SPAWNED)
    assert type(error) is ServerCrashed
    assert "names no cause" in error.message
    refused = classify(usage + "sglang serve: error: ambiguous option: --cuda-graph could match", 2, Phase.SPAWNED)
    assert type(refused) is BadArgument
    assert "--cuda-graph" in refused.message


def test_the_settings_that_the_server_echoes_are_no_cause() -> None:
    log = "[2026-11-30 16:00:00] server_args={'model_path': '/models/CUDA out of memory. Tried EADDRINUSE'}\n"
    assert type(classify(log, 1, Phase.SPAWNED)) is ServerCrashed


def test_a_retraction_is_not_out_of_memory() -> None:
    log = (
        "[2026-11-30 16:00:00] Decode out of memory happened. #retracted_reqs: 3, #new_token_ratio: 0.6 -> 0.9\n"
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
    )
    error = classify(log, -9, Phase.READY)
    assert type(error) is ServerCrashed
    assert "illegal memory access" in error.message


def test_an_assertion_of_a_running_server_says_nothing_about_the_configuration() -> None:
    refused = "  File x, in run_server\n    server_args.resolve_once()\nAssertionError\n"
    assert type(classify(refused, 1, Phase.SPAWNED)) is InvalidCombination
    assert type(classify(refused, -9, Phase.READY)) is ServerCrashed
    assert type(classify("  File x, in run_batch\nAssertionError\n", 1, Phase.SPAWNED)) is ServerCrashed


@pytest.mark.parametrize(("exit_code", "says"), [(-9, "dmesg"), (-7, "/dev/shm"), (0, "names no cause")])
def test_a_silent_end_is_a_crash_whatever_the_exit_code(exit_code: int, says: str) -> None:
    error = classify("[2026-11-30 16:00:00] Load weight begin. avail mem=3 GB\n", exit_code, Phase.LOADING_WEIGHTS)
    assert type(error) is ServerCrashed
    assert error.exit_code == exit_code
    assert says in error.message


REFUSED = [
    {"speculative-algorithm": "EAGLE", "weight-cache-mode": "client"},
    {"dp-size": 2, "attn-dp-size": 2, "tp-size": 2},
    {"tp-size": 3, "attn-dp-size": 2},
    {"chunked-prefill-size": 100, "page-size": 16},
    {"speculative-algorithm": "NGRAM", "attn-dp-size": 2, "tp-size": 2},
    {"speculative-algorithm": "UNO", "tp-size": 2},
    {"speculative-algorithm": "EAGLE", "speculative-eagle-topk": 2},
    {"speculative-algorithm": "EAGLE", "speculative-num-steps": 2},
    {
        "speculative-algorithm": "EAGLE",
        "speculative-num-steps": 2,
        "speculative-eagle-topk": 2,
        "speculative-num-draft-tokens": 4,
        "attention-backend": "trtllm_mha",
    },
    {
        "speculative-algorithm": "EAGLE",
        "speculative-num-steps": 2,
        "speculative-eagle-topk": 2,
        "speculative-num-draft-tokens": 4,
        "attention-backend": "fa4",
        "page-size": 16,
    },
    {
        "speculative-algorithm": "EAGLE",
        "speculative-num-steps": 2,
        "speculative-eagle-topk": 2,
        "speculative-num-draft-tokens": 4,
        "attention-backend": "flashinfer",
        "model-path": "moonshotai/Kimi-K2.5",
    },
    {
        "speculative-algorithm": "EAGLE",
        "speculative-num-steps": 1,
        "speculative-eagle-topk": 2,
        "speculative-num-draft-tokens": 30,
    },
]


@pytest.mark.parametrize("flags", REFUSED, ids=lambda flags: " ".join(map(str, flags.values())))
def test_what_the_rules_refuse_is_classed_as_an_invalid_combination(flags: dict[str, object]) -> None:
    verdict = judge(flags, {})
    assert verdict.error_text is not None
    assert verdict.dies_in is not None
    if verdict.dies_in is Phase.SPAWNED:
        log = f"Traceback (most recent call last):\n    server_args.resolve_once()\n{verdict.error_text}\n"
    else:
        stream = io.StringIO()
        scheduler_exception(Log(stream), verdict.error_text, starting=verdict.dies_in is not Phase.WARMUP)
        log = stream.getvalue()
    assert type(classify(log, verdict.exit_code, verdict.dies_in)) is InvalidCombination


def test_the_refused_settings_above_are_of_many_rules() -> None:
    assert len({judge(flags, {}).error_text for flags in REFUSED}) >= len(REFUSED) - 1
    assert len(REFUSED) >= len(REJECTIONS) - 4
