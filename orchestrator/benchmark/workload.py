"""The requests of a level, ready to send: seeded, every prompt unique."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.workload import SyntheticDataset, Workload

_UNIQUE_PROMPTS = 1_000_000


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


def requests(workload: Workload, key: int | str, model: str = "default") -> Iterator[PreparedRequest]:
    """Endless requests of the level that `key` names; the same arguments give the same ones, byte for byte."""
    build = _openai_body if workload.api == "openai" else _native_body
    path = "/v1/completions" if workload.api == "openai" else "/generate"
    for index in itertools.count():
        body = build(workload, prompt_ids(workload.dataset, key, index), model)
        yield PreparedRequest(
            index,
            path,
            json.dumps(body, separators=(",", ":")).encode(),
            workload.dataset.output_tokens,
            exact=workload.sampling.ignore_eos,
        )


def prompt_ids(dataset: SyntheticDataset, key: int | str, index: int) -> list[int]:
    """Token ids of prompt `index`: random, and led by the digits of the index in base `vocab_size`.

    The digits keep the first `vocab_size` prompts of a level from sharing even one leading token, which a
    prefix cache would match (random ids alone collide among a few hundred prompts), and a million of them
    unique as far as their length allows.
    """
    vocab, length = dataset.vocab_size, dataset.input_tokens
    rng = random.Random(f"{dataset.seed}/{key}/{index}")
    ids = rng.choices(range(vocab), k=length)
    offset = random.Random(f"{dataset.seed}/{key}").randrange(vocab)
    rest, told = index, 1
    for position in range(length):
        rest, digit = divmod(rest, vocab)
        ids[position] = (digit + offset) % vocab
        told *= vocab
        if told >= _UNIQUE_PROMPTS:
            break
    return ids


def _openai_body(workload: Workload, ids: list[int], model: str) -> dict[str, Any]:
    sampling = workload.sampling
    return {
        "model": model,
        "prompt": ids,
        "max_tokens": workload.dataset.output_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "ignore_eos": sampling.ignore_eos,
        "stream": True,
        # Usage in every event: the only way to know how many tokens a chunk holds.
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def _native_body(workload: Workload, ids: list[int], model: str) -> dict[str, Any]:
    sampling = workload.sampling
    return {
        "input_ids": ids,
        "sampling_params": {
            "max_new_tokens": workload.dataset.output_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "ignore_eos": sampling.ignore_eos,
        },
        "stream": True,
    }
