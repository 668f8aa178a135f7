"""Prompts from a file of the user's: JSONL, or JSON of ShareGPT's form."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.benchmark.datasets.passages import BEGINNING_CHARS
from orchestrator.benchmark.datasets.prompts import Key, Order, Prompt, Prompts, draw
from orchestrator.benchmark.datasets.sharing import share_in_common
from orchestrator.benchmark.datasets.tokenizer import BYTES_PER_TOKEN, Tokenizer
from orchestrator.datasets import JSONL, ShareGPT
from orchestrator.workload import Api
from orchestrator.yaml_values import ConfigError

#: More prompts than a level sends are not carried to the nodes: a seeded choice of so many.
MAX_PROMPTS = 50_000
#: As sglang.benchmark.serving has it: shorter questions and answers are left out.
_MIN_SHAREGPT_TOKENS = 4
_PEOPLE = ("human", "user")
_A_LINE = "a line is an object with prompt or messages"

#: A prompt's text or messages, and the output tokens that its line asks for; None: the dataset's.
Entry = tuple[str | Sequence[Mapping[str, Any]], int | None]


class FilePrompts(Prompts):
    """Of the datasets `jsonl` and `sharegpt`: each prompt once a level in seeded order, then with `reuse` all again.

    What stands in the file more than once is one prompt, with the output tokens of its first line.
    """

    def __init__(self, dataset: JSONL | ShareGPT, entries: Sequence[Entry]) -> None:
        self._dataset = dataset
        self.reuse = dataset.reuse
        #: How many the file holds, equal ones each counted.
        self.held = len(entries)
        distinct: dict[str, Entry] = {}
        for entry in entries:
            distinct.setdefault(_text(entry), entry)
        entries = list(distinct.values())
        self.unique = len(entries)
        if len(entries) > MAX_PROMPTS:
            order = Order(f"{dataset.seed}/choice", len(entries))
            entries = [entries[order[place]] for place in range(MAX_PROMPTS)]
            self.unique = MAX_PROMPTS
        self._entries = tuple(entries)
        self.shared = share_in_common([_text(entry) for entry in entries], BEGINNING_CHARS)
        self.digest = hashlib.sha256(json.dumps(self._entries, sort_keys=True).encode()).hexdigest()
        self._shuffled: tuple[Key, Order] | None = None

    def prompt(self, key: Key, index: int) -> Prompt:
        """As the file has it."""
        dataset = self._dataset
        if self._shuffled is None or self._shuffled[0] != key:
            self._shuffled = (key, Order(f"{dataset.seed}/{key}", len(self._entries)))
        content, output_tokens = self._entries[self._shuffled[1][index]]
        if output_tokens is None:
            assert dataset.output_tokens is not None, "ShareGPT's entries have their own"
            output_tokens = draw(dataset.output_tokens, f"{dataset.seed}/{key}/{index}/out")
        if isinstance(content, str):
            return Prompt(output_tokens, text=content)
        return Prompt(output_tokens, messages=content)


def _text(entry: Entry) -> str:
    """The same for prompts that a prefix cache takes for the same."""
    content, _ = entry
    return content if isinstance(content, str) else json.dumps(content, sort_keys=True)


def read_jsonl(path: Path, api: Api) -> list[Entry]:
    """The prompts of the file. Raises ConfigError with the line that is wrong."""
    entries: list[Entry] = []
    for number, line in enumerate(_read(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{path}:{number}: is no JSON ({error}): {_A_LINE}") from None
        problem = _problem(found, api)
        if problem:
            raise ConfigError(f"{path}:{number}: {problem}")
        entries.append((found.get("prompt") or found["messages"], found.get("output_tokens")))
    if not entries:
        raise ConfigError(f"{path}: holds no prompt: write an object a line, with prompt or messages")
    return entries


def _problem(line: Any, api: Api) -> str | None:
    """What is wrong with a line of JSONL; None where nothing is."""
    if not isinstance(line, dict):
        return _A_LINE
    given = [name for name in ("prompt", "messages") if line.get(name)]
    if len(given) != 1:
        return "a line has either prompt (text) or messages (of a chat), and not an empty one"
    unknown = sorted(line.keys() - {"prompt", "messages", "output_tokens"})
    if unknown:
        return f"unknown key {unknown[0]!r}; valid here: prompt, messages, output_tokens"
    if "prompt" in line and not isinstance(line["prompt"], str):
        return "prompt is text"
    if "messages" in given:
        if api != "chat":
            return f"messages are a chat's, and the workload's api is {api}: set it to chat, or write a prompt"
        if not _are_messages(line["messages"]):
            return 'messages are a list of {"role": ..., "content": ...}'
    tokens = line.get("output_tokens")
    if tokens is not None and (type(tokens) is not int or tokens < 1):
        return f"output_tokens is a whole number from 1 on, not {tokens!r}"
    return None


def _are_messages(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(message, dict) and isinstance(message.get("role"), str) and "content" in message for message in value
    )


def read_sharegpt(path: Path, dataset: ShareGPT, tokenizer: Tokenizer | None) -> list[Entry]:
    """The first question of each conversation, with the tokens of its answer unless the dataset says its own.

    Left out, as sglang.benchmark.serving does: conversations of fewer than two turns, questions and answers of
    fewer than four tokens. Raises ConfigError.
    """
    try:
        found = json.loads(_read(path))
    except ValueError as error:
        raise ConfigError(f"{path}: is no JSON ({error}): ShareGPT's form is a list of conversations") from None
    if not isinstance(found, list):
        raise ConfigError(f"{path}: holds no list of conversations: for an object a line, take kind: jsonl")
    entries: list[Entry] = []
    for question, answer in _turns(found):
        asked, answered = _count(question, tokenizer), _count(answer, tokenizer)
        too_long = dataset.max_input_tokens is not None and asked > dataset.max_input_tokens
        if min(asked, answered) >= _MIN_SHAREGPT_TOKENS and not too_long:
            entries.append((question, answered if dataset.output_tokens is None else None))
    if not entries:
        limit = f", at most {dataset.max_input_tokens} tokens long" if dataset.max_input_tokens else ""
        raise ConfigError(
            f"{path}: none of its {len(found)} conversations has a question and an answer{limit}: each is an object "
            'with `conversations`, a list of {"from": "human" or "gpt", "value": ...}'
        )
    return entries


def _turns(conversations: list[Any]) -> Iterator[tuple[str, str]]:
    """The first question and its answer of each conversation, the same question once."""
    seen: set[str] = set()
    for conversation in conversations:
        if not isinstance(conversation, dict):
            continue
        turns = conversation.get("conversations") or conversation.get("conversation") or []
        if len(turns) < 2 or not all(isinstance(turn, dict) for turn in turns[:2]):
            continue
        question, answer = turns[0].get("value"), turns[1].get("value")
        asked = turns[0].get("from", "human") in _PEOPLE and question not in seen
        if asked and isinstance(question, str) and isinstance(answer, str):
            seen.add(question)
            yield question, answer


def _count(text: str, tokenizer: Tokenizer | None) -> int:
    if tokenizer is None:
        return math.ceil(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN)
    return len(tokenizer.encode(text).ids)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror or error}): workload.dataset.path means the folder where the "
            "sweep is started"
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is no text in UTF-8 (byte {error.start})") from None
