"""A simulated server as a process, for tests: started, watched by its log, always killed at the end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

DEADLINE_S = 60.0
READY = "The server is fired up and ready to roll!"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {DEADLINE_S:g} s: {what}"
        time.sleep(0.01)


class Twin:
    """One process and its log."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, port: int) -> None:
        self.process = process
        self.log_file = log
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def wait_line(self, text: str) -> None:
        def seen() -> bool:
            found = text in self.log
            assert found or self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.log[-3000:]}"
            return found

        wait_until(seen, f"{text!r} in the log")

    def wait_end(self) -> int:
        wait_until(lambda: self.process.poll() is not None, "the end of the process")
        return int(self.process.returncode)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def get(self, path: str) -> requests.Response:
        return requests.get(self.url + path, timeout=DEADLINE_S)

    def post(self, path: str, body: Any, **options: Any) -> requests.Response:
        return requests.post(self.url + path, json=body, timeout=DEADLINE_S, **options)

    def generate(self, tokens: int = 4, prompt: Any = (1, 2, 3), **fields: Any) -> requests.Response:
        params = {"max_new_tokens": tokens, "ignore_eos": True}
        stream = bool(fields.get("stream"))
        return self.post("/generate", {"input_ids": list(prompt), "sampling_params": params} | fields, stream=stream)


@contextmanager
def twin(
    folder: Path,
    *flags: str,
    profile: str = "tiny",
    speedup: float = 1000.0,
    env: Mapping[str, str] | None = None,
    fault: Mapping[str, Any] | None = None,
    port: int | None = None,
    ready: bool = True,
) -> Iterator[Twin]:
    """A running twin; `ready`: wait for its ready line first."""
    port = port or free_port()
    command = [sys.executable, "-m", "launchers.simulated", "--profile", profile]
    command += ["--startup-speedup", str(speedup), "--model-path", "example/tiny", "--port", str(port), *flags]
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "SIMULATED_"))}
    variables |= {"PYTHONPATH": str(Path(__file__).parents[2]), **(env or {})}
    if fault is not None:
        variables["SIMULATED_FAULT"] = json.dumps(fault)
    log = folder / f"twin-{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=variables)
    server = Twin(process, log, port)
    try:
        if ready:
            server.wait_line(READY)
        yield server
    finally:
        process.kill()
        process.wait()


def events(response: requests.Response) -> list[str]:
    """The data of every server-sent event of a whole body."""
    return [line[6:] for line in response.text.split("\n") if line.startswith("data: ")]
