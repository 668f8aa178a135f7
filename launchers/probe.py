"""Asking a server that starts whether it answers: it is ready when it has generated a token."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus

import requests

from launchers.identity import Identity
from launchers.process import OwnedProcess, PortHolder

_POLL_S = 0.05
#: Between two requests: one that is answered costs the server time, and its log a line.
_ASK_AGAIN_S = 0.25


class Probe:
    """Asks a server until it has generated, in a thread of its own: an answer may take 20 seconds.

    One request is in flight at a time, since probes that pile up have brought servers down. Nothing is sent
    as long as the port is not held by the server itself: SGLang 0.5.23 on a port that another SGLang holds
    prints its ready line, and the other one answers its health checks. A 503 is a server that warms up, or that
    is busy: it says nothing against it.
    """

    def __init__(
        self,
        process: OwnedProcess,
        identity: Identity,
        clock: Callable[[], float],
        answer_timeout_s: float,
    ) -> None:
        """`clock` times for how long nothing is generated, `answer_timeout_s` (real seconds) bounds one request."""
        self._process = process
        self._identity = identity
        self._clock = clock
        self._url = f"http://127.0.0.1:{process.port}"
        self._timeout_s = answer_timeout_s
        self._over = threading.Event()
        self.ready = False
        #: The server has opened its port.
        self.port_open = False
        #: Another program listens on the port.
        self.foreign = False
        #: Why the server that answers is not ours.
        self.stranger: str | None = None
        #: Since when, by the clock, it should have generated and has not: it said that it is healthy, or took a
        #: request and never answered. None while it is not known to be loaded.
        self.mute_since_s: float | None = None
        #: What the last request came to, for a person.
        self.last = "the port is closed"
        self._session = requests.Session()
        # A proxy of the environment has no business between a node and itself.
        self._session.trust_env = False
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """No further request; does not wait for the one in flight."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set() and not self._process.ended:
            holder = self._process.port_holder()
            if holder is PortHolder.OTHER and not self._process.ended:
                self.foreign = True
                return
            self.port_open = holder is PortHolder.SERVER
            if self.port_open and self._healthy() and self._ours() and self._generates():
                # The holder is asked again: the answer was its own only if it still listens alone.
                self.ready = self._process.port_holder() is PortHolder.SERVER
                if self.ready:
                    return
            if self.stranger:
                return
            self._over.wait(_ASK_AGAIN_S if self.port_open else _POLL_S)

    def _healthy(self) -> bool:
        answer = self._ask("GET", "/health")
        if answer is not None and answer.status_code == HTTPStatus.OK:
            if self.mute_since_s is None:
                self.mute_since_s = self._clock()
            return True
        if answer is not None:
            self.mute_since_s = None
        return False

    def _ours(self) -> bool:
        try:
            self.stranger = self._identity.stranger(self._url, self._timeout_s)
        except requests.RequestException as error:
            self.last = f"asked for its name: {type(error).__name__}"
            return False
        return self.stranger is None

    def _generates(self) -> bool:
        """Health can lie: ready is what has generated a token."""
        answer = self._ask(
            "POST",
            "/generate",
            {"text": "ready", "sampling_params": {"max_new_tokens": 1, "temperature": 0}},
            self._identity.headers,
        )
        if answer is None or answer.status_code != HTTPStatus.OK:
            return False
        with contextlib.suppress(ValueError, AttributeError):
            if answer.json().get("meta_info", {}).get("completion_tokens"):
                return True
        self.last += ", without a token"
        return False

    def _ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> requests.Response | None:
        asked_s = self._clock()
        try:
            answer = self._session.request(
                method, self._url + path, json=body, headers=headers, timeout=self._timeout_s
            )
        except requests.RequestException as error:
            if isinstance(error, requests.Timeout) and self.mute_since_s is None:
                self.mute_since_s = asked_s
            self.last = f"{method} {path}: {type(error).__name__}"
            return None
        self.last = f"{method} {path}: status {answer.status_code}"
        return answer
