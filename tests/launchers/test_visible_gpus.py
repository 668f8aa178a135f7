"""Which GPUs a server sees: given explicitly, in the host's order, and nonsense refused (P26)."""

from __future__ import annotations

import pytest

from launchers.visible import visible_gpus

EIGHT = ["NVIDIA H200"] * 8


@pytest.mark.parametrize(
    ("inherited", "wanted", "seen"),
    [
        (None, 8, "0,1,2,3,4,5,6,7"),
        (None, 2, "0,1"),
        (None, 0, ""),
        ("3,5", 1, "3"),
        ("3,5", 2, "3,5"),
        ("5,3", 2, "5,3"),  # never sorted, never swapped
        (" 3 , 5 ", 2, "3,5"),
        ("GPU-aaaa,GPU-bbbb", 2, "GPU-aaaa,GPU-bbbb"),
        ("MIG-aaaa", 1, "MIG-aaaa"),
        ("", 0, ""),
        ("NoDevFiles", 0, ""),
        ("-1", 0, ""),
    ],
)
def test_p26_the_server_is_given_an_explicit_list_in_the_hosts_order(
    inherited: str | None, wanted: int, seen: str
) -> None:
    assert visible_gpus(inherited, wanted, EIGHT) == seen


@pytest.mark.parametrize(
    ("inherited", "wanted", "told"),
    [
        ("0,1,2,3,0", 4, "names GPU 0 twice"),
        ("GPU-aaaa,GPU-aaaa", 2, "twice"),
        ("0,00", 2, "twice"),
        ("0,8", 1, "names GPU 8, but this machine's are 0 to 7"),
        ("0,first", 1, "'first' is no GPU"),
        ("0,,1", 1, "'' is no GPU"),
        ("0;1", 1, "is no GPU"),
        ("3,5", 9, "9 GPUs are asked for, CUDA_VISIBLE_DEVICES='3,5' shows 2"),
        ("", 1, "shows 0"),
        ("NoDevFiles", 1, "shows 0"),
        (None, 9, "9 GPUs are asked for, the machine has 8"),
    ],
)
def test_p26_what_cuda_would_take_for_fewer_gpus_is_refused(inherited: str | None, wanted: int, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        visible_gpus(inherited, wanted, EIGHT)


def test_p26_a_machine_without_gpus_shows_none() -> None:
    assert visible_gpus(None, 0, []) == ""
    with pytest.raises(ValueError, match="this machine's are none"):
        visible_gpus("0", 0, [])
