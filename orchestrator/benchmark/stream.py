"""Decoders of streamed answers: bytes in, counts and a verdict out. They know no sockets and no clocks."""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.benchmark.sse import Event, SSEDecoder

CountTokens = Callable[[str], int]

_DONE = b"[DONE]"
# What is read off an event without parsing it. SGLang 0.5.23 writes compact JSON; inside a text a quote is
# escaped, so these match the structure only. JSON written otherwise does not match and is parsed.
_UNFINISHED = b'"finish_reason":null'
_COUNT_KEY = b',"completion_tokens":'
_COUNT = re.compile(rb',"completion_tokens":(\d+)[,}]')
_MESSAGE_CHARS = 500


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an answer was, decided at the end of its body. `kind` is None for a success."""

    kind: str | None = None
    code: int | None = None
    message: str | None = None
    warning: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    #: None for a failure: nothing is credited.
    output_tokens: int | None = None
    tokens_estimated: bool = False
    spec_verify_steps: int | None = None
    #: Of the output tokens, those of a reasoning model's thoughts, where the server tells.
    reasoning_tokens: int | None = None


def estimate_tokens(text: str) -> int:
    """Tokens of a text by the rule of thumb of four bytes of UTF-8 each; for want of a tokenizer."""
    return math.ceil(len(text.encode("utf-8", "replace")) / 4)


class AnswerStream(ABC):
    """A streamed answer. Feed it the body as it comes, then ask for the verdict."""

    def __init__(self, count_tokens: CountTokens = estimate_tokens) -> None:
        self._count_tokens = count_tokens
        self._decoder = SSEDecoder()
        self._events = 0
        self._head = b""
        #: Output tokens in all that the server told last.
        self._tokens = 0
        self.done = False
        self.finish_reason: str | None = None
        self.error: tuple[str, int | None] | None = None

    @property
    @abstractmethod
    def text(self) -> str:
        """The text so far, where it had to be read: it may be empty when the server counts its tokens."""

    @abstractmethod
    def _take(self, payload: dict[str, Any]) -> int | None:
        """Read one event: output tokens in all after it, 0 if untold, None if it carried no output."""

    @abstractmethod
    def _counts(self) -> Verdict:
        """The server's own counts as a verdict that is otherwise empty; 0 output tokens where it told none."""

    def _skim(self, data: bytes) -> int | None:
        """Output tokens in all after an ordinary event, without parsing it; None if it must be parsed."""
        return None

    def feed(self, chunk: bytes) -> list[int]:
        """One entry for each event in `chunk` that carried output: output tokens in all so far, 0 if untold.

        Role-only deltas, comments and usage frames carry no output.
        """
        if len(self._head) < 200:
            self._head += chunk[:200]
        return self._observe(self._decoder.feed(chunk))

    @property
    def told(self) -> int | None:
        """Output tokens in all that the server told last; None in the middle of an event or after an error."""
        return self._tokens if self._decoder.clean and self.error is None else None

    def skimmed(self, tokens: Sequence[int]) -> None:
        """Events that were taken without this decoder: output tokens in all after each, rising above `told`."""
        self._tokens = tokens[-1]
        self._events += len(tokens)

    def finish(self, cut: str | None = None) -> tuple[list[int], Verdict]:
        """Outputs of an unclosed last event, and the verdict. `cut` says how the transport broke off."""
        late = self._observe(self._decoder.flush()) if cut is None else []
        return late, self._verdict(cut)

    def _skim_count(self, data: bytes) -> int | None:
        match = _COUNT.match(data, max(data.rfind(_COUNT_KEY), 0))
        if match is None or (tokens := int(match[1])) <= self._tokens:
            return None
        self._tokens = tokens
        return tokens

    def _observe(self, events: list[Event]) -> list[int]:
        outputs: list[int] = []
        for event in events:
            if self.error is not None:
                break
            tokens = self._skim(event.data)
            if tokens is None:
                tokens = self._parse(event)
            if tokens is not None:
                outputs.append(tokens)
        self._events += len(outputs)
        return outputs

    def _parse(self, event: Event) -> int | None:
        if event.data == _DONE:
            self.done = True
            return None
        try:
            payload = json.loads(event.data)
        except ValueError:
            self.error = (f"an event holds no JSON: {one_line(event.data.decode('utf-8', 'replace'))}", None)
            return None
        if not isinstance(payload, dict):
            self.error = (f"an event holds no JSON object: {one_line(json.dumps(payload))}", None)
            return None
        if payload.get("error") or payload.get("object") == "error" or event.name == b"error":
            self.error = error_of(payload)
            return None
        try:
            return self._take(payload)
        except (AttributeError, TypeError, KeyError, IndexError, ValueError) as fault:
            self.error = (
                f"an event is not of the API's form ({fault!r}): {one_line(json.dumps(payload))}",
                None,
            )
            return None

    def _verdict(self, cut: str | None) -> Verdict:
        whole = self.done and self.finish_reason is not None
        if self.error is not None:
            message, code = self.error
            return Verdict("stream_error", code, message, finish_reason=self.finish_reason)
        if cut is not None and not whole:
            return Verdict("cut", message=one_line(cut), finish_reason=self.finish_reason)
        if not self._events:
            head = self._head.decode("utf-8", "replace").strip()
            what = f"the answer began: {one_line(head)}" if head else "the body was empty"
            return Verdict("empty", message=f"no output came: {what}", finish_reason=self.finish_reason)
        counts = self._counts()
        if self.finish_reason is None and not (self.done and counts.output_tokens):
            how = "[DONE] came without a finish_reason or usage" if self.done else "neither finish_reason nor [DONE]"
            return Verdict("cut", message=f"the stream ended early: {how} after {self._events} events")
        warning = None
        if cut is not None:
            warning = f"the connection broke after [DONE]: {one_line(cut)}"
        elif not self.done:
            warning = "the stream ended without [DONE]"
        elif self.finish_reason is None:
            warning = "the stream told no finish_reason"
        tokens = counts.output_tokens
        return Verdict(
            warning=warning,
            finish_reason=self.finish_reason,
            prompt_tokens=counts.prompt_tokens,
            cached_tokens=counts.cached_tokens,
            # Each event holds a token at least, however short its text.
            output_tokens=tokens or max(self._events, self._count_tokens(self.text)),
            tokens_estimated=not tokens,
            spec_verify_steps=counts.spec_verify_steps,
            reasoning_tokens=counts.reasoning_tokens,
        )

    def _finish_with(self, reason: object) -> None:
        """Keep a finish reason: a word (OpenAI) or an object with a type (native). `abort` is an error."""
        word = reason.get("type") if isinstance(reason, dict) else reason
        self.finish_reason = str(word)
        if word in ("abort", "error"):
            detail = reason if isinstance(reason, dict) else {}
            message = detail.get("message") or f"the server ended the request: finish_reason {word}"
            self.error = (one_line(str(message)), _code(detail.get("status_code")))


class OpenAIStream(AnswerStream):
    """The stream of /v1/completions or /v1/chat/completions, with usage in each event, at the end, or not."""

    def __init__(self, count_tokens: CountTokens = estimate_tokens) -> None:
        super().__init__(count_tokens)
        self._usage: Mapping[str, Any] = {}
        self._deltas: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._deltas)

    def _skim(self, data: bytes) -> int | None:
        # Parsing is a third of what an event costs. Chat deltas and events without usage are parsed.
        if not data.startswith(b'{"id":') or _UNFINISHED not in data or b',"error":{' in data:
            return None
        return self._skim_count(data) if b'"text":"' in data else None

    def _take(self, payload: dict[str, Any]) -> int | None:
        usage = payload.get("usage")
        told = 0
        if usage:
            self._usage = usage
            told = usage.get("completion_tokens") or 0
        choices = payload.get("choices")
        if not choices:
            return None
        choice = choices[0]
        reason = choice.get("finish_reason")
        if reason is not None:
            self._finish_with(reason)
        text = choice.get("text")
        role = None
        if text is None:
            delta = choice.get("delta") or {}
            role = delta.get("role")
            text = (delta.get("reasoning_content") or "") + (delta.get("content") or "")
        if text:
            self._deltas.append(text)
        elif role is not None or told <= self._tokens:
            # Tokens without text (special ones, half a character) are output all the same.
            return None
        self._tokens = max(self._tokens, told)
        return told

    def _counts(self) -> Verdict:
        details = self._usage.get("prompt_tokens_details")
        return Verdict(
            prompt_tokens=_count(self._usage, "prompt_tokens"),
            cached_tokens=_count(details, "cached_tokens"),
            output_tokens=_count(self._usage, "completion_tokens") or self._tokens,
            # SGLang 0.5.23 has it in the usage itself, OpenAI in its details.
            reasoning_tokens=_first(
                _count(self._usage, "reasoning_tokens"),
                _count(self._usage.get("completion_tokens_details"), "reasoning_tokens"),
            ),
        )


class NativeStream(AnswerStream):
    """The stream of SGLang's /generate. Each event repeats the whole text and all ids so far."""

    def __init__(self, count_tokens: CountTokens = estimate_tokens) -> None:
        super().__init__(count_tokens)
        self._text = ""
        self._meta: Mapping[str, Any] = {}

    @property
    def text(self) -> str:
        return self._text

    def _skim(self, data: bytes) -> int | None:
        # Each event holds the whole answer so far, so parsing them all is quadratic; the count is enough.
        if not data.startswith(b'{"text":'):
            return None
        if data.rfind(_UNFINISHED) < 0:
            return None
        return self._skim_count(data)

    def _take(self, payload: dict[str, Any]) -> int | None:
        self._meta = payload["meta_info"]
        text = payload.get("text") or ""
        grown = len(text) > len(self._text)
        self._text = text
        reason = self._meta.get("finish_reason")
        if reason is not None:
            self._finish_with(reason)
        told = self._meta.get("completion_tokens") or 0
        if told <= self._tokens and not (grown and not told):
            return None
        self._tokens = max(self._tokens, told)
        return told

    def _counts(self) -> Verdict:
        return Verdict(
            prompt_tokens=_count(self._meta, "prompt_tokens"),
            cached_tokens=_count(self._meta, "cached_tokens"),
            output_tokens=_count(self._meta, "completion_tokens") or self._tokens,
            # 0 without speculation: nothing was verified.
            spec_verify_steps=_count(self._meta, "spec_verify_ct") or None,
            reasoning_tokens=_count(self._meta, "reasoning_tokens"),
        )


def spread(told: Sequence[int], total: int) -> tuple[float, ...]:
    """Output tokens in all after each event, ending in `total`.

    `told` holds the server's own count after each event; if any is missing (0), the total is spread
    evenly, since a chunk holds an unknown number of tokens.
    """
    if not told:
        return ()
    if 0 in told:
        return tuple(total * (i + 1) / len(told) for i in range(len(told)))
    counts = list(map(float, told))
    if max(counts) > total:
        counts = [min(count, float(total)) for count in counts]
    counts[-1] = float(total)
    return tuple(counts)


def error_of(payload: Mapping[str, Any]) -> tuple[str, int | None]:
    """Message and code of an error object, nested under `error`, bare, or a mere string."""
    error = payload.get("error") or payload
    if not isinstance(error, Mapping):
        return one_line(str(error)), _code(payload.get("code"))
    message = error.get("message") or error.get("detail") or json.dumps(error)
    kind = error.get("type")
    text = f"{kind}: {message}" if isinstance(kind, str) and kind not in str(message) else str(message)
    return one_line(text), _code(error.get("code", error.get("status_code")))


def error_body(body: bytes) -> tuple[str, int | None]:
    """Message and code of a refusal's body, JSON or not."""
    try:
        payload = json.loads(body)
    except ValueError:
        payload = None
    if isinstance(payload, Mapping):
        return error_of(payload)
    return one_line(body.decode("utf-8", "replace")) or "no message", None


def _count(counts: object, name: str) -> int | None:
    value = counts.get(name) if isinstance(counts, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _first(*counts: int | None) -> int | None:
    return next((count for count in counts if count is not None), None)


def _code(value: object) -> int | None:
    if isinstance(value, str) and value.isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def one_line(text: str) -> str:
    """`text` on one line, shortened to what a record keeps of a message."""
    line = " ".join(text.split())
    return line if len(line) <= _MESSAGE_CHARS else line[: _MESSAGE_CHARS - 1] + "…"
