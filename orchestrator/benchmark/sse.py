"""Server-sent events from bytes."""

from __future__ import annotations

from typing import NamedTuple


class Event(NamedTuple):
    """One server-sent event."""

    data: bytes
    name: bytes = b""


class SSEDecoder:
    """Server-sent events from bytes cut anywhere.

    Lines end in \\n, \\r\\n or \\r; comments, ids and unknown fields are dropped; several data lines
    are joined by \\n. The data stays bytes, so that a character cut in two is whole again.
    """

    def __init__(self) -> None:
        self._open: list[bytes] = []
        self._after_cr = False
        self._data: list[bytes] = []
        self._name = b""

    @property
    def clean(self) -> bool:
        """Whether the next byte begins a new event."""
        return not (self._open or self._data or self._name or self._after_cr)

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes."""
        # Nearly every read is some whole events of one data line each: take them without going by lines.
        if (
            chunk.startswith(b"data: ")
            and chunk.endswith(b"\n\n")
            and not (self._open or self._data or self._name)
            and b"\r" not in chunk
        ):
            data = chunk[6:-2].split(b"\n\ndata: ")
            if chunk.count(b"\n") == 2 * len(data):
                self._after_cr = False
                return [Event(one) for one in data]
        if not chunk:
            return []
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
            if not chunk:
                return []
        self._after_cr = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._open.append(chunk)
        if b"\n" not in chunk:
            return []
        lines = b"".join(self._open).split(b"\n")
        rest = lines.pop()
        self._open = [rest] if rest else []
        return [event for line in lines if (event := self._line(line)) is not None]

    def flush(self) -> list[Event]:
        """The event that the end of the body leaves without its closing blank line, if any."""
        rest = b"".join(self._open)
        self._open = []
        if rest:
            self._line(rest)
        event = self._line(b"")
        return [] if event is None else [event]

    def _line(self, line: bytes) -> Event | None:
        if not line:
            event = Event(b"\n".join(self._data), self._name) if self._data else None
            self._data, self._name = [], b""
            return event
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
        return None
