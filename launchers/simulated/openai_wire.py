"""The OpenAI API's answers: text completions and chat completions."""

from __future__ import annotations

import json
from typing import Any

from launchers.simulated.request import Finish, Request
from launchers.simulated.tokens import token_bytes
from launchers.simulated.wire import DONE, Head, Usage, Wire, text_of


class CompletionWire(Wire):
    """/v1/completions."""

    def __init__(self, head: Head, usage: Usage) -> None:
        super().__init__(head)
        self._usage = usage
        self._frame = _frame(head, b"text_completion")
        self._open = self._frame + b'{"index":0,"text":"'
        self._more = b'","logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":'

    def grown(self, request: Request, gained: int) -> bytes:
        """One event, however many tokens; the last one has the finish reason beside its text."""
        text = token_bytes(request.output_ids[-1]) if gained == 1 else text_of(_newest(request, gained))
        middle = self._more if request.finish is None else _openai_finish(request) + b'}],"usage":'
        usage = _usage_json(request, self._usage) if self._usage.continuous else b"null"
        return b"%b%b%b%b}\n\n" % (self._open, text, middle, usage)

    def end(self, request: Request) -> bytes:
        """The usage frame where asked for, and `[DONE]`."""
        if not self._usage.final:
            return DONE
        return b'%b],"usage":%b}\n\n%b' % (self._frame, _usage_json(request, self._usage), DONE)

    def body(self, request: Request) -> dict[str, Any]:
        """Recorded shape of a completion."""
        choice = {"index": 0, "text": text_of(request.output_ids).decode(), "logprobs": None}
        return _openai_body(self.head, "text_completion", choice | _finish_fields(request), request, self._usage)


class ChatWire(Wire):
    """/v1/chat/completions."""

    def __init__(self, head: Head, usage: Usage) -> None:
        super().__init__(head)
        self._usage = usage
        self._begun = False
        self._frame = _frame(head, b"chat.completion.chunk")
        self._open = self._frame + b'{"index":0,"delta":{"reasoning_content":null'
        self._tail = b',"logprobs":null,"finish_reason":null,"matched_stop":null}]'

    def _close(self, request: Request) -> bytes:
        if self._usage.continuous:
            return b',"usage":%b}\n\n' % _usage_json(request, self._usage)
        return b"}\n\n"

    def grown(self, request: Request, gained: int) -> bytes:
        """A role-only delta before the first text; the finish reason follows in an event without text."""
        close = self._close(request)
        out = b""
        if not self._begun:
            self._begun = True
            out = self._open + b',"role":"assistant","content":""}' + self._tail + close
        if gained:
            text = text_of(_newest(request, gained))
            out += b'%b,"content":"%b"}%b%b' % (self._open, text, self._tail, close)
        if request.finish is not None:
            out += self._open + b"}" + _openai_finish(request)[1:] + b"}]" + close
        return out

    def end(self, request: Request) -> bytes:
        """The usage frame where asked for, and `[DONE]`."""
        if not self._usage.final:
            return DONE
        return b'%b],"usage":%b}\n\n%b' % (self._frame, _usage_json(request, self._usage, chat=True), DONE)

    def body(self, request: Request) -> dict[str, Any]:
        """Recorded shape of a chat completion."""
        message = {
            "role": "assistant",
            "content": text_of(request.output_ids).decode(),
            "reasoning_content": None,
        }
        choice = {"index": 0, "message": message, "logprobs": None} | _finish_fields(request)
        return _openai_body(self.head, "chat.completion", choice, request, self._usage)


def _frame(head: Head, kind: bytes) -> bytes:
    """An OpenAI event up to its choices."""
    model = json.dumps(head.model).encode()
    return b'data: {"id":"%b","object":"%b","created":%d,"model":%b,"choices":[' % (
        head.rid.encode(),
        kind,
        head.created_s,
        model,
    )


def _newest(request: Request, gained: int) -> list[int]:
    return request.output_ids[len(request.output_ids) - gained :]


def _finish_fields(request: Request) -> dict[str, Any]:
    matched = request.output_ids[-1] if request.finish is Finish.STOP else None
    return {"finish_reason": str(request.finish), "matched_stop": matched}


def _openai_finish(request: Request) -> bytes:
    matched = b"%d" % request.output_ids[-1] if request.finish is Finish.STOP else b"null"
    reason = str(request.finish).encode()
    return b'","logprobs":null,"finish_reason":"%b","matched_stop":%b' % (reason, matched)


def _usage_json(request: Request, usage: Usage, chat: bool = False) -> bytes:
    prompt, output = len(request.input_ids), len(request.output_ids)
    details = b""
    if usage.cached and request.cached_tokens is not None:
        details = b'"prompt_tokens_details":{"cached_tokens":%d},' % request.cached_tokens
    elif chat:
        details = b'"prompt_tokens_details":null,'
    after = b',"completion_tokens_details":null' if chat else b""
    return b'{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,%b"reasoning_tokens":0%b}' % (
        prompt,
        prompt + output,
        output,
        details,
        after,
    )


def _openai_body(head: Head, kind: str, choice: dict[str, Any], request: Request, usage: Usage) -> dict[str, Any]:
    prompt, output = len(request.input_ids), len(request.output_ids)
    return {
        "id": head.rid,
        "object": kind,
        "created": int(head.created_s),
        "model": head.model,
        "choices": [choice],
        "usage": {
            "prompt_tokens": prompt,
            "total_tokens": prompt + output,
            "completion_tokens": output,
            "prompt_tokens_details": {"cached_tokens": request.cached_tokens or 0} if usage.cached else None,
            "reasoning_tokens": 0,
            "completion_tokens_details": None,
        },
        "metadata": {
            "weight_version": "default",
            "weight_versions": [{"version": "default", "start": 0, "end": output}],
        },
    }
