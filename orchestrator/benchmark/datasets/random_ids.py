"""Prompts of random token ids."""

from __future__ import annotations

import math
import random

from orchestrator.benchmark.datasets.prompts import Key, Prompt, Prompts, draw
from orchestrator.datasets import RandomIds

_UNIQUE_PROMPTS = 1_000_000


class RandomPrompts(Prompts):
    """Of the dataset `random_ids`."""

    def __init__(self, dataset: RandomIds) -> None:
        self._dataset = dataset
        lengths = dataset.input_tokens
        shortest = lengths.fixed or (lengths.uniform[0] if lengths.uniform else None)
        # Of a bell curve's shortest there is next to none.
        if shortest is not None and shortest * math.log(dataset.vocab_size) < math.log(_UNIQUE_PROMPTS):
            self.unique = dataset.vocab_size**shortest

    def prompt(self, key: Key, index: int) -> Prompt:
        """Exactly as long as drawn."""
        dataset = self._dataset
        seed = f"{dataset.seed}/{key}/{index}"
        ids = prompt_ids(dataset, key, index, draw(dataset.input_tokens, f"{seed}/in"))
        return Prompt(draw(dataset.output_tokens, f"{seed}/out"), ids=ids)


def prompt_ids(dataset: RandomIds, key: Key, index: int, length: int) -> list[int]:
    """Token ids of prompt `index`: random, and led by the digits of the index in base `vocab_size`.

    The digits keep the first `vocab_size` prompts of a level from sharing even one leading token, which a
    prefix cache would match (random ids alone collide among a few hundred prompts), and a million of them
    unique as far as their length allows.
    """
    vocab = dataset.vocab_size
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
