"""Prompts cut from the corpus: passages of an exact number of tokens, no two of a level with the same beginning."""

from __future__ import annotations

import hashlib
import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from importlib import resources

from orchestrator.benchmark.datasets.prompts import Key, Order, Prompt, Prompts, draw
from orchestrator.benchmark.datasets.recount import Recount
from orchestrator.benchmark.datasets.tokenizer import BYTES_PER_TOKEN, Tokenizer, Tokens
from orchestrator.datasets import SharedPrefix, Text

_FILES = ("opticks.txt", "code.txt")
_WORD = re.compile(r"(?<=\s)[A-Za-z]")
#: Two passages share fewer characters than this at their beginning: some five tokens, which a prefix cache may match.
BEGINNING_CHARS = 24
#: How many texts are counted again to say how exact their lengths are.
_CHECKED = 32


def corpus() -> str:
    """The text that ships with the project, in ASCII."""
    folder = resources.files(__package__) / "corpus"
    return "\n".join((folder / name).read_text(encoding="ascii") for name in _FILES)


class Passages:
    """A text and the places where passages begin: at words whose next characters stand at no earlier one."""

    def __init__(self, text: str, tokenizer: Tokenizer | None, *, as_text: bool = False) -> None:
        """`as_text`: texts will be wanted, though there is a tokenizer."""
        self._text = text
        self._tokens: Tokens | None = None if tokenizer is None else tokenizer.encode(text)
        self.lead = () if tokenizer is None else tokenizer.lead
        self._chars = array("i", self._places())
        if not self._chars:
            raise ValueError("the text has no word to begin a passage with")
        self._recount: Recount | None = None
        if tokenizer is not None and self._tokens is not None and as_text:
            self._recount = Recount(text, self._tokens, tokenizer, self._chars)
        digest = hashlib.sha256(text.encode())
        if tokenizer is not None:
            digest.update(tokenizer.name.encode())
        self.digest = digest.hexdigest()

    def _places(self) -> Iterator[int]:
        seen: set[str] = set()
        last = -1
        for match in _WORD.finditer(self._text):
            char = match.start()
            beginning = self._text[char : char + BEGINNING_CHARS]
            token = char if self._tokens is None else self._token(char)
            # The very end is too short to differ by.
            if len(beginning) == BEGINNING_CHARS and beginning not in seen and token != last:
                seen.add(beginning)
                last = token
                yield char

    def _token(self, char: int) -> int:
        """The token that the character is part of."""
        assert self._tokens is not None
        return bisect_right(self._tokens.starts, char) - 1

    @property
    def exact(self) -> bool:
        """Whether tokens were counted, not estimated."""
        return self._tokens is not None

    @property
    def count(self) -> int:
        """Places where a passage may begin."""
        return len(self._chars)

    def ids(self, place: int, length: int) -> list[int]:
        """The passage of exactly `length` token ids; behind the end of the text its beginning follows."""
        assert self._tokens is not None, "only a tokenizer makes ids"
        begin, found = self._token(self._chars[place]), array("i")
        while len(found) < length:
            found.extend(self._tokens.ids[begin : begin + length - len(found)])
            begin = 0
        return found.tolist()

    def text(self, place: int, length: int, *, alone: bool = True) -> str:
        """The passage as text that counts `length` tokens, or as near as can be; by bytes without a tokenizer.

        `alone`: it is not put behind another and a space.
        """
        char, parts = self._chars[place], []
        while length > 0:
            if self._tokens is None:
                end = min(char + length * BYTES_PER_TOKEN, len(self._text))
                length -= -(-(end - char) // BYTES_PER_TOKEN)
            else:
                begin = self._token(char)
                stop, total = begin + length, len(self._tokens.ids)
                if self._recount is not None and stop < total:
                    stop = self._recount.stop(char, begin, length, alone=alone)
                    length = 0
                else:
                    length = max(stop - total, 0)
                end = self._tokens.ends[min(stop, total) - 1]
            parts.append(self._text[char:end])
            char = 0
        return "".join(parts)


class PassagePrompts(Prompts):
    """Of the datasets `text` and `shared_prefix`: as token ids where a tokenizer counts and ids can be sent."""

    def __init__(self, dataset: Text | SharedPrefix, passages: Passages, *, as_text: bool) -> None:
        self._dataset = dataset
        self._passages = passages
        self._as_text = as_text or not passages.exact
        self.digest = passages.digest
        self.unique = passages.count
        self.shared = dataset.prefix_ratio if isinstance(dataset, SharedPrefix) else 0.0
        #: The level whose shuffle is at hand.
        self._shuffled: tuple[Key, Order, Order] | None = None

    def prompt(self, key: Key, index: int) -> Prompt:
        """Of as many tokens as drawn, those before the text included; a chat's template adds its own."""
        dataset, passages = self._dataset, self._passages
        seed = f"{dataset.seed}/{key}/{index}"
        order, prefixes = self._orders(key)
        place = order[index]
        length = draw(dataset.input_tokens, f"{seed}/in")
        output_tokens = draw(dataset.output_tokens, f"{seed}/out")
        shared, group = 0, 0
        if isinstance(dataset, SharedPrefix):
            # At least one token of its own, whatever the rounding.
            shared = min(max(round(dataset.prefix_ratio * length), 1), length - 1)
            group = prefixes[index % dataset.groups]
        if self._as_text:
            own = passages.text(place, length - shared, alone=not shared)
            return Prompt(output_tokens, text=f"{passages.text(group, shared)} {own}" if shared else own)
        ids = [*passages.lead, *passages.ids(group, shared)] if shared else list(passages.lead)
        del ids[shared or length :]
        return Prompt(output_tokens, ids=ids + passages.ids(place, length - len(ids)))

    def _orders(self, key: Key) -> tuple[Order, Order]:
        if self._shuffled is None or self._shuffled[0] != key:
            seed, count = f"{self._dataset.seed}/{key}", self._passages.count
            self._shuffled = (key, Order(seed, count), Order(f"{seed}/prefix", count))
        return self._shuffled[1:]


def text_error(prompts: PassagePrompts, tokenizer: Tokenizer, key: Key = 0) -> int:
    """By how many tokens texts are off what was drawn for them, at most, among the first of a level."""
    worst = 0
    for index in range(_CHECKED):
        text = prompts.prompt(key, index).text
        if text is not None:
            asked = draw(prompts._dataset.input_tokens, f"{prompts._dataset.seed}/{key}/{index}/in")
            worst = max(worst, abs(len(tokenizer.encode(text).ids) - asked))
    return worst
