"""Blotting secrets out of a stream of bytes, wherever it is cut. Pure, and of the standard library only.

The guard loads it by path, so it imports nothing of this project.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

BLOT = b"<redacted>"


class Redactor:
    """Passes a stream on without its secrets.

    Everything is passed on at once, but for an end that may be the beginning of a secret: a prompt or a
    progress bar without a line's end is not held back. In a real log that is a byte or two, now and then.
    """

    def __init__(self, secrets: Iterable[bytes]) -> None:
        """Empty secrets are left out; of two that overlap the longer one is blotted out whole."""
        # The longest first: an alternation takes the first that fits.
        self._secrets = sorted({s for s in secrets if s}, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._secrets)))
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What can be passed on now."""
        if not self._secrets:
            return data
        text = self._held + data
        out, end = [], 0
        hold = self._hold_from(text)
        for match in self._pattern.finditer(text):
            # A shorter secret within one that may still be coming waits with it.
            if match.start() >= hold:
                break
            out += [text[end : match.start()], BLOT]
            end = match.end()
            hold = max(hold, end)
        self._held = text[hold:]
        return b"".join([*out, text[end:hold]])

    def flush(self) -> bytes:
        """The end of the stream: what was held back."""
        text, self._held = self._held, b""
        return self._pattern.sub(BLOT, text) if self._secrets else text

    def _hold_from(self, text: bytes) -> int:
        """The first place from which the text is the beginning of a secret, not yet complete."""
        longest = len(self._secrets[0]) - 1
        for start in range(max(0, len(text) - longest), len(text)):
            rest = text[start:]
            if any(len(rest) < len(secret) and secret.startswith(rest) for secret in self._secrets):
                return start
        return len(text)
