"""The class of a failure follows its cause, over logs recorded from SGLang 0.5.23 and its texts elsewhere."""

from __future__ import annotations

import io
from collections import Counter

import pytest
from failure_cases import CASES, LOGS, RECORDED, Case

from launchers.base import Phase
from launchers.errors import (
    BadArgument,
    CudaError,
    InvalidCombination,
    LaunchError,
    OutOfMemory,
    ServerCrashed,
    SharedMemoryFull,
    UnknownFailure,
)
from launchers.facts import NodeFacts
from launchers.sglang.failures import classify, retractions
from launchers.sglang.rules import judge
from launchers.sglang.signatures import SIGNATURES, Signature
from launchers.simulated.endings import scheduler_exception
from launchers.simulated.log import Log


def classed(case: Case) -> LaunchError:
    return classify(case.log, case.exit_code, case.phase, case.facts)


def recorded(name: str) -> str:
    return (LOGS / f"{name}.log").read_text()


def test_every_failure_is_of_its_class() -> None:
    """The accuracy over all cases, 100 %; what was taken for what, where it is not."""
    confused = Counter((case.kind.kind, type(classed(case)).kind) for case in CASES)
    wrong = {f"{right} taken for {taken}": n for (right, taken), n in confused.items() if right != taken}
    assert not wrong, f"{sum(wrong.values())} of {len(CASES)}: {wrong}"
    assert len(CASES) > 60


def test_every_recorded_log_is_a_case() -> None:
    assert {case.name for case in RECORDED} == {path.stem for path in LOGS.glob("*.log")}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_failure_tells_its_cause_and_what_to_do(case: Case) -> None:
    error = classed(case)
    assert type(error) is case.kind
    assert case.line in (error.lines[0] if error.lines else "")
    assert case.hint in error.hint
    assert error.detail == case.detail
    assert (error.exit_code, error.phase) == (case.exit_code, case.phase)
    assert error.hint in str(error)
    assert len(error.lines) <= 3
    assert all(len(line) <= 300 for line in error.lines)
    assert len(error.tail.splitlines()) <= 20


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.pattern.pattern[:40])
def test_every_signature_decides_a_case(signature: Signature, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [classed(case) for case in CASES]
    monkeypatch.setattr("launchers.sglang.failures.SIGNATURES", tuple(s for s in SIGNATURES if s is not signature))
    after = [classed(case) for case in CASES]
    assert [(type(e), e.hint) for e in before] != [(type(e), e.hint) for e in after]


#: What stands at the end of many logs, whatever the cause.
LAST_LINES = (
    "[2026-11-30 17:00:00] SIGQUIT received. signum=None, frame=None. It usually means one child failed.\n"
    "[2026-11-30 17:00:00] Sleeping 5 seconds before crash diagnostics to let GPU activity settle.\n"
    "[2026-11-30 17:00:05] No live scheduler processes found; skipping py-spy and CUDA coredump.\n"
    "[2026-11-30 17:00:05] Pyspy failed to dump PID 4242. Error: /bin/bash: line 1: py-spy: command not found\n"
    "Possible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
    "[2026-11-30 17:00:05] kill_process_tree called: parent_pid=7, include_parent=True, pid=7\n"
)
#: What a healthy server may have printed before.
FIRST_LINES = (
    "[2026-11-30 15:00:00] server_args={'model_path': '/models/CUDA out of memory. Tried EADDRINUSE GatedRepoError'}\n"
    "[2026-11-30 15:00:01] Ignore import error when loading x: No space left on device NCCL error EADDRINUSE\n"
    '[2026-11-30 15:00:02] INFO:     127.0.0.1:1 - "GET /CUDA error: HTTP/1.1" 404 Not Found\n'
    "[2026-11-30 15:00:03 TP0] Decode out of memory happened. #retracted_reqs: 1, #new_token_ratio: 0.1 -> 0.2\n"
    "[2026-11-30 15:00:03 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 9\n"
    "[2026-11-30 15:00:04 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)\n"
    "[2026-11-30 15:00:04] The memory capacity is unbalanced. Some GPUs may be occupied by other processes.\n"
    "[2026-11-30 15:00:05] port 3 is in use. Waiting for 15 seconds for nccl_port to be available. nccl_port is used "
    "by a process already.\n"
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_generic_lines_never_win_over_the_cause(case: Case) -> None:
    bare, framed = (
        classed(case),
        classify(f"{FIRST_LINES}{case.log}\n{LAST_LINES}", case.exit_code, case.phase, case.facts),
    )
    if bare.lines:
        assert (type(framed), framed.lines, framed.hint) == (type(bare), bare.lines, bare.hint)
    else:
        # A server that ended itself had a cause, and an exit code says nothing of it.
        assert type(framed) in (UnknownFailure, ServerCrashed)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_where_lines_end_in_carriage_returns_the_class_is_the_same(case: Case) -> None:
    error = classify(case.log.replace("\n", "\r\n"), case.exit_code, case.phase, case.facts)
    assert (type(error), error.lines) == (type(classed(case)), classed(case).lines)


def test_a_usage_text_matches_nothing_but_its_own_error() -> None:
    # The recorded usage text with a line that would fit a signature, and no error line behind it.
    whole = recorded("fail_badflag")
    usage = whole[: whole.index("sglang serve: error:")] + "    [--x CUDA out of memory. Tried EADDRINUSE]\n"
    assert usage.startswith("usage: ")
    error = classify(usage, 2, Phase.SPAWNED)
    assert type(error) is UnknownFailure
    assert "names no cause" in error.message
    refused = classify(usage + "sglang serve: error: ambiguous option: --cuda-graph could match", 2, Phase.SPAWNED)
    assert type(refused) is BadArgument
    assert "--cuda-graph" in refused.message
    assert refused.tail.splitlines() == ["sglang serve: error: ambiguous option: --cuda-graph could match"]


def test_the_source_line_that_raises_is_not_what_was_raised() -> None:
    log = (
        "Traceback (most recent call last):\n"
        '  File "sglang/srt/x.py", line 7, in f\n'
        '    raise RuntimeError("Not enough memory. Please try to increase --mem-fraction-static.")\n'
        "KeyError: 3\n"
    )
    error = classify(log, 1, Phase.KV_POOL)
    assert type(error) is UnknownFailure
    assert error.lines == ("KeyError: 3",)


def test_a_retraction_is_not_out_of_memory() -> None:
    log = (
        "[2026-11-30 16:00:00] Decode out of memory happened. #retracted_reqs: 3, #new_token_ratio: 0.6 -> 0.9\n"
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
    )
    assert type(classify(log, -9, Phase.READY)) is CudaError


def test_retractions_are_counted_once_for_all_ranks() -> None:
    told = "Decode out of memory happened. #retracted_reqs: 1, #new_token_ratio: 0.1474 -> 0.1845\n"
    named = [f"[2026-11-30 16:00:0{s} TP{rank}] {told}" for s in (1, 3) for rank in range(8)]
    nameless = [f"[2026-11-30 16:00:0{s}] {told}" for s in (1, 3) for _ in range(8)]
    assert retractions("".join(named)) == 2
    assert retractions("".join(nameless)) == 2
    # A rank that tells of the same event a second later is no further event.
    late = named[-1].replace("16:00:03", "16:00:04")
    assert retractions("".join([*named[:-1], late])) == 2


def test_retractions_of_data_parallel_groups_are_events_of_their_own() -> None:
    told = "KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_tokens_gained: 7\n"
    # With attention data parallelism each group has ranks of its own.
    log = [f"[2026-11-30 16:00:01 DP{group} TP{2 * group + rank}] {told}" for group in range(2) for rank in range(2)]
    assert retractions("".join(log)) == 2
    assert retractions("".join(log).replace("KV cache pool is full. Retract requests.", "Testing retraction.")) == 0
    assert retractions(recorded("small")) == 0


def test_an_assertion_of_a_running_server_says_nothing_about_the_configuration() -> None:
    refused = "  File x, in run_server\n    server_args.resolve_once()\nAssertionError\n"
    assert type(classify(refused, 1, Phase.SPAWNED)) is InvalidCombination
    assert type(classify(refused, 1, Phase.READY)) is ServerCrashed
    assert type(classify("  File x, in run_batch\nAssertionError\n", 1, Phase.SPAWNED)) is UnknownFailure


def test_sigbus_tells_how_much_shared_memory_is_free_now() -> None:
    error = classify("", -7, Phase.READY, NodeFacts(shm_free_bytes=64_000_000))
    assert type(error) is SharedMemoryFull
    assert "0.1 GB of it are free now" in error.message


@pytest.mark.parametrize("exit_code", [None, -31, 3, 0])
def test_an_end_that_says_nothing_is_unknown_and_keeps_its_tail(exit_code: int | None) -> None:
    log = "".join(f"line {n}\n" for n in range(99))
    error = classify(log, exit_code, Phase.LOADING_WEIGHTS)
    assert type(error) in (UnknownFailure, ServerCrashed)
    assert error.tail == "\n".join(f"line {n}" for n in range(79, 99))


def test_equal_lines_of_several_ranks_are_told_once() -> None:
    line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    log = "".join(f"[2026-11-30 16:00:01 TP{rank}] {line}\n" for rank in range(8))
    error = classify(log, -9, Phase.READY)
    assert type(error) is OutOfMemory
    assert error.lines == (line,)


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
