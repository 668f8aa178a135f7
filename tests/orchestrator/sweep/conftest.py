"""A sweep as a person starts it: a process of its own, read through what it prints and leaves on disk."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from waiting import DEADLINE_S, until

from orchestrator.results.store import ResultStore

SPACE = textwrap.dedent(
    """\
    study: small
    model: tiny
    launcher: {kind: simulated, profile: tiny, startup_speedup: 20}
    node: {gpus: 1}
    space:
      flags:
        max-running-requests: {choices: [2, 4]}
    workload:
      dataset: {kind: random_ids, input_tokens: 16, output_tokens: 64}
      concurrency: [1, 4]
      level: {requests_per_user: 2, min_s: 0.5, max_s: 5,
              half_width: null, warmup_tolerance: null, max_client_lag_ms: 10000}
    score: {metric: output_tokens_per_s, concurrency: 4}
    budget: {trials: 3}
    repeats: {share: 0}
    sampler: {kind: random, seed: 0}
    """
)


class Sweep:
    """One run of the command."""

    def __init__(self, folder: Path, space: str, *options: str, env: dict[str, str] | None = None) -> None:
        self.root = folder / "results" / "small"
        number = len(list(folder.glob("out-*.txt")))
        self.output_file = folder / f"out-{number}.txt"
        file = folder / "small.yaml"
        file.write_text(space)
        with self.output_file.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "orchestrator.sweep", str(file), "--results", str(folder / "results"), *options],
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(env or {})},
            )

    until = staticmethod(until)

    @property
    def output(self) -> str:
        return self.output_file.read_text(errors="replace")

    @property
    def store(self) -> ResultStore:
        return ResultStore(self.root, read_only=True)

    def wait_for(self, text: str) -> None:
        until(lambda: text in self.output or self.process.poll() is not None, f"{text!r} in the output")
        assert text in self.output, self.output

    def wait(self) -> int:
        return self.process.wait(DEADLINE_S)

    def servers(self) -> list[int]:
        """Processes that carry the study's marker."""
        marker = f"ORCHESTRATOR_STUDY={(self.root / 'study.id').read_text().strip()}".encode()
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError):
                if marker in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                    found.append(process.pid)
        return found

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
            self.process.kill()
        self.process.wait()


@pytest.fixture
def small_space() -> str:
    """A space of two configurations beside the baseline."""
    return SPACE


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[Callable[..., Sweep]]:
    started: list[Sweep] = []

    def start(*options: str, space: str = SPACE, env: dict[str, str] | None = None) -> Sweep:
        started.append(Sweep(tmp_path, space, *options, env=env))
        return started[-1]

    yield start
    for run in started:
        run.close()
