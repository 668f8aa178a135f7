"""What a sweep will send, made ready before anything starts: files read, lengths counted, doubts told."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launchers.sglang.model_files import NotLocal, find_model
from launchers.simulated.profile import load_profile
from orchestrator.analysis.validity import MAX_CACHED_SHARE
from orchestrator.benchmark.datasets.files import FilePrompts
from orchestrator.benchmark.datasets.load import make_prompts, needs_tokenizer
from orchestrator.benchmark.datasets.prompts import Prompts, mean_of_bell
from orchestrator.benchmark.datasets.tokenizer import (
    BYTES_PER_TOKEN,
    ModelTokenizer,
    SimulatedTokenizer,
    Tokenizer,
)
from orchestrator.config import SimulatedLauncher, SweepConfig
from orchestrator.datasets import JSONL, Lengths, RandomIds, SharedPrefix, ShareGPT, Text
from orchestrator.workload import Workload
from orchestrator.yaml_values import ConfigError

_ALGORITHM = "speculative-algorithm"
#: How far the mean of drawn lengths may be off the one that was written, relative, before it is told.
_MEAN_OFF = 0.05
#: Flags that say where a model is looked for.
_WHERE = {"revision": "revision", "cache": "download-dir"}


def load_prompts(config: SweepConfig, folder: Path, inherited: Mapping[str, str] = os.environ) -> Prompts:
    """The prompts of a sweep whose launcher is resolved, for all of its nodes: they travel, no node reads a file.

    `folder` is where the sweep was started, `inherited` its environment. Where the model's tokenizer is not at
    hand, lengths are estimated and `warnings` say so. Raises ConfigError for a file that cannot be used, or that
    holds fewer prompts than a level surely sends.
    """
    workload = config.workload
    tokenizer, why = None, None
    if needs_tokenizer(workload.dataset):
        tokenizer, why = _tokenizer(config, folder, inherited)
    prompts = make_prompts(workload, folder, tokenizer)
    if why is not None:
        text = f"lengths of prompts are estimated, {BYTES_PER_TOKEN} bytes a token: {why}; the server's own count "
        prompts.warnings += (f"{text}stands in prompt_tokens",)
    _check_enough(workload, prompts)
    return prompts


def fewest_requests(workload: Workload) -> int:
    """Requests that the largest level sends at least, warm-up included."""
    level = workload.level
    users = max(workload.concurrency, default=0)
    closed = users * (level.requests_per_user + level.warmup_requests_per_user)
    return max(closed, level.min_requests if workload.request_rate else 0)


def _check_enough(workload: Workload, prompts: Prompts) -> None:
    """Raises ConfigError where prompts would have to come again; warns of what is asked for and costs no prefill."""
    dataset, needed = workload.dataset, fewest_requests(workload)
    named = dataset.path if isinstance(dataset, JSONL | ShareGPT) else dataset.kind
    if prompts.unique is not None and prompts.unique < needed:
        holds = f"{named} holds {prompts.unique:,} distinct prompts"
        if isinstance(prompts, FilePrompts) and prompts.held > prompts.unique:
            holds += f" ({prompts.held:,} with those that stand there more than once)"
        if not prompts.reuse:
            more = "Give more prompts, measure less (workload.concurrency, workload.level), or say `reuse: true`"
            if not isinstance(prompts, FilePrompts):
                more = "Measure less (workload.concurrency, workload.level), or take prompts of your own (jsonl)"
                if isinstance(dataset, RandomIds):
                    more = "Take a larger vocab_size or longer input_tokens, or measure less (workload.level)"
            raise ConfigError(
                f"workload.dataset: {holds}, and the largest level sends {needed:,} at least; one that comes again is "
                f"found in the prefix cache and costs no prefill. {more}"
            )
        prompts.warnings += (
            f"{holds} for {needed:,} requests and more: those that come again are found in the prefix cache",
        )
    if isinstance(prompts, FilePrompts) and prompts.shared > MAX_CACHED_SHARE:
        prompts.warnings += (
            f"of the text of {named} {100 * prompts.shared:.0f} % stands at the beginning of another prompt too: so "
            "much may come out of the prefix cache and cost no prefill",
        )


def _tokenizer(config: SweepConfig, folder: Path, inherited: Mapping[str, str]) -> tuple[Tokenizer | None, str | None]:
    """The tokenizer that the servers will count with, or why there is none at hand."""
    if isinstance(config.launcher, SimulatedLauncher):
        return SimulatedTokenizer(load_profile(config.launcher.profile).engine.vocab_size), None
    flags = config.server.flags
    name = str(flags.get("tokenizer-path", config.model))
    env = dict(inherited) | {variable: str(value) for variable, value in config.server.env.items()}
    given = {key: str(flags[flag]) for key, flag in _WHERE.items() if flag in flags}
    try:
        found = find_model(name, env, folder=folder, weights=False, **given)
    except NotLocal as error:
        return None, f"the tokenizer of {name} is not on this machine ({error})"
    file = None if found is None else found.folder / "tokenizer.json"
    if file is None or not file.is_file():
        return None, f"{name} has no tokenizer.json here"
    try:
        return ModelTokenizer(file), None
    except ImportError:
        return None, "the package tokenizers is not installed here (`pip install tokenizers`)"
    except Exception as error:  # The library raises nothing more special.
        raise ConfigError(f"{file}: is no tokenizer that can be used: {error}") from None


def prompt_warnings(workload: Workload, flags: Mapping[str, Sequence[Any]]) -> tuple[str, ...]:
    """What prompts of this kind cannot tell of these servers, one line each.

    `flags`: of each flag of the study every value that it may get; None: left out.
    """
    dataset = workload.dataset
    algorithms = {str(value).upper() for value in flags.get(_ALGORITHM, ()) if value is not None}
    found = []
    if algorithms and isinstance(dataset, RandomIds) and not dataset.natural:
        found.append(
            "the dataset is random_ids, and speculation is searched or on: no model writes such text, so what a "
            "drafter accepts of it means nothing. Take `text`, or prompts of your own (jsonl, sharegpt)"
        )
    if "NGRAM" in algorithms and isinstance(dataset, Text | SharedPrefix):
        found.append(
            "NGRAM drafts from all text that the server has seen, and passages of the corpus overlap: it accepts more "
            "than it would of strangers' prompts. Take prompts of your own (jsonl, sharegpt)"
        )
    for name in ("input_tokens", "output_tokens"):
        lengths: Lengths | None = getattr(dataset, name, None)
        bell = None if lengths is None else lengths.normal or lengths.lognormal
        mean = None if lengths is None else mean_of_bell(lengths)
        if bell is not None and mean is not None and abs(mean / bell.mean - 1) > _MEAN_OFF:
            found.append(
                f"workload.dataset.{name}: lengths have a mean of {mean:,.0f} tokens, not {bell.mean:,.0f}, since "
                f"draws outside of {bell.min:,} to {bell.max or 'any'} are drawn again. Where the mean matters take a "
                "smaller std, or bounds further off"
            )
    return tuple(found)


def sent_ids(workload: Workload) -> int:
    """Token ids from 0 up to here, exclusive, are drawn at random; 0 where prompts are the model's own tokens."""
    return workload.dataset.vocab_size if isinstance(workload.dataset, RandomIds) else 0
