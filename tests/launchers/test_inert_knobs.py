"""Knobs that cannot act on a machine are named before the sweep, and those that can are not."""

from __future__ import annotations

from typing import Any

import pytest

from launchers.sglang.inert import inert_knobs

EIGHT: dict[str, list[Any]] = {"tp-size": [8]}
SEARCHED: dict[str, list[Any]] = {"NCCL_PROTO": [None, "LL", "Simple"], "NCCL_ALGO": [None, "allreduce:tree"]}


def told(flags: dict[str, list[Any]], env: dict[str, list[Any]], nvlink: bool | None = False) -> str:
    return " | ".join(inert_knobs(flags, env, nvlink=nvlink))


@pytest.mark.parametrize("flags", [{}, {"tp-size": [1]}, {"tp": ["1"], "pp-size": [1]}])
def test_with_one_rank_no_nccl_variable_acts(flags: dict[str, list[Any]]) -> None:
    (sentence,) = inert_knobs(flags, SEARCHED, nvlink=None)
    assert sentence.startswith("NCCL_PROTO, NCCL_ALGO do nothing here")
    assert "one rank" in sentence
    # What is fixed is no knob, and other variables are none of NCCL's.
    assert inert_knobs(flags, {"NCCL_DEBUG": ["WARN"], "OMP_NUM_THREADS": [1, 2]}, nvlink=None) == []


@pytest.mark.parametrize("flags", [{"tp-size": [1, 8]}, {"pp-size": [2]}, {"tensor-parallel-size": [2]}])
def test_where_some_trial_has_ranks_the_variables_act(flags: dict[str, list[Any]]) -> None:
    assert told(flags, SEARCHED) == ""


@pytest.mark.parametrize("nvlink", [False, None])
@pytest.mark.parametrize("protocol", ["LL128", "LL,LL128", "^Simple"])
def test_ll128_is_said_to_be_refused_unless_all_is_nvlink(protocol: str, nvlink: bool | None) -> None:
    env = {"NCCL_PROTO": [None, protocol, "LL"]}
    sentence = told(EIGHT, env, nvlink)
    assert f"NCCL_PROTO={protocol} is refused" in sentence
    assert ("PCIe" if nvlink is False else "not known") in sentence
    assert "refused" not in told(EIGHT, env, True)
    assert told(EIGHT, {"NCCL_PROTO": ["LL", "Simple", "^LL128", "nonsense"]}, nvlink) == ""


def test_over_nvlink_custom_all_reduce_serves_decode() -> None:
    sentence = told(EIGHT, SEARCHED, True)
    assert "NCCL_PROTO, NCCL_ALGO" in sentence
    assert "custom all-reduce" in sentence
    assert told({**EIGHT, "disable-custom-all-reduce": [True]}, SEARCHED, True) == ""
    assert told({**EIGHT, "disable-custom-all-reduce": [True, False]}, SEARCHED, True) != ""
    assert told(EIGHT, SEARCHED, None) == ""


def test_what_deterministic_inference_overwrites() -> None:
    env = {**SEARCHED, "NCCL_MIN_CTAS": [4, 8]}
    sentence = told({**EIGHT, "enable-deterministic-inference": [True]}, env)
    assert sentence.startswith("NCCL_ALGO, NCCL_MIN_CTAS do nothing here")
    assert told({**EIGHT, "enable-deterministic-inference": [True, None]}, env) == ""


def test_what_only_nodes_use_between_them() -> None:
    env = {"NCCL_IB_HCA": ["a", "b"]}
    assert "NCCL_IB_HCA does nothing here" in told(EIGHT, env)
    assert told({**EIGHT, "nnodes": [2]}, env) == ""


def test_nvls_without_nvlink() -> None:
    env = {"NCCL_NVLS_ENABLE": [0, 1]}
    assert "NVLink SHARP" in told(EIGHT, env, False)
    assert told(EIGHT, env, None) == ""


def test_custom_all_reduce_is_off_by_itself_on_more_than_two_gpus_without_nvlink() -> None:
    knob = {"disable-custom-all-reduce": [True, False]}
    assert "has it off by itself" in told({**EIGHT, **knob}, {}, False)
    assert told({"tp-size": [2], **knob}, {}, False) == ""
    assert told({**EIGHT, **knob}, {"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": ["1"]}, False) == ""
    assert told({**EIGHT, **knob}, {}, None) == ""
