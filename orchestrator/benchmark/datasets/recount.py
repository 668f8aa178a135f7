"""How a text that is cut out counts otherwise than in its place: a word without its space, a word cut in two. Pure."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable

from orchestrator.benchmark.datasets.tokenizer import Tokenizer, Tokens

_WORD = re.compile(r"\S+")
#: How many tokens around the wanted end are tried for one at which the text counts as asked.
_REACH = 8


class Recount:
    """For a text and its tokens, by how many tokens a passage grows by where it begins and where it ends."""

    def __init__(self, text: str, tokens: Tokens, tokenizer: Tokenizer, begins: Iterable[int]) -> None:
        self._text, self._tokens, self._tokenizer = text, tokens, tokenizer
        self._counted: dict[str, int] = {}
        #: By first character, for passages that begin there without the space before.
        self._begin: dict[int, int] = {}
        #: By last token.
        self._end = array("b", bytes(len(tokens.ids)))
        wanted = set(begins)
        for word in _WORD.finditer(text):
            self._see(*word.span(), begins=word.start() in wanted)
        self._counted.clear()

    def stop(self, char: int, begin: int, length: int, *, alone: bool) -> int:
        """The token behind the last one of a passage from `char`, in token `begin`, that counts `length` tokens.

        `alone`: nothing stands before it. As near as can be where no end fits.
        """
        shift = self._begin.get(char, 0) if alone else 0
        wanted = begin + length - shift
        near = range(max(wanted - _REACH, begin + 1), min(wanted + _REACH, len(self._end)) + 1)
        return min(near, key=lambda stop: (abs(stop + self._end[stop - 1] - wanted), abs(stop - wanted)))

    def _see(self, first: int, behind: int, *, begins: bool) -> None:
        if begins:
            in_place = self._token(behind - 1) - self._token(first) + 1
            self._begin[first] = self._count(self._text[first:behind]) - in_place
        space = max(first - 1, 0)
        begin = self._token(space)
        if self._tokens.ends[begin] <= space:
            # The space is in no token, as where offsets are trimmed.
            begin += 1
        for token in range(self._token(first), self._token(behind - 1)):
            shift = self._count(self._text[space : self._tokens.ends[token]]) - (token - begin + 1)
            self._end[token] = max(-_REACH, min(shift, _REACH))

    def _token(self, char: int) -> int:
        return max(bisect_right(self._tokens.starts, char) - 1, 0)

    def _count(self, text: str) -> int:
        found = self._counted.get(text)
        if found is None:
            found = self._counted[text] = len(self._tokenizer.encode(text).ids)
        return found
