"""Request bodies: JSON in, what the engine is asked to do out. Refusals carry SGLang's status and text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from launchers.simulated.request import Sampling
from launchers.simulated.tokens import encode
from launchers.simulated.wire import Usage


class BadRequest(Exception):
    """The body is refused with status 400; `kind` is the error object's type."""

    def __init__(self, message: str, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind


@dataclass(frozen=True)
class Limits:
    """What bounds a request, in tokens."""

    context_length: int
    kv_tokens: int
    vocab_size: int

    @property
    def max_length(self) -> int:
        """Longest prompt and output together."""
        return min(self.context_length - 1, self.kv_tokens - 1)

    @property
    def max_input(self) -> int:
        """Longest prompt; recorded from 0.5.23 as five tokens less than the longest sequence."""
        return self.max_length - 5


@dataclass(frozen=True)
class Asked:
    """A parsed generation request."""

    input_ids: tuple[int, ...]
    sampling: Sampling
    stream: bool
    usage: Usage = field(default_factory=Usage)
    rid: str | None = None
    #: Chat completions begin their stream with a role.
    chat: bool = False


def parse_native(body: Any, limits: Limits) -> Asked:
    """A body of /generate. Raises BadRequest."""
    body = _mapping(body)
    given = [name for name in ("text", "input_ids", "input_embeds") if body.get(name) is not None]
    if not given:
        raise BadRequest("Either text, input_ids or input_embeds should be provided.")
    if given == ["input_embeds"]:
        raise BadRequest("The simulated server takes text or input_ids, not input_embeds.")
    ids = _prompt(body[given[0]], limits)
    params = _mapping(body.get("sampling_params") or {}, "sampling_params")
    if "max_new_tokens" in params and params["max_new_tokens"] is None:
        asked = None
    else:
        asked = _integer(params.get("max_new_tokens", 128), "max_new_tokens")
    _check_sampling(params)
    rid = body.get("rid")
    if rid is not None and not isinstance(rid, str):
        raise _invalid("rid", "should be a string", rid)
    return Asked(ids, _sampling(ids, asked, params, limits), _flag(body, "stream"), rid=rid)


def parse_completion(body: Any, limits: Limits, cache_report: bool = False) -> Asked:
    """A body of /v1/completions. Raises BadRequest."""
    body = _mapping(body)
    if body.get("prompt") is None:
        raise _invalid("prompt", "Field required", None)
    ids = _prompt(body["prompt"], limits)
    asked = _integer(body.get("max_tokens") if body.get("max_tokens") is not None else 16, "max_tokens")
    return _openai(body, ids, asked, limits, cache_report)


def parse_chat(body: Any, limits: Limits, cache_report: bool = False) -> Asked:
    """A body of /v1/chat/completions. Raises BadRequest."""
    body = _mapping(body)
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise _invalid("messages", "Field required" if messages is None else "should be a list", messages)
    if not messages:
        raise BadRequest("Messages cannot be empty.")
    text = "".join(f"<|{_mapping(m).get('role')}|>{_content(m)}" for m in messages) + "<|assistant|>"
    ids = tuple(encode(text, limits.vocab_size))
    longest = body.get("max_completion_tokens", body.get("max_tokens"))
    asked = None if longest is None else _integer(longest, "max_completion_tokens")
    return _openai(body, ids, asked, limits, cache_report, chat=True)


def _openai(
    body: Mapping[str, Any],
    ids: tuple[int, ...],
    asked: int | None,
    limits: Limits,
    cache_report: bool,
    chat: bool = False,
) -> Asked:
    _check_sampling(body)
    if body.get("n") not in (None, 1):
        raise BadRequest("The simulated server makes one choice a request: leave n out.")
    options = _mapping(body.get("stream_options") or {}, "stream_options")
    usage = Usage(
        final=bool(options.get("include_usage")),
        continuous=bool(options.get("continuous_usage_stats")),
        cached=cache_report,
    )
    sampling = _sampling(ids, asked, body, limits)
    return Asked(ids, sampling, _flag(body, "stream"), usage, chat=chat)


def _prompt(prompt: Any, limits: Limits) -> tuple[int, ...]:
    """Token ids of a prompt: text, or ids already."""
    if isinstance(prompt, str):
        ids = tuple(encode(prompt, limits.vocab_size))
    elif isinstance(prompt, list) and all(type(t) is int for t in prompt):
        ids = tuple(prompt)
        if ids and (min(ids) < 0 or max(ids) >= limits.vocab_size):
            raise BadRequest(
                f"The input_ids contain values outside the vocabulary [0, {limits.vocab_size}): use its ids."
            )
    else:
        raise BadRequest("The simulated server takes one prompt a request: a string or a list of token ids.")
    if not ids:
        raise BadRequest("The prompt is empty: give at least one token.")
    return ids


def _sampling(ids: tuple[int, ...], asked: int | None, params: Mapping[str, Any], limits: Limits) -> Sampling:
    if len(ids) > limits.max_input:
        raise BadRequest(
            f"The input ({len(ids)} tokens) is longer than the model's context length ({limits.context_length} tokens)."
        )
    room = limits.max_length - len(ids) - 1
    if asked is not None:
        if asked < 0:
            raise BadRequest(f"max_new_tokens must be at least 0, got {asked}.")
        if len(ids) + asked > limits.context_length:
            raise BadRequest(
                "Requested token count exceeds the model's maximum context length of "
                f"{limits.context_length} tokens. You requested a total of {len(ids) + asked} tokens: "
                f"{len(ids)} tokens from the input messages and {asked} tokens for the completion. "
                "Please reduce the number of tokens in the input messages or the completion to fit "
                "within the limit."
            )
    wanted = room if asked is None else min(asked, room)
    return Sampling(max(1, wanted), ignore_eos=_flag(params, "ignore_eos"))


def _check_sampling(params: Mapping[str, Any]) -> None:
    temperature, top_p = params.get("temperature"), params.get("top_p")
    for name, value in (("temperature", temperature), ("top_p", top_p)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise _invalid(name, "should be a valid number", value)
    if temperature is not None and temperature < 0:
        raise BadRequest(f"temperature must be non-negative, got {temperature}.")
    if top_p is not None and not 0 < top_p <= 1:
        raise BadRequest(f"top_p must be in (0, 1], got {top_p}.")


def _content(message: Any) -> str:
    content = _mapping(message).get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def _mapping(value: Any, name: str = "body") -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _invalid(name, "should be an object", value)
    return value


def _integer(value: Any, name: str) -> int:
    if type(value) is not int:
        raise _invalid(name, "should be a valid integer", value)
    return value


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise _invalid(name, "should be a valid boolean", value)
    return bool(value)


def _invalid(name: str, problem: str, value: Any) -> BadRequest:
    """A field of the wrong kind: FastAPI's refusal, which SGLang turns into a 400."""
    return BadRequest(f"body.{name}: {problem}, got {str(value)[:80]!r}", "Bad Request")
