"""Command line, profile and rules resolved into what the engine runs with."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from launchers.simulated.arguments import parse_arguments
from launchers.simulated.profile import load_profile
from launchers.simulated.settings import Settings, resolve


def settings(flags: str = "", env: Mapping[str, str] | None = None) -> Settings:
    arguments = parse_arguments(["--model-path", "m", *flags.split()])
    return resolve(arguments, load_profile("tiny"), env or {})


def test_without_flags_the_profile_decides() -> None:
    plain = settings()
    assert plain.engine.kv_tokens == 16384
    assert plain.engine.max_running_requests == 64
    assert plain.engine.chunked_prefill_size == 2048
    assert plain.engine.tokens_per_step == 1
    assert (plain.limits.max_length, plain.limits.max_input) == (4095, 4090)


@pytest.mark.parametrize(
    ("flags", "per_rank"),
    [
        ("", 64),
        ("--max-running-requests 7", 7),
        ("--speculative-algorithm EAGLE3", 48),
        ("--speculative-algorithm EAGLE3 --tp-size 8 --attn-dp-size 8", 6),
        ("--max-running-requests 3 --tp-size 8 --attn-dp-size 8", 1),
        ("--max-total-tokens 20", 10),
        ("--dp-size 2 --max-running-requests 9", 9),
    ],
)
def test_effective_running_requests_of_one_rank(flags: str, per_rank: int) -> None:
    assert settings(flags).max_running_per_dp == per_rank


def test_data_parallel_ranks_multiply_what_runs() -> None:
    two = settings("--dp-size 2 --max-running-requests 9")
    assert two.engine.max_running_requests == 18
    assert two.engine.kv_tokens == 2 * 16384
    assert two.ranks() == ("DP0", "DP1")
    assert settings("--tp-size 2").ranks() == ("TP0", "TP1")
    assert settings().ranks() == ("",)


def test_a_chunk_of_minus_one_is_no_chunk() -> None:
    assert settings("--chunked-prefill-size -1").engine.chunked_prefill_size is None
    assert settings("--chunked-prefill-size -1").server_arguments()["chunked_prefill_size"] == -1


def test_a_chain_verifies_steps_plus_one_tokens() -> None:
    flags = "--speculative-algorithm EAGLE3 --speculative-num-steps 5 --speculative-eagle-topk 1 "
    chain = settings(flags + "--speculative-num-draft-tokens 3")
    assert chain.engine.tokens_per_step == 6
    assert chain.server_arguments()["speculative_num_draft_tokens"] == 6


def test_graphs_can_be_turned_off() -> None:
    assert settings().graphs
    assert not settings("--disable-cuda-graph").graphs
    assert not settings("--cuda-graph-backend-decode disabled").graphs


def test_only_nccl_variables_matter_of_the_environment() -> None:
    assert settings(env={"HOME": "/", "NCCL_PROTO": "LL"}).env == {"NCCL_PROTO": "LL"}


def test_a_bad_fault_is_told_by_its_variable() -> None:
    with pytest.raises(ValueError, match="SIMULATED_FAULT"):
        settings(env={"SIMULATED_FAULT": "boom"})
