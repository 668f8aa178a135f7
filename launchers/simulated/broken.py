"""Streamed answers that go wrong after HTTP 200: the bytes of each shape."""

from __future__ import annotations

import json
from typing import Any

from launchers.simulated.faults import StreamShape
from launchers.simulated.wire import DONE

#: Shapes that break at once, before any token.
FROM_THE_START = frozenset({StreamShape.BAD_REQUEST, StreamShape.EMPTY})
_ERRORS: dict[StreamShape, Any] = {
    StreamShape.GATEWAY_TIMEOUT: {"message": "TimeoutError", "type": "GatewayTimeout", "code": 504},
    StreamShape.ERROR_OBJECT: {
        "object": "error",
        "message": "Internal server error: the simulated scheduler failed",
        "type": "InternalServerError",
        "param": None,
        "code": 500,
    },
    StreamShape.BAD_REQUEST: {
        "object": "error",
        "message": "The request is refused by the simulated server",
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    },
    StreamShape.ERROR_STRING: "the simulated scheduler failed",
}


def breaking_bytes(shape: StreamShape) -> bytes:
    """What is written in the place of the rest of the answer."""
    if shape not in _ERRORS:
        return b""
    event = json.dumps({"error": _ERRORS[shape]}, separators=(",", ":")).encode()
    return b"data: %b\n\n%b" % (event, DONE)
