"""The words that a launcher adds, and which flags it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launchers.base import LaunchSpec
from launchers.command import config_text, private_words, refuse_flags
from launchers.errors import BadArgument
from launchers.identity import Identity

WHO = Identity("sweep-1", "0f0f0f")


def words(**flags: Any) -> list[str]:
    dashed = {name.replace("_", "-"): value for name, value in flags.items()}
    return private_words(LaunchSpec("m", dashed), WHO, 21_100, Path("/private/config.yaml"))


def test_a_start_has_a_name_a_file_with_its_key_and_a_port_for_its_ranks() -> None:
    expected = ["--served-model-name", "sweep-1", "--config", "/private/config.yaml", "--nccl-port", "21100"]
    assert words(tp_size=8) == expected
    assert "0f0f0f" not in words()
    assert json.loads(config_text(WHO)) == {"api-key": "0f0f0f"}


@pytest.mark.parametrize("flags", [{"dp_size": 2}, {"data_parallel_size": "2"}])
def test_replicas_choose_their_own_ports_for_their_ranks(flags: dict[str, Any]) -> None:
    # Each would bind the pinned one.
    assert "--nccl-port" not in words(**flags)


@pytest.mark.parametrize(
    "flags", [{"dp_size": 1}, {"dp_size": 8, "enable_dp_attention": True}, {"attn_dp_size": 8}, {"dp_size": None}]
)
def test_ranks_that_share_one_rendezvous_are_given_its_port(flags: dict[str, Any]) -> None:
    assert words(**flags)[-2:] == ["--nccl-port", "21100"]


@pytest.mark.parametrize(
    "name", ["host", "port", "--nccl-port", "served_model_name", "config", "enable-metrics", "model-path", "model"]
)
def test_flags_that_the_launcher_gives_are_refused(name: str) -> None:
    with pytest.raises(BadArgument, match=r"set by the launcher itself .*leave it out"):
        refuse_flags(LaunchSpec("m", {name: 1}))
    refuse_flags(LaunchSpec("m", {name: None, "max-running-requests": 4}))


def test_a_key_among_the_flags_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadArgument, match="key made for this one start") as caught:
        refuse_flags(LaunchSpec("m", {"api-key": "hunter2"}))
    assert "hunter2" not in str(caught.value)
