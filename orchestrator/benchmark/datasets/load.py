"""A workload's dataset, made into prompts."""

from __future__ import annotations

import functools
from pathlib import Path

from orchestrator.benchmark.datasets.files import FilePrompts, read_jsonl, read_sharegpt
from orchestrator.benchmark.datasets.passages import PassagePrompts, Passages, corpus, text_error
from orchestrator.benchmark.datasets.prompts import Prompts
from orchestrator.benchmark.datasets.random_ids import RandomPrompts
from orchestrator.benchmark.datasets.tokenizer import Tokenizer
from orchestrator.datasets import JSONL, Dataset, RandomIds, ShareGPT
from orchestrator.workload import Workload


def needs_tokenizer(dataset: Dataset) -> bool:
    """Whether lengths in tokens are wanted of text."""
    if isinstance(dataset, ShareGPT):
        return dataset.output_tokens is None or dataset.max_input_tokens is not None
    return not isinstance(dataset, RandomIds | JSONL)


def make_prompts(workload: Workload, folder: Path, tokenizer: Tokenizer | None = None) -> Prompts:
    """The prompts of a workload; relative paths mean `folder`. Takes a second where a tokenizer is at work.

    Raises ConfigError for a file that cannot be used.
    """
    dataset = workload.dataset
    if isinstance(dataset, RandomIds):
        return RandomPrompts(dataset)
    if isinstance(dataset, JSONL):
        return FilePrompts(dataset, read_jsonl(folder / dataset.path, workload.api))
    if isinstance(dataset, ShareGPT):
        return FilePrompts(dataset, read_sharegpt(folder / dataset.path, dataset, tokenizer))
    as_text = workload.api == "chat"
    passages = _estimated() if tokenizer is None else Passages(corpus(), tokenizer, as_text=as_text)
    prompts = PassagePrompts(dataset, passages, as_text=as_text)
    if tokenizer is not None and (error := text_error(prompts, tokenizer)):
        prompts.warnings = (
            f"prompts are sent as text, whose length is off what was asked by up to {error} token(s); the server's own "
            "count stands in prompt_tokens",
        )
    return prompts


@functools.cache
def _estimated() -> Passages:
    return Passages(corpus(), None)
