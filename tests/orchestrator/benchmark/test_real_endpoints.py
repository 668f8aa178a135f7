"""A level over every endpoint of a real SGLang: it takes what is sent, and counts the prompts as they were counted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import real_sglang

from launchers.base import LaunchSpec, ServerHandle
from launchers.sglang.launcher import SGLangLauncher
from orchestrator.benchmark.datasets.load import make_prompts
from orchestrator.benchmark.datasets.tokenizer import ModelTokenizer
from orchestrator.benchmark.load import run_level
from orchestrator.offered_load import Load
from orchestrator.workload import Workload

pytestmark = [pytest.mark.real_sglang, pytest.mark.timeout(600)]

USERS = 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    pytest.importorskip("tokenizers")
    launcher = SGLangLauncher(tmp_path_factory.mktemp("logs"), str(real_sglang.PYTHON))
    spec = LaunchSpec(str(real_sglang.MARKOV), real_sglang.FLAGS, real_sglang.ENV)
    with launcher.launch(spec, lambda progress: None, lambda: False) as handle:
        yield handle


def measured(server: ServerHandle, **workload: Any) -> Any:
    level = {"requests_per_user": 3, "min_s": 0.0, "max_s": 300.0, "half_width": None, "warmup_tolerance": None}
    asked = Workload.model_validate({"level": level, **workload})
    prompts = make_prompts(asked, Path(), ModelTokenizer(real_sglang.MARKOV / "tokenizer.json"))
    made = run_level(server.url, asked, Load(USERS), prompts=prompts, model=server.model, api_key=server.api_key)
    record = asyncio.run(made)
    assert [request.error for request in record.requests if not request.succeeded] == []
    assert len(record.requests) == USERS * 4
    return record


@pytest.mark.parametrize("api", ["completion", "chat", "native"])
def test_prompts_are_as_long_as_asked_by_the_servers_own_count(server: ServerHandle, api: str) -> None:
    record = measured(server, api=api, dataset={"kind": "text", "input_tokens": 48, "output_tokens": 6})
    told = {request.prompt_tokens for request in record.requests}
    if api == "chat":
        # The template's own; the message's last word may join what follows.
        assert min(told) > 48
        assert max(told) - min(told) <= 1
    else:
        assert told == {48}
    assert {request.output_tokens for request in record.requests} == {6}


@pytest.mark.parametrize("api", ["completion", "chat", "native"])
def test_every_sampling_parameter_is_taken(server: ServerHandle, api: str) -> None:
    sampling = {
        "temperature": 0.8, "top_p": 0.95, "top_k": 40, "min_p": 0.01, "repetition_penalty": 1.1, "seed": 3,
        "stop": ["\x00never"], "stop_token_ids": [5], "ignore_eos": False,
    }  # fmt: skip
    dataset = {"kind": "text", "input_tokens": 16, "output_tokens": 6}
    for request in measured(server, api=api, dataset=dataset, sampling=sampling).requests:
        assert 1 <= request.output_tokens <= 6
        assert request.finish_reason in ("length", "stop")


def test_what_a_group_shares_is_found_in_the_prefix_cache(server: ServerHandle) -> None:
    dataset = {"kind": "shared_prefix", "groups": 1, "prefix_ratio": 0.75, "input_tokens": 64, "output_tokens": 2}
    record = measured(server, api="native", dataset=dataset)
    assert max(request.cached_tokens for request in record.requests) >= 48
