"""From the pipe that a server prints into to its log. Of the standard library only: the guard uses it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import termios
from collections.abc import Callable, Sequence

from launchers.redactor import Redactor

#: What a server can print without waiting for the guard; Linux lets every user have pipes of this size.
_PIPE_BYTES = 1 << 20


class LogPump:
    """Carries what the server prints into its log, without the secrets."""

    def __init__(self, log: str, secrets: Sequence[str], on_error: Callable[[str], None]) -> None:
        """`on_error` hears once why the log cannot be written. Raises OSError where it cannot even be opened."""
        self._out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._redactor = Redactor([secret.encode() for secret in secrets])
        #: The end that is read, and the one that the server prints into.
        self.source, self.sink = os.pipe()
        os.set_blocking(self.source, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self.source, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._on_error: Callable[[str], None] | None = on_error

    def carry(self) -> bool:
        """Carry what is there; False at the end, when no process holds the other end."""
        try:
            data = os.read(self.source, _PIPE_BYTES)
        except BlockingIOError:
            return True
        self._write(self._redactor.feed(data) if data else self._redactor.flush())
        return bool(data)

    def carry_all(self) -> None:
        """Carry what had been printed before the call; a server that prints for ever does not hold it up."""
        waiting = int.from_bytes(fcntl.ioctl(self.source, termios.FIONREAD, bytes(4)), sys.byteorder)
        if waiting:
            self._write(self._redactor.feed(os.read(self.source, waiting)))

    def finish(self) -> None:
        """The server has ended: nothing more will come."""
        self.carry_all()
        self._write(self._redactor.flush())

    def _write(self, data: bytes) -> None:
        """A log that cannot be written does not hold up the server."""
        try:
            while data:
                data = data[os.write(self._out, data) :]
        except OSError as error:
            if self._on_error is not None:
                self._on_error(str(error))
            self._on_error = None
