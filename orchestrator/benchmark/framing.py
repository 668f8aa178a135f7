"""The frame of one HTTP/1 response: head, chunks and end. Pure: bytes in, bytes of the body out."""

from __future__ import annotations

from enum import Enum

import httptools

_HEAD_END = b"\r\n\r\n"
#: A server that has sent so much without ending its head speaks something else.
_HEAD_BYTES = 65536


class FramingError(Exception):
    """The bytes are no HTTP/1 response, in one line."""


class Body(Enum):
    """How the length of a body is told."""

    CHUNKED = "chunked"
    LENGTH = "length"
    UNTIL_CLOSE = "until close"


class Response:
    """One response, 1xx ones before it skipped. The grammar is llhttp's, by httptools.

    Give `head` all bytes until it returns the beginning of the body, then `body` the rest.
    """

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._head = b""
        self._out: list[bytes] = []
        self._reason = b""
        self._headers: dict[bytes, bytes] = {}
        self._head_whole = False
        self._interim = False
        self._between = False
        self._keep_alive = False
        self.status: int | None = None
        self.kind = Body.UNTIL_CLOSE
        #: The body is whole.
        self.complete = False
        #: More came after the end: nobody asked for it, and the connection is not to be used again.
        self.trailing = False

    @property
    def reason(self) -> str:
        """The phrase after the status, for messages."""
        return self._reason.decode("latin-1")

    @property
    def keep_alive(self) -> bool:
        """Whether the server takes another request on the connection."""
        return self._keep_alive and not self.trailing

    @property
    def between_chunks(self) -> bool:
        """Whether the next byte of the body begins a chunk."""
        return self._between and not self.complete

    def head(self, data: bytes) -> bytes | None:
        """Take bytes of the head; what follows it, once it is whole, else None. Raises FramingError."""
        while True:
            before = len(self._head)
            self._head += data
            end = self._head.find(_HEAD_END, max(0, before - 3))
            if end < 0:
                self._parse(data)
                if len(self._head) > _HEAD_BYTES:
                    raise FramingError(f"the answer's head did not end within {_HEAD_BYTES} bytes")
                return None
            end += len(_HEAD_END)
            rest, self._head = self._head[end:], b""
            self._parse(data[: end - before])
            if self._head_whole:
                return rest
            if not self._interim:
                raise FramingError("the answer's head ended without being whole")
            self._interim = False
            data = rest

    def body(self, data: bytes) -> bytes:
        """Take bytes that follow the head; the body's own among them. Raises FramingError."""
        if self.complete:
            self.trailing = self.trailing or bool(data)
            return b""
        self._parse(data)
        # A begun size does not end so, and a whole one was told by `on_chunk_header`.
        self._between = self._between and data.endswith(b"\r\n")
        out = self._out
        if not out:
            return b""
        self._out = []
        return out[0] if len(out) == 1 else b"".join(out)

    def closed(self) -> bool:
        """The connection was closed; whether that left the response whole."""
        if self._head_whole and self.kind is Body.UNTIL_CLOSE:
            self.complete = True
        return self.complete

    def _parse(self, data: bytes) -> None:
        if not data:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise FramingError("the server changed to another protocol") from None
        except httptools.HttpParserError as error:
            if not self.complete:
                raise FramingError(f"the answer is no HTTP/1: {error or type(error).__name__}") from None
            self.trailing = True

    # What httptools calls.

    def on_message_begin(self) -> None:
        if self.complete:
            self.trailing = True

    def on_status(self, status: bytes) -> None:
        if not self.complete:
            self._reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.complete:
            self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        status = self._parser.get_status_code()
        self._interim = 100 <= status < 200
        if self._interim:
            self._headers, self._reason = {}, b""
            return
        self.status = status
        self._head_whole = True
        # Only here the parser knows.
        self._keep_alive = bool(self._parser.should_keep_alive())
        if b"chunked" in self._headers.get(b"transfer-encoding", b"").lower():
            self.kind = Body.CHUNKED
            self._between = True
        elif b"content-length" in self._headers:
            self.kind = Body.LENGTH

    def on_chunk_header(self) -> None:
        self._between = False

    def on_chunk_complete(self) -> None:
        self._between = True

    def on_body(self, body: bytes) -> None:
        if not self.complete:
            self._out.append(body)

    def on_message_complete(self) -> None:
        if self._head_whole:
            self.complete = True
