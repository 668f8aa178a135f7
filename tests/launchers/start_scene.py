"""A start on a stage, for tests: a log, a port and processes that do what a script says, by a clock of its own."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from told_phases import Told

from launchers.facts import UNKNOWN
from launchers.identity import Identity
from launchers.movement import Look, Usage
from launchers.process import OwnedProcess, PortHolder
from launchers.sglang.dialect import SGLANG
from launchers.watch import StartLimits, StartWatch

ME = Identity("sweep-of-the-test", "key-of-the-test")
DEADLINE_S = 30.0
#: What happens at a time: a text that is logged, or something done; what returns False is not over yet, and the
#: clock does not pass it.
Event = tuple[float, str | Callable[[], bool | None]]


class Mock(http.server.ThreadingHTTPServer):
    """An HTTP server whose answers are set by path: a status, or None for no answer at all."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, int | None] = {"/health": 503, "/generate": 200}
        self.generated: object = {"meta_info": {"completion_tokens": 1}}
        #: Requests in the order of their arrival, and how many were open at once at most.
        self.asked: list[str] = []
        self.most_open = 0
        self.open = 0
        self.lock = threading.Lock()
        self.over = threading.Event()

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Mock

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.server.lock:
            self.server.asked.append(self.path)
            self.server.open += 1
            self.server.most_open = max(self.server.most_open, self.server.open)
        try:
            status, body = self.told()
            if status is None:
                self.server.over.wait(DEADLINE_S)
                return
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            # Before the answer is sent: whoever has it may ask again at once.
            with self.server.lock:
                self.server.open -= 1
            self.wfile.write(text)
        except OSError:
            pass  # the asker has given up

    def told(self) -> tuple[int | None, object]:
        if self.path == "/model_info":
            known = self.headers.get("Authorization") == f"Bearer {ME.api_key}"
            return (200, {"served_model_name": ME.model}) if known else (401, {})
        body = self.server.generated if self.path == "/generate" else {}
        return self.server.answers.get(self.path, 200), body

    do_GET = do_POST = answer

    def log_message(self, *_: object) -> None: ...


@contextmanager
def mock_server() -> Iterator[Mock]:
    server = Mock()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Using:
    """What the start's only process uses of a second, from now on."""

    cpu_s: float = 0.0
    read_bytes: float = 0.0
    pages: float = 0.0
    memory_bytes: float = 0.0
    gpu_mib: float = 0.0


@dataclass
class Scene:
    """A process that lives by the script. Time passes when the watch waits for its end: `tick_s` at a time."""

    log: Path
    server: Mock
    events: Sequence[Event]
    tick_s: float = 10.0
    limits: StartLimits = field(default_factory=StartLimits)
    now_s: float = 0.0
    using: Using = field(default_factory=Using)
    told: Told = field(default_factory=Told)
    port_open: bool = False
    ended: bool = False
    exit_code: int | None = None
    stop: bool = False

    def __post_init__(self) -> None:
        self.log.touch()
        self._left = list(self.events)
        self._used = Using()

    # ---- what the watch sees of the process

    @property
    def port(self) -> int:
        return self.server.port

    def port_holder(self) -> PortHolder:
        return PortHolder.SERVER if self.port_open else PortHolder.NOBODY

    def tail(self, size: int = 4000) -> str:
        return self.log.read_text()[-size:]

    def wait_end(self, timeout_s: float) -> bool:
        """Pass time, up to the next event."""
        if self._left and self._left[0][0] <= self.now_s:
            event = self._left[0][1]
            if isinstance(event, str):
                with self.log.open("a") as log:
                    log.write(event)
            elif event() is False:
                time.sleep(0.01)
                return self.ended
            del self._left[0]
            return self.ended
        until_s = self.now_s + self.tick_s
        self._pass(min(until_s, self._left[0][0]) if self._left else until_s)
        return self.ended

    def _pass(self, now_s: float) -> None:
        passed_s, self.now_s = now_s - self.now_s, now_s
        for name in vars(self._used):
            setattr(self._used, name, getattr(self._used, name) + getattr(self.using, name) * passed_s)

    def look(self) -> Look:
        used = self._used
        usage = Usage(used.cpu_s, int(used.read_bytes), int(used.pages), int(used.memory_bytes))
        return Look({4711: usage}, {0: int(used.gpu_mib)})

    # ---- the watch

    def run(self) -> Mapping[str, float]:
        """Watch it until it is ready; seconds by phase."""
        watch = StartWatch(
            cast(OwnedProcess, self),
            ME,
            SGLANG,
            self.told,
            lambda: self.stop,
            limits=self.limits,
            clock=lambda: self.now_s,
            look=self.look,
            facts=lambda: UNKNOWN,
        )
        return watch.until_ready()

    def uses(self, **using: Any) -> Callable[[], None]:
        """An event: from now on this is used of a second."""

        def change() -> None:
            self.using = Using(**using)

        return change

    def opens(self) -> None:
        """An event: the port is bound."""
        self.port_open = True

    def answers(self, path: str, status: int | None) -> Callable[[], None]:
        """An event: from now on the path is answered so."""

        def change() -> None:
            self.server.answers[path] = status

        return change

    def asked(self, path: str, times: int = 1) -> Callable[[], bool]:
        """An event that waits until the path has been asked so often from now on."""
        before: list[int] = []
        end_s: list[float] = []

        def seen() -> bool:
            count = self.server.asked.count(path)
            if not before:
                before.append(count)
                end_s.append(time.monotonic() + DEADLINE_S)
            assert time.monotonic() < end_s[0], f"{path} is not asked"
            return count - before[0] >= times

        return seen

    def wait_ready(self) -> bool:
        """An event: time stands still until the start is over."""
        return False
