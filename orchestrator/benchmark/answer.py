"""One answer as it arrives: raw bytes with a stamp for each read, decoded when there is time. Pure.

While the answer streams, a read costs a stamp and two list entries. `digest` decodes what was kept, some reads at a
time; ordinary events by `skim`, all others by the strict decoders, with the same outcome.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from itertools import accumulate

from orchestrator.benchmark.framing import Body, FramingError, Response
from orchestrator.benchmark.skim import EVENT_END, skim
from orchestrator.benchmark.stream import AnswerStream, NativeStream, OpenAIStream, Verdict, error_body, one_line

_CLEAN_END = b"data: [DONE]" + EVENT_END + b"0\r\n\r\n"
#: Where the last chunk may begin.
_LAST_CHUNK = re.compile(rb"(?:^|\r\n)0+(?:;[^\n]*)?\r\n")
#: How the last output of a good answer tells its end; inside a text a quote is escaped.
_GOOD_ENDS = tuple(
    b'"finish_reason":%s"%s"' % (kind, reason) for kind in (b"", b'{"type":') for reason in (b"length", b"stop")
)
#: The last output, the usage and [DONE] are in here, natively the text again: then the end looks odd, no more.
_END_BYTES = 2048
#: An answer with another status than 200 is read up to here for its message.
ERROR_BODY_BYTES = 65536
#: Reads that are decoded at a time: about a quarter of a millisecond.
SLICE_READS = 256


class Answer:
    """Collects one answer. `take` its bytes as they come or `take_body` where someone else removed the frame.

    `over` once its end has come; `verdict` once all of it is decoded.
    """

    def __init__(self, *, native: bool) -> None:
        self._native = native
        self._stream: AnswerStream = NativeStream() if native else OpenAIStream()
        self._head_whole = False
        self._error_body = b""
        self.response = Response()
        #: Reads of the body that are not decoded yet, framed, and when they came. Whoever reads the socket
        #: may append to both while `lazy`.
        self.reads: list[bytes] = []
        self.reads_s: list[float] = []
        #: A chunked 200: its reads may be kept and decoded later.
        self.lazy = False
        self.over = False
        #: When its request was about to be written on an open connection, and when its end came.
        self.started_s: float | None = None
        self.finished_s: float | None = None
        self.event_s: list[float] = []
        self.told: list[int] = []
        self.verdict: Verdict | None = None
        self._cut: str | None = None
        #: When bytes came last, of those decoded.
        self._last_s = 0.0

    @property
    def reusable(self) -> bool:
        """Whether the connection takes another request after this answer."""
        return self.over and self._cut is None and self.response.keep_alive

    @property
    def succeeded(self) -> bool:
        """Whether the answer, which is over, looks like a success: its end is clean, or all of it was decoded."""
        return self.verdict is None or self.verdict.kind is None

    def take(self, data: bytes, now_s: float) -> None:
        """Take bytes from the connection."""
        if self.over:
            self.response.trailing = True
        elif self.lazy:
            self.reads.append(data)
            self.reads_s.append(now_s)
            if not data.endswith(EVENT_END):
                self.look_for_end()
        elif self._head_whole:
            self._strict(data, now_s)
        else:
            self._take_head(data, now_s)

    def _take_head(self, data: bytes, now_s: float) -> None:
        try:
            rest = self.response.head(data)
        except FramingError as error:
            self.break_off(str(error))
            return
        if rest is None:
            return
        self._head_whole = True
        self.lazy = self.response.status == 200 and self.response.kind is Body.CHUNKED
        if rest or self.response.complete:
            self.take(rest, now_s)

    def look_for_end(self) -> None:
        """Find out whether the answer is over; to be called while `lazy` after a read without EVENT_END at its end."""
        end = self.reads[-1]
        if len(end) < _END_BYTES:
            end = b"".join(self.reads[-8:])[-_END_BYTES:]
        if end.endswith(_CLEAN_END) and any(good in end for good in _GOOD_ENDS) and b'"error"' not in end:
            self.over = True
        elif _LAST_CHUNK.search(end) is not None:
            # An odd end, if it is one: look closely, and from here on at each read.
            self.lazy = False
            self._digest(len(self.reads))

    def closed(self, cut: str) -> None:
        """The connection was closed; `cut` says how, for an answer that is not whole by that."""
        if self.over:
            return
        self.lazy = False
        self._digest(len(self.reads))
        if not self.over:
            self._end(None if self.response.closed() else cut)

    def break_off(self, cut: str) -> None:
        """No more of the answer is read, because of `cut`."""
        self.lazy = False
        self._digest(len(self.reads))
        if not self.over:
            self._end(cut)

    def fail(self, verdict: Verdict) -> None:
        """The request failed for a reason outside the answer. What has come of it is still decoded by `digest`."""
        self.lazy = False
        self.over = True
        self._cut = verdict.message or ""
        self.verdict = verdict

    def take_body(self, body: bytes, now_s: float) -> None:
        """Take bytes of a body without its frame."""
        self._last_s = now_s
        outputs = self._stream.feed(body)
        if outputs:
            self.event_s.extend([now_s] * len(outputs))
            self.told.extend(outputs)

    def end_body(self, cut: str | None) -> None:
        """The body without its frame is over, broken off by `cut` or whole."""
        self.over = True
        self._cut = cut
        self._conclude(cut)

    def digest(self) -> bool:
        """Decode some of what was kept; whether all of it is decoded now."""
        if len(self.reads) > SLICE_READS:
            self._digest(SLICE_READS)
            return False
        self._digest(len(self.reads))
        if self.over and self.verdict is None:
            # It looked like a clean end from outside.
            self._conclude(None if self.response.complete else "the answer's last chunk was not its end")
        return True

    def _digest(self, count: int) -> None:
        """Decode the first `count` reads, except for a chunk that their end cuts and that may be whole later."""
        reads, reads_s = self.reads[:count], self.reads_s[:count]
        more, more_s = self.reads[count:], self.reads_s[count:]
        self.reads.clear()
        self.reads_s.clear()
        above = self._stream.told
        if reads and above is not None and not self._native and self.response.between_chunks:
            reads, reads_s = self._skim(reads, reads_s, above)
        hold = len(reads) > 1 if more else self.lazy and not self.over
        if hold and reads and not reads[-1].endswith(EVENT_END):
            whole = reads[-1].rfind(EVENT_END) + len(EVENT_END) if EVENT_END in reads[-1] else 0
            self.reads.append(reads[-1][whole:])
            self.reads_s.append(reads_s[-1])
            reads[-1] = reads[-1][:whole]
        self.reads.extend(more)
        self.reads_s.extend(more_s)
        for data, now_s in zip(reads, reads_s, strict=True):
            self._strict(data, now_s)

    def _skim(self, reads: list[bytes], reads_s: list[float], above: int) -> tuple[list[bytes], list[float]]:
        """Take the ordinary events off the beginning; what remains."""
        # Nearly always each read is one event.
        if tokens := skim(reads, above):
            count = len(tokens)
            self.event_s.extend(reads_s[:count])
            reads, reads_s = reads[count:], reads_s[count:]
        else:
            raw = b"".join(reads)
            chunks = raw.split(EVENT_END)[:-1]
            tokens = skim(chunks, above, b"")
            if not tokens:
                return reads, reads_s
            ends = list(accumulate([len(chunk) + len(EVENT_END) for chunk in chunks[: len(tokens)]]))
            arrived = list(accumulate(map(len, reads)))
            # An event is whole with its blank line, before the line end of its chunk.
            self.event_s.extend([reads_s[bisect_left(arrived, end - 2)] for end in ends])
            first = bisect_left(arrived, ends[-1] + 1)
            reads, reads_s = reads[first:], reads_s[first:]
            if reads:
                reads[0] = raw[ends[-1] : arrived[first]]
        self.told.extend(tokens)
        self._stream.skimmed(tokens)
        return reads, reads_s

    def _strict(self, data: bytes, now_s: float) -> None:
        """Decode bytes after the head by the strict decoders."""
        try:
            body = self.response.body(data)
        except FramingError as error:
            if self.verdict is None:
                self._end(str(error))
            return
        if self.response.status == 200:
            self.take_body(body, now_s)
        elif len(self._error_body) < ERROR_BODY_BYTES:
            self._error_body += body[:ERROR_BODY_BYTES]
            if len(self._error_body) >= ERROR_BODY_BYTES:
                self._end(None)
                return
        if self.response.complete and not self.over:
            self._end(None)

    def _end(self, cut: str | None) -> None:
        self.over = True
        self._cut = cut
        self._conclude(cut)

    def _conclude(self, cut: str | None) -> None:
        status = self.response.status
        if self._head_whole and status != 200 and cut is None:
            message, _ = error_body(self._error_body[:ERROR_BODY_BYTES])
            self.verdict = Verdict("http", status, one_line(f"HTTP {status} {self.response.reason}: {message}"))
            return
        if cut is not None and status != 200:
            self.verdict = Verdict("cut", status, one_line(f"the connection broke before an answer: {cut}"))
            return
        late, self.verdict = self._stream.finish(cut)
        if late:
            # The end of the body completes an event that no blank line did.
            self.event_s.extend([self._last_s] * len(late))
            self.told.extend(late)
