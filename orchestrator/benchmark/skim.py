"""The ordinary events of a chunked answer, many at once, by a few scans over their bytes.

What is not of exactly the form that SGLang writes (0.5.23: a chunk for each event, compact JSON, usage in every
event) is left to the strict decoders, `framing` and `stream`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from operator import lt

#: How a chunk of one event ends: the event's blank line and the chunk's line end.
EVENT_END = b"\n\n\r\n"
_WORD = rb'[^"\\\r\n]*'
_STRING = rb'[^"\\\r\n]*(?:\\[^\r\n][^"\\\r\n]*)*'
#: An event of /v1/completions with output and usage, not the last of its answer. The groups are what stays the same
#: from one event to the next.
_COMPLETION = re.compile(
    rb"[0-9a-f]{1,7}\r\n"
    rb'(data: \{"id":"' + _WORD + rb'","object":"text_completion","created":\d+,"model":"' + _WORD + rb'",'
    rb'"choices":\[\{"index":0,"text":")' + _STRING + rb'(","logprobs":null,"finish_reason":null,'
    rb'"matched_stop":null\}\],"usage":\{"prompt_tokens":(\d+),"total_tokens":)\d+(,"completion_tokens":)(\d{1,9})'
    rb'((?:,"prompt_tokens_details":(?:null|\{"cached_tokens":\d+\}))?(?:,"reasoning_tokens":\d+)?'
    rb'(?:,"completion_tokens_details":(?:null|\{"reasoning_tokens":\d+\}))?\}\})'
)
_ESCAPED = re.compile(rb"\\[^\n]")
#: Events at the end of an answer that are of another form: the last output, the usage, [DONE].
_OTHERS_AT_END = 4
_DIGITS = 9


class _Tails(dict[int, bytes]):
    """What follows the text in an event of an answer, by the output tokens in all."""

    def __init__(self, before_total: bytes, prompt_tokens: int, before_count: bytes, after: bytes) -> None:
        self._before_total, self._before_count, self._after = before_total, before_count, after
        self._prompt_tokens = prompt_tokens

    def __missing__(self, tokens: int) -> bytes:
        total = self._prompt_tokens + tokens
        tail = b"%s%d%s%d%s" % (self._before_total, total, self._before_count, tokens, self._after)
        self[tokens] = tail
        return tail


@lru_cache(maxsize=32)
def _tails(before_total: bytes, prompt_tokens: int, before_count: bytes, after: bytes) -> _Tails:
    return _Tails(before_total, prompt_tokens, before_count, after)


def skim(chunks: list[bytes], above: int, end: bytes = EVENT_END) -> list[int]:
    """Output tokens in all after each of the ordinary events of /v1/completions that `chunks` begins with.

    Each of `chunks` is to be one chunk of one event, up to and with `end`. Every count is above the one before,
    the first one `above`: where the count stands still it takes the strict decoder to say whether there was output.
    Nothing is returned where any of them is odd, but for the last few.
    """
    form = _COMPLETION.match(chunks[0]) if chunks else None
    if form is None:
        return []
    before, before_total, prompt_tokens, before_count, first, after = form.groups()
    count = len(chunks)
    for _ in range(_OTHERS_AT_END):
        if count and before_total not in chunks[count - 1]:
            count -= 1
    chunks = chunks[:count]
    # Each chunk is its size, `before`, its text, and the tail that belongs to its count.
    lengths = list(map(len, chunks))
    head_of = {length: _size(length - len(end)) + before for length in set(lengths)}
    heads = [head_of[length] for length in lengths]
    if not all(map(bytes.startswith, chunks, heads)):
        return []
    after += end
    tail_of = _tails(before_total, int(prompt_tokens), before_count, after)
    # Without speculation each event is one token more.
    tokens = list(range(int(first), int(first) + count))
    tails = [tail_of[n] for n in tokens]
    if not all(map(bytes.endswith, chunks, tails)):
        told = [chunk[-len(after) - _DIGITS : -len(after)].rpartition(b":")[2] for chunk in chunks]
        if not all(map(bytes.isdigit, told)):
            return []
        tokens = list(map(int, told))
        if not all(map(lt, tokens, tokens[1:])):
            return []
        tails = [tail_of[n] for n in tokens]
        if not all(map(bytes.endswith, chunks, tails)):
            return []
    if tokens[0] <= above:
        return []
    # What is between them is the text, if it is a string of JSON.
    texts = b'"\n'.join(
        [
            chunk[len(head) : length - len(tail)]
            for chunk, head, length, tail in zip(chunks, heads, lengths, tails, strict=True)
        ]
    )
    joints = count - 1
    # Neither do head and tail overlap.
    if len(texts) - 2 * joints + sum(map(len, heads)) + sum(map(len, tails)) != sum(lengths) or b"\r" in texts:
        return []
    if b"\\" in texts:
        texts = _ESCAPED.sub(b"", texts)
    # No quote and no line end but where they were joined.
    if not texts.count(b'"') == texts.count(b"\n") == texts.count(b'"\n') == joints:
        return []
    return tokens


def _size(length: int) -> bytes:
    """The line that tells the size of a chunk of one event, of `length` bytes with that line and without EVENT_END."""
    for digits in range(1, 8):
        # What is counted is what follows the line, and the blank line.
        line = b"%x\r\n" % max(0, length - digits)
        if len(line) == digits + 2:
            return line
    return b"\r\n"
