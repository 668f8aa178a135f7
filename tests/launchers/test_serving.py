"""When a ready server with open requests counts as hung, by a clock that the test moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchers.base import Phase
from launchers.errors import Stalled
from launchers.movement import Look, Usage
from launchers.serving import ServingWatch
from launchers.sglang.dialect import SGLANG

LIMIT_S = 90.0


class Server:
    """What the watch sees of a server: its CPU time and its log."""

    def __init__(self, log: Path) -> None:
        self.now_s = self.cpu_s = 0.0
        self.looks = 0
        self.log = log
        log.write_text("[2026-12-01 10:00:00] Decode batch, #running-req: 8\n")
        self.watch = ServingWatch(self.look, log, SGLANG.new_reader(), LIMIT_S, lambda: self.now_s, "under 8 users")

    def look(self) -> Look:
        self.looks += 1
        return Look({7: Usage(self.cpu_s, 0, 0, 0)})

    def goes_on(self, seconds: float, cores: float = 0.0) -> Stalled | None:
        """Time passes, asked five times a second; what is found at its end."""
        found = None
        for _ in range(round(seconds * 5)):
            self.now_s += 0.2
            self.cpu_s += 0.2 * cores
            found = found or self.watch.stalled()
        return found


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path / "server.log")


def test_a_frozen_server_is_found_after_the_limit_and_not_before(server: Server) -> None:
    assert server.goes_on(LIMIT_S - 1) is None
    found = server.goes_on(8)
    assert found is not None
    assert found.phase is Phase.READY
    assert found.what.startswith("under 8 users it has answered nothing for 9")
    assert "#running-req: 8" in found.what
    assert "launcher.hang_s" in found.hint


def test_a_server_that_computes_is_left_to_its_own_watchdog_first(server: Server) -> None:
    # SGLang's takes 300 s by default.
    assert server.goes_on(330, cores=1.0) is None
    found = server.goes_on(60, cores=1.0)
    assert found is not None
    assert "nothing but CPU time" in found.what


def test_every_answer_begins_the_silence_anew(server: Server) -> None:
    for pieces in range(1, 20):
        server.watch.heard(pieces)
        assert server.goes_on(LIMIT_S - 1) is None
    # The same count is no answer.
    server.watch.heard(19)
    assert server.goes_on(10) is not None


def test_a_log_that_goes_on_is_movement(server: Server) -> None:
    for number in range(20):
        with server.log.open("a") as log:
            log.write(f"[2026-12-01 10:00:00] Prefill batch, #new-seq: {number}\n")
        assert server.goes_on(LIMIT_S - 10) is None


def test_nobody_looks_at_the_processes_while_answers_come(server: Server) -> None:
    for pieces in range(1, 50):
        server.watch.heard(pieces)
        server.goes_on(1.0)
    assert server.looks == 0
