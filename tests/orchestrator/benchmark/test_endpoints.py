"""A level over every endpoint of the simulated server: prompts as long as asked, answers counted by the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launchers.base import LaunchSpec, ServerHandle
from launchers.simulated.launcher import SimulatedLauncher
from orchestrator.benchmark.datasets.load import make_prompts
from orchestrator.benchmark.datasets.tokenizer import SimulatedTokenizer
from orchestrator.benchmark.load import run_level
from orchestrator.offered_load import Load
from orchestrator.workload import Workload


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    launcher = SimulatedLauncher(tmp_path_factory.mktemp("logs"), "tiny", 1000.0)
    spec = LaunchSpec("tiny", {}, {}, study_marker="endpoints", run_marker="now")
    with launcher.launch(spec, lambda progress: None, lambda: False) as handle:
        yield handle


def measured(server: ServerHandle, api: str, dataset: dict[str, Any], **workload: Any) -> Any:
    level = {"requests_per_user": 3, "min_s": 0.0, "max_s": 60.0, "half_width": None, "warmup_tolerance": None}
    asked = Workload.model_validate({"api": api, "dataset": dataset, "level": level, **workload})
    prompts = make_prompts(asked, Path(), SimulatedTokenizer(32_000))
    story = run_level(server.url, asked, Load(4), prompts=prompts, model=server.model, api_key=server.api_key)
    record = asyncio.run(story)
    assert record.gave_up is None
    assert [request.error for request in record.requests if not request.succeeded] == []
    return record


@pytest.mark.parametrize("api", ["completion", "chat", "native"])
def test_the_server_counts_what_was_asked_of_it(server: ServerHandle, api: str) -> None:
    record = measured(server, api, {"kind": "text", "input_tokens": 64, "output_tokens": 12})
    told = {request.prompt_tokens for request in record.requests}
    if api == "chat":
        # The template's own tokens are the same for each, give or take the one that the message's first word joins.
        assert min(told) > 64
        assert max(told) - min(told) <= 1
    else:
        assert told == {64}
    for request in record.requests:
        assert (request.output_tokens, request.tokens_estimated, request.warning) == (12, False, None)
        assert request.event_tokens[-1] == 12
        assert request.reasoning_tokens == 0


def test_drawn_lengths_reach_the_server(server: ServerHandle) -> None:
    lengths = {"input_tokens": {"uniform": [16, 64]}, "output_tokens": {"uniform": [4, 24]}}
    record = measured(server, "completion", {"kind": "text", **lengths})
    assert len({request.prompt_tokens for request in record.requests}) > 3
    assert len({request.output_tokens for request in record.requests}) > 3
    assert all(16 <= request.prompt_tokens <= 64 for request in record.requests)
    assert all(4 <= request.output_tokens <= 24 for request in record.requests)


def test_the_prefix_cache_finds_what_a_group_shares_and_of_other_text_next_to_nothing(server: ServerHandle) -> None:
    size = {"input_tokens": 128, "output_tokens": 4, "seed": 5}
    shared = measured(server, "native", {"kind": "shared_prefix", "groups": 2, "prefix_ratio": 0.75, **size})
    # The first of each group prefill its prefix.
    assert sorted(request.cached_tokens for request in shared.requests)[-4:] >= [96, 96, 96, 96]
    alone = measured(server, "native", {"kind": "text", **size})
    assert max(request.cached_tokens for request in alone.requests) < 8


def test_an_answer_may_end_by_itself_and_is_no_oddity_then(server: ServerHandle) -> None:
    dataset = {"kind": "text", "input_tokens": 16, "output_tokens": 400}
    record = measured(server, "completion", dataset, sampling={"ignore_eos": False})
    ended = [request for request in record.requests if request.finish_reason == "stop"]
    assert ended
    assert [request.warning for request in ended if request.warning] == []
