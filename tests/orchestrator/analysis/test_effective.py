"""Settings asked for against settings in force: each true difference is found, and no false one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from launchers.sglang.readback import read_back
from launchers.sglang.rules import judge
from orchestrator.analysis.effective import differences, same
from orchestrator.analysis.rows import Row

Build = Callable[..., Row]
DATA = Path(__file__).parents[2] / "data/readback"
#: As the recorded server was started.
STARTED: dict[str, Any] = {
    "device": "cpu",
    "max-total-tokens": 20_000,
    "max-running-requests": 8,
    "attention-backend": "torch_native",
    "prefill-attention-backend": "intel_amx",
    "decode-attention-backend": "intel_amx",
    "speculative-algorithm": "EAGLE",
    "speculative-draft-model-path": "/models/markov-eagle-0.1",
    "speculative-num-steps": 3,
    "speculative-eagle-topk": 1,
    "speculative-num-draft-tokens": 6,
}


@pytest.fixture
def run(build_row: Build) -> Callable[..., Row]:
    def row(
        flags: Mapping[str, Any],
        *,
        info: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Row:
        """A row of a trial with these settings, whose server answered `info` (default: the recorded one)."""
        recorded = json.loads((DATA / "server_info_eagle.json").read_text()) if info is None else info
        look, verdict, made = read_back(recorded), judge(flags, {}), build_row()
        return dataclasses.replace(
            made,
            trial=dataclasses.replace(
                made.trial,
                requested_flags=dict(flags),
                canonical_flags=verdict.canonical_flags,
                requested_env=dict(env or {}),
            ),
            start=dataclasses.replace(
                made.start,
                effective_settings=look.settings(flags),
                effective_max_running_requests=look.max_running_requests,
                effective_kv_tokens=look.kv_tokens,
                server_environment=dict(environ or {}),
            ),
        )

    return row


def test_a_recorded_server_differs_in_what_it_rewrote_alone(run: Callable[..., Row]) -> None:
    [found] = differences(run(STARTED))
    assert (found.name, found.asked, found.expected, found.in_force) == ("speculative-num-draft-tokens", 6, 4, 4)
    assert found.known
    assert found.text == "speculative-num-draft-tokens asked 6, in force 4"
    assert differences(run(STARTED | {"speculative-num-draft-tokens": 4})) == ()


def test_spelling_and_type_make_no_difference(run: Callable[..., Row]) -> None:
    spelled = {
        "max_total_tokens": "20000",
        "max-running-requests": 8.0,
        "tp": 1,
        "speculative-algorithm": "eagle",
        "speculative-draft-model": "/models/markov-eagle-0.1",
        "disable-radix-cache": False,
        "trust-remote-code": None,
        "allowed-media-domains": [],
        "model-loader-extra-config": {},
        "schedule-conservativeness": 1,
        "flag-that-no-server-tells": 5,
        "speculative-num-steps": 3,
        "speculative-eagle-topk": 1,
        "speculative-num-draft-tokens": 4,
    }
    assert differences(run(spelled)) == ()


def test_every_default_of_the_server_asked_for_is_in_force(run: Callable[..., Row]) -> None:
    """All that a real server resolved, asked for as such: whatever differs then is a false alarm."""
    info = json.loads((DATA / "server_info_eagle.json").read_text())
    asked = read_back(info).settings([])
    del asked["internal_states"]
    assert len(asked) > 200
    assert [d.text for d in differences(run(asked))] == []


@pytest.mark.parametrize(
    ("flag", "value"),
    [("schedule-policy", "lpm"), ("page-size", 16), ("enable-mixed-chunk", True), ("context-length", 1024)],
)
def test_a_setting_that_no_rule_explains_is_found(run: Callable[..., Row], flag: str, value: Any) -> None:
    [found] = differences(run(STARTED | {"speculative-num-draft-tokens": 4, flag: value}))
    assert (found.name, found.asked, found.known) == (flag, value, False)


def test_requests_admitted_are_compared_as_in_force_per_replica(run: Callable[..., Row]) -> None:
    def info(each: int, **sizes: int) -> dict[str, Any]:
        count = max(sizes.values(), default=1)
        states = [{"effective_max_running_requests_per_dp": each}] * count
        return {"max_running_requests": 128, "internal_states": states, **sizes}

    asked = {"max-running-requests": 128}
    [found] = differences(run(asked, info=info(48)))
    assert (found.asked, found.in_force, found.known) == (128, 48, False)
    assert found.text == "max-running-requests asked 128, in force 48"
    # Two whole replicas admit what was asked for, each.
    assert differences(run(asked, info=info(128, dp_size=2))) == ()
    # Eight attention ranks share it, in whole requests: 50 becomes 6 each, as the rule of shares has it.
    [found] = differences(run({"max-running-requests": 50}, info=info(6, attn_dp_size=8)))
    assert (found.in_force, found.known) == (48, True)


def test_a_cap_that_speculation_brings_is_a_known_difference(run: Callable[..., Row]) -> None:
    """P11(b): asked none, 48 in force."""
    info = {"attn_dp_size": 8, "internal_states": [{"effective_max_running_requests_per_dp": 6}] * 8}
    flags = {"speculative-algorithm": "NGRAM"}
    [found] = [d for d in differences(run(flags, info=info)) if d.name == "max-running-requests"]
    assert (found.asked, found.expected, found.in_force, found.known) == (None, 48, 48, True)


def test_a_pool_rounded_to_whole_pages_is_no_difference_and_a_smaller_one_is(run: Callable[..., Row]) -> None:
    asked = {"max-total-tokens": 20_001, "page-size": 16}
    rounded = {"max_total_num_tokens": 20_000, "page_size": 16, "internal_states": []}
    assert differences(run(asked, info=rounded)) == ()
    [found] = differences(run(asked, info=rounded | {"max_total_num_tokens": 12_000}))
    assert found.text == "max-total-tokens asked 20001, in force 12000"


def test_a_variable_that_the_processes_do_not_have_is_found(run: Callable[..., Row]) -> None:
    env = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL", "NCCL_CUMEM_ENABLE": "1"}
    has = {"NCCL_PROTO": "LL", "NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}
    found = differences(run({}, info={"status": "ready", "tp_size": 1}, env=env, environ=has))
    assert [d.text for d in found] == [
        "NCCL_ALGO asked Ring, in force nothing",
        "NCCL_CUMEM_ENABLE asked 1, in force 0",
    ]
    assert differences(run({}, info={}, env=env)) == ()


def test_a_server_that_tells_nothing_differs_in_nothing(run: Callable[..., Row]) -> None:
    assert differences(run(STARTED, info={})) == ()


@pytest.mark.parametrize(
    ("asked", "value", "equal"),
    [
        (4096, "4096", True),
        (0.1, "0.10", True),
        ([8], 8, True),
        ([1, 2], [1, 2], True),
        ([1, 2], [2, 1], False),
        (True, "true", True),
        (True, False, False),
        (None, False, True),
        ('{"a": [1]}', {"a": [1]}, True),
        ("fa3", "fa4", False),
        (0, None, False),
    ],
)
def test_what_counts_as_the_same(asked: object, value: object, equal: bool) -> None:
    assert same(asked, value) is equal
