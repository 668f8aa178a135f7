"""The requests of a level, ready to send: seeded, every prompt unique unless the workload asks for reuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.benchmark.datasets.load import make_prompts
from orchestrator.benchmark.datasets.prompts import Key, Prompt, Prompts
from orchestrator.workload import Api, Sampling, Workload

PATHS: dict[Api, str] = {"completion": "/v1/completions", "chat": "/v1/chat/completions", "native": "/generate"}


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """One request with its body made, so that sending costs no thought."""

    #: Position among the level's requests, from 0.
    index: int
    path: str
    body: bytes
    #: Output tokens asked for, at most.
    output_tokens: int
    #: Fewer are not what was asked for: the end-of-sequence token is ignored.
    exact: bool = False


def requests(
    workload: Workload, key: Key, model: str = "default", prompts: Prompts | None = None
) -> Iterator[PreparedRequest]:
    """The requests of the level `key`; the same arguments give the same ones, byte for byte. They end where the prompts
    do, see `Prompts.level`.

    `prompts` is what `make_prompts` made of the workload's dataset; None: made here, lengths by estimate.
    """
    supply = prompts or make_prompts(workload, Path.cwd())
    body = {"completion": _completion, "chat": _chat, "native": _native}[workload.api]
    path, exact = PATHS[workload.api], workload.sampling.exact
    for index, prompt in enumerate(supply.level(key)):
        content = json.dumps(body(prompt, workload.sampling, model), separators=(",", ":")).encode()
        yield PreparedRequest(index, path, content, prompt.output_tokens, exact)


def _completion(prompt: Prompt, sampling: Sampling, model: str) -> dict[str, Any]:
    content = prompt.text if prompt.ids is None else prompt.ids
    return {"model": model, "prompt": content, "max_tokens": prompt.output_tokens} | _openai(sampling)


def _chat(prompt: Prompt, sampling: Sampling, model: str) -> dict[str, Any]:
    messages = prompt.messages or [{"role": "user", "content": prompt.text}]
    return {"model": model, "messages": messages, "max_completion_tokens": prompt.output_tokens} | _openai(sampling)


def _openai(sampling: Sampling) -> dict[str, Any]:
    return {
        **_parameters(sampling, seed="seed"),
        "stream": True,
        # Usage in every event: the only way to know how many tokens a chunk holds.
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def _native(prompt: Prompt, sampling: Sampling, model: str) -> dict[str, Any]:
    content = {"text": prompt.text} if prompt.ids is None else {"input_ids": prompt.ids}
    parameters = {"max_new_tokens": prompt.output_tokens} | _parameters(sampling, seed="sampling_seed")
    return {**content, "sampling_params": parameters, "stream": True}


def _parameters(sampling: Sampling, *, seed: str) -> dict[str, Any]:
    """The parameters by SGLang's names; only the seed's differs between its APIs."""
    told: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "ignore_eos": sampling.ignore_eos,
    }
    if sampling.seed is not None:
        told[seed] = sampling.seed
    if sampling.stop:
        told["stop"] = sampling.stop
    if sampling.stop_token_ids:
        told["stop_token_ids"] = sampling.stop_token_ids
    return told
