"""A sweep seen while it runs: on its own terminal, and from another shell."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import DEADLINE_S, until

from orchestrator import load_study

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def status(folder: Path) -> tuple[int, dict[str, Any]]:
    """What a program gets from another shell."""
    command = [sys.executable, "-m", "orchestrator.status", str(folder), "--json"]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert asked.stdout, asked.stderr
    return asked.returncode, json.loads(asked.stdout)


def _trials_done(folder: Path) -> int:
    """As their attempts were written when they ended."""
    return load_study(folder).trials["state"].to_pylist().count("complete")


def test_a_sweep_is_seen_running_killed_and_finished(sweep: Callable[..., Any], small_space: str) -> None:
    space = small_space.replace("min_s: 0.5, max_s: 5", "min_s: 3, max_s: 5")
    first = sweep(space=space)
    first.wait_for("trial 1: measuring C=4")

    def measuring() -> dict[str, Any] | None:
        _, seen = status(first.root)
        nodes = seen["snapshot"]["nodes"]
        return seen if nodes and nodes[0]["requests_done"] else None

    seen = until(measuring, "a node that measures")
    assert (seen["state"], seen["late"]) == ("running", False)
    assert seen["owner"]["pid"] == first.process.pid
    assert seen["snapshot"]["simulated"]
    assert seen["snapshot"]["nodes"][0]["settings"].startswith("max-running-requests=")
    assert seen["snapshot"]["results"]["score"]["baseline"] > 0
    assert seen["snapshot"]["node_hours"] > 0

    first.process.send_signal(signal.SIGKILL)
    first.wait()
    code, seen = status(first.root)
    assert (code, seen["state"], seen["snapshot"]["nodes"]) == (3, "killed", [])
    assert "orchestrator.sweep" in seen["command"]
    # A slow machine may have ended the trial between the look and the kill.
    assert seen["snapshot"]["done"] == _trials_done(first.root) in (1, 2)
    used = seen["snapshot"]["node_hours"]

    second = sweep(space=space)
    assert second.wait() == 0, second.output
    code, seen = status(first.root)
    assert (code, seen["state"]) == (0, "finished")
    assert (seen["snapshot"]["done"], seen["snapshot"]["planned"]) == (3, 3)
    assert seen["snapshot"]["node_hours"] > used
    assert [point["trial"] for point in seen["snapshot"]["results"]["front"]]


class Terminal:
    """A sweep on a terminal of 80 columns and 24 rows."""

    def __init__(self, *command: str) -> None:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self._text = b""
        self._master = master
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm"},
        )
        os.close(slave)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while chunk := os.read(self._master, 65536):
                self._text += chunk
        except OSError:
            pass  # Linux tells so that the other end is closed.

    @property
    def text(self) -> str:
        return _ESCAPE.sub("", self._text.decode(errors="replace"))

    def wait_for(self, text: str) -> None:
        until(lambda: text in self.text or self.process.poll() is not None, repr(text))
        assert text in self.text, self.text[-4000:]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(DEADLINE_S)
        os.close(self._master)


@pytest.fixture
def terminal(tmp_path: Path, small_space: str) -> Iterator[Terminal]:
    (tmp_path / "small.yaml").write_text(small_space.replace("min_s: 0.5, max_s: 5", "min_s: 6, max_s: 12"))
    command = [sys.executable, "-m", "orchestrator.sweep", str(tmp_path / "small.yaml")]
    started = Terminal(*command, "--results", str(tmp_path / "results"))
    yield started
    started.close()


def test_on_a_terminal_ctrl_c_finishes_the_level_and_says_so(terminal: Terminal, tmp_path: Path) -> None:
    terminal.wait_for("Ctrl-C: finish the level, then stop. Twice: stop now")
    terminal.wait_for("measuring C=1")
    terminal.wait_for("tok/s")
    os.kill(terminal.process.pid, signal.SIGINT)
    terminal.wait_for("stopping after this level. Ctrl-C again: stop now")
    assert terminal.process.wait(DEADLINE_S) == 130
    assert "interrupted; the same command continues" in terminal.text
    assert "Traceback" not in terminal.text
    assert len(list((tmp_path / "results" / "small" / "levels" / "000000").glob("c0001.arrow"))) == 1
    code, seen = status(tmp_path / "results")
    assert (code, seen["state"]) == (3, "interrupted")
