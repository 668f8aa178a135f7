"""A toy tokenizer and a seeded text: what goes in is counted, what comes out is drawn."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

_MASK = (1 << 64) - 1
#: Output words; JSON-safe ASCII, so that streams need no escaping.
_SYLLABLES = ("ba", "co", "di", "fe", "gu", "ha", "jo", "ki", "le", "mu", "na", "po", "qui", "ra", "se", "tu")
_TEXT = [f" {a}{b}{c}" for a in _SYLLABLES for b in _SYLLABLES for c in ("", "n", "s", "r")]
_BYTES = [t.encode() for t in _TEXT]
_SIZE = len(_TEXT)
_PIECES = re.compile(r"\s*\S{1,4}|\s+")


def encode(text: str, vocab_size: int) -> list[int]:
    """Token ids of a text: every run of at most four letters is a token, with the spaces before it."""
    return [token_of(piece, vocab_size) for piece in _PIECES.findall(text)]


def pieces(text: str) -> Iterator[tuple[int, int]]:
    """Where each token of a text begins and ends, in characters."""
    return (match.span() for match in _PIECES.finditer(text))


def token_of(piece: str, vocab_size: int) -> int:
    """The id of one piece of a text."""
    return zlib.crc32(piece.encode()) % vocab_size


def token_bytes(token: int) -> bytes:
    """The text of one token id, a short word with its space, in UTF-8."""
    return _BYTES[token % _SIZE]


def seed_of(seed: int, prompt: tuple[int, ...]) -> int:
    """One number for a prompt under a server's seed: the same prompt is answered by the same text."""
    # hash() of a tuple of ints is not randomised between processes, unlike that of strings.
    return (seed * 0x9E3779B97F4A7C15 + (hash(prompt) & _MASK) * 0xD1B54A32D192ED03 + 1) & _MASK


class TokenSource:
    """The output tokens of one request, in order, whatever batch or draft they were made in.

    `end_chance` is the chance of each token to be the last one (EOS), 0 to ignore EOS.
    """

    __slots__ = ("_end_below", "_state", "_vocab_size")

    def __init__(self, seed: int, vocab_size: int, end_chance: float) -> None:
        self._state = seed
        self._vocab_size = vocab_size
        self._end_below = int(end_chance * (1 << 31))

    def next(self) -> tuple[int, bool]:
        """The next token id and whether it ends the text."""
        # Knuth's MMIX linear congruential generator; the upper bits are the good ones.
        state = self._state = (self._state * 6364136223846793005 + 1442695040888963407) & _MASK
        return (state >> 33) % self._vocab_size, (state >> 2) & 0x7FFFFFFF < self._end_below
