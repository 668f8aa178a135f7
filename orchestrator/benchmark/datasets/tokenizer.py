"""Tokenizers: of a real model by its files, and the simulated server's own."""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from launchers.simulated.tokens import pieces, token_of

#: For want of a tokenizer: bytes of English text that make a token.
BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Tokens:
    """A text as token ids, and which characters of it each token stands for."""

    ids: array[int]
    #: The first character of each token, and the one behind its last.
    starts: array[int]
    ends: array[int]


class Tokenizer(Protocol):
    """Text to token ids."""

    #: Two with the same name make the same tokens.
    name: str
    #: What the server puts before every text of its own accord (BOS); a prompt of ids has to bring it along.
    lead: tuple[int, ...]

    def encode(self, text: str) -> Tokens:
        """The tokens of a text, without any that are not of it."""


class ModelTokenizer(Tokenizer):
    """A model's own, from its `tokenizer.json`, by Hugging Face's `tokenizers`."""

    def __init__(self, file: Path) -> None:
        # Half a second to import, and most runs do without.
        from tokenizers import Tokenizer as Fast

        content = file.read_bytes()
        self.name = hashlib.sha256(content).hexdigest()
        self._fast: Any = Fast.from_buffer(content)
        # A file may carry what its maker trained with.
        self._fast.no_truncation()
        self._fast.no_padding()
        self.lead = self._lead()

    def encode(self, text: str) -> Tokens:
        """Offsets may leave out the space before a word, as the file has it."""
        encoded = self._fast.encode(text, add_special_tokens=False)
        spans = encoded.offsets
        return Tokens(array("i", encoded.ids), array("i", [s for s, _ in spans]), array("i", [e for _, e in spans]))

    def _lead(self) -> tuple[int, ...]:
        bare, whole = (self._fast.encode("a", add_special_tokens=special).ids for special in (False, True))
        for place in range(len(whole)):
            if whole[place : place + len(bare)] == bare:
                return tuple(whole[:place])
        return ()


class SimulatedTokenizer(Tokenizer):
    """The simulated server's: it counts so."""

    def __init__(self, vocab_size: int) -> None:
        self.lead = ()
        self.name = f"simulated, {vocab_size} ids"
        self._vocab_size = vocab_size

    def encode(self, text: str) -> Tokens:
        """A token for every run of at most four letters, with the spaces before it."""
        spans = list(pieces(text))
        ids = array("i", [token_of(text[start:end], self._vocab_size) for start, end in spans])
        return Tokens(ids, array("i", [s for s, _ in spans]), array("i", [e for _, e in spans]))
