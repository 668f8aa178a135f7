"""An unknown flag of the space is told before anything starts, with the name that was meant."""

from __future__ import annotations

from typing import Any

import pytest

from launchers.sglang.flag_check import Flag, check_flags, deprecated_flags

KNOWN = (
    Flag(("model-path", "model")),
    Flag(("tp-size", "tensor-parallel-size"), type="int"),
    Flag(("cuda-graph-bs-decode",), type="int"),
    Flag(("cuda-graph-bs-prefill",), type="int"),
    Flag(("schedule-policy",), choices=("fcfs", "lpm")),
    Flag(("enable-metrics",), bare=True),
    Flag(("ep-size", "ep"), type="int"),
    Flag(("dsa-prefill-backend",)),
    Flag(("page-size",), type="int"),
    Flag(("max-total-tokens",), type="human_readable_int"),
    Flag(("disable-cuda-graph",), bare=True, instead="--cuda-graph-backend-{decode,prefill}=disabled"),
)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("model", ["m"]),
        ("tp-size", [1, "8", None]),
        ("tp", [8]),  # argparse takes a beginning that only one option has
        ("schedule-policy", ["fcfs", None]),
        ("enable-metrics", [True, False, None]),
        ("max-total-tokens", ["20k"]),
        ("cuda-graph-bs-decode", [[1, 2, 4]]),
    ],
)
def test_what_the_server_takes_passes(name: str, values: list[Any]) -> None:
    assert check_flags({name: values}, KNOWN) == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("schedule-polcy", "lpm", ["schedule-polcy is no flag", "did you mean schedule-policy?"]),
        ("cuda-graph-bs", 8, ["only the beginning of several", "cuda-graph-bs-decode or cuda-graph-bs-prefill"]),
        ("nsa-prefill-backend", "x", ["is now called dsa-prefill-backend"]),
        ("nsa-decode-backend", "x", ["nsa-decode-backend is no flag"]),  # its new name is not in this version either
        ("enable-ep-moe", True, ["is gone", "ep-size"]),
        ("zzz", 1, ["zzz is no flag", "sglang serve --help"]),
        ("schedule-policy", "lmp", ["never takes 'lmp'", "did you mean lpm?"]),
        ("schedule-policy", "other", ["it takes fcfs, lpm"]),
        ("enable-metrics", "yes", ["takes no value"]),
        ("page-size", True, ["page-size needs a value"]),
        ("page-size", 1.5, ["takes a whole number: not 1.5"]),
        ("page-size", "big", ["takes a whole number"]),
        ("cuda-graph-bs-decode", [1, "x"], ["takes a whole number: not 'x'"]),
    ],
)
def test_what_it_refuses_is_told_with_what_to_write(name: str, value: Any, words: list[str]) -> None:
    (problem,) = check_flags({name: [value]}, KNOWN)
    assert all(word in problem for word in words), problem


def test_every_problem_is_told_at_once_and_each_value_is_looked_at() -> None:
    problems = check_flags({"x1": [1], "page-size": [1, "a", "b"], "tp-size": [8]}, KNOWN)
    assert len(problems) == 3


def test_deprecated_flags_are_told_with_their_successor() -> None:
    (note,) = deprecated_flags(["disable-cuda-graph", "tp-size", "unknown"], KNOWN)
    assert note.startswith("disable-cuda-graph is deprecated")
    assert "cuda-graph-backend-{decode,prefill}=disabled" in note
    assert "--" not in note
