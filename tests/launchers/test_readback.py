"""What is read out of /server_info and the log, against answers recorded from 0.5.23."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launchers.sglang.readback import changes, read_back

DATA = Path(__file__).parents[1] / "data/readback"
RESET = (
    "[2026-11-30 16:24:43] Max running requests is reset to 48 for speculative decoding. "
    "You can override this by explicitly setting --max-running-requests."
)
IN_FORCE = (
    "max_total_num_tokens=20000, chunked_prefill_size=4096, max_prefill_tokens=16384, max_running_requests={}, "
    "context_len=2048, available_cpu_mem=20.71 GB"
)


@pytest.fixture(scope="module")
def info() -> dict[str, Any]:
    """EAGLE with 3 steps, topk 1 and 6 draft tokens asked for; on CPU."""
    loaded: dict[str, Any] = json.loads((DATA / "server_info_eagle.json").read_text())
    return loaded


def test_a_recorded_answer_gives_settings_ranks_and_what_is_in_force(info: dict[str, Any]) -> None:
    look = read_back(info)
    assert look.max_running_requests == 8
    assert look.kv_tokens == 20_000
    assert look.resolved["speculative-num-draft-tokens"] == 4
    assert [rank and rank["avg_spec_accept_length"] for rank in look.ranks] == [3.55]
    kept = look.settings(["speculative-token-map"])
    assert kept["speculative-token-map"] is None
    assert "speculative-draft-load-format" not in kept
    assert kept["internal_states"][0]["memory_usage"]["token_capacity"] == 20_000
    # What differs from start to start, or is a secret, would make equal servers differ.
    assert not {"port", "random-seed", "served-model-name", "api-key", "launch-command"} & set(kept)


@pytest.mark.parametrize(
    ("info", "log", "cap"),
    [
        # P11(b): eight attention-DP ranks, 6 each; the top-level value is resolved, not in force.
        (
            {"attn_dp_size": 8, "max_running_requests": 48}
            | {"internal_states": [{"effective_max_running_requests_per_dp": 6}] * 8},
            "",
            48,
        ),
        # A rank that says nothing would make the sum too small: the log has them all.
        (
            {"dp_size": 2, "internal_states": [{"effective_max_running_requests_per_dp": 24}, None]},
            f"[2026-11-30 16:46:45 DP0] {IN_FORCE.format(24)}\n[2026-11-30 16:46:46 DP1 TP0] {IN_FORCE.format(20)}\n",
            44,
        ),
        ({}, f"[2026-11-30 16:46:10 TP0] {IN_FORCE.format(8)}\n", 8),
        # P11(b): the line alone, without and with eight attention-DP ranks.
        ({}, RESET, 48),
        ({"attn_dp_size": 8}, RESET, 48),
        ({"dp_size": 2}, f"[2026-11-30 16:46:45 DP0] {IN_FORCE.format(24)}", None),
        ({"max_running_requests": 2048}, "", None),
        ({}, "", None),
    ],
)
def test_the_cap_is_the_one_in_force_over_all_ranks(info: dict[str, Any], log: str, cap: int | None) -> None:
    assert read_back(info, log).max_running_requests == cap


def test_lines_that_change_a_setting_are_found_once_without_time_and_rank() -> None:
    log = "\r\n".join(
        [
            "[2026-11-30 16:30:26] speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when "
            "speculative_eagle_topk == 1",
            RESET,
            "[2026-11-30 16:30:33] init_cpu_threads_env and shared memory based AllReduce is disabled, only intel amx",
            *(
                f"[2026-11-30 16:30:34 TP{rank}] CustomAllreduce is disabled because it's not supported on more than "
                "two PCIe-only GPUs. To silence this warning, specify disable_custom_all_reduce=True explicitly."
                for rank in range(4)
            ),
            "[2026-11-30 16:30:35 TP0] max_running_requests was reduced from the requested 64 to 20 (per dp worker) "
            "due to the available KV cache capacity.",
            *(
                f"[2026-11-30 16:30:{at}] KV cache pool is full. Retract requests. #retracted_reqs: {at}, #new_tokens"
                for at in (36, 37)
            ),
            "  a client sent: max_running_requests was reduced from the requested 1 to 0",
            "[2026-11-30 16:30:38] Load weight begin. avail mem=20.70 GB",
        ]
    )
    found = changes(log)
    assert [line.split()[0] for line in found] == [
        "speculative_num_draft_tokens",
        "Max",
        "CustomAllreduce",
        "max_running_requests",
        "KV",
    ]
    assert "#retracted_reqs: 36" in found[-1]
