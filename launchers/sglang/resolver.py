"""Asking SGLang's own resolver what it makes of a command line, in one long-lived process of its interpreter."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from launchers.sglang.flag_check import Flag

_SCRIPT = Path(__file__).with_name("resolver_process.py")
#: The import takes 5 s on an idle machine, a first call 2 s more, a later one 20 ms; slow disks take minutes.
_FIRST_ANSWER_S = 300.0
_ANSWER_S = 60.0


class ResolverFailed(Exception):
    """The resolver could not be asked. Says nothing about the configuration."""


class _Ended(ResolverFailed):
    """It ended before it had answered."""


@dataclass(frozen=True)
class Resolved:
    """What SGLang makes of a command line: the values it would run with, or how it would end."""

    #: By field name, with underscores; empty where it refuses. Secrets are left out.
    values: Mapping[str, Any] = field(default_factory=dict)
    #: NCCL's and SGLang's variables that it sets or overwrites by itself.
    env: Mapping[str, str] = field(default_factory=dict)
    #: The server's exit code; None where it accepts.
    exit_code: int | None = None
    #: What it printed before it ended, traceback included.
    log: str = ""

    @property
    def ok(self) -> bool:
        """Whether SGLang accepts it."""
        return self.exit_code is None

    @property
    def error(self) -> str | None:
        """The last line it printed; None where it accepts."""
        return None if self.ok else (self.log.strip().splitlines() or [f"exit {self.exit_code}"])[-1]


class Resolver:
    """The process that answers. It is started by the first question, and by the next one after it died or hung."""

    def __init__(
        self,
        python: str,
        env: Mapping[str, str] | None = None,
        *,
        first_answer_s: float = _FIRST_ANSWER_S,
        answer_s: float = _ANSWER_S,
        script: Path = _SCRIPT,
    ) -> None:
        """`env` is the environment that every server inherits (default: this process's)."""
        self._python = python
        # A question never downloads a model.
        self._env = dict(os.environ if env is None else env) | {"HF_HUB_OFFLINE": "1"}
        self._first_answer_s = first_answer_s
        self._answer_s = answer_s
        self._script = script
        self._process: subprocess.Popen[bytes] | None = None
        self._answered = False
        self._received = b""

    def resolve(self, argv: Sequence[str], env: Mapping[str, str]) -> Resolved:
        """What the server would make of these words and, over those it inherits, these variables.

        Raises ResolverFailed.
        """
        told = self._ask({"op": "resolve", "argv": list(argv), "env": dict(env)})
        return Resolved(told.get("values", {}), told.get("env", {}), told.get("exit_code"), told.get("log", ""))

    def flags(self) -> tuple[Flag, ...]:
        """Every flag that the installed version knows. Raises ResolverFailed."""
        return tuple(
            Flag(
                names=tuple(name.removeprefix("--") for name in told["names"]),
                choices=None if told["choices"] is None else tuple(told["choices"]),
                bare=told["bare"],
                type=told["type"],
                instead=told["instead"],
            )
            for told in self._ask({"op": "flags"})["flags"]
        )

    def close(self) -> None:
        """End the process; the next question starts another."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for stream in (process.stdin, process.stdout):
            # What could not be sent to a dead process is not sent now either.
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        process.wait()

    def __enter__(self) -> Resolver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The process that answers; None before the first question."""
        return self._process.pid if self._process else None

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        told = self._answer(request)
        if told.pop("holds_gpu", False):
            # A CUDA context costs hundreds of MB, which belong to the server.
            self.close()
        return told

    def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            told: dict[str, Any] = json.loads(self._exchanged((json.dumps(request) + "\n").encode()))
        except (OSError, ValueError, ResolverFailed) as error:
            self.close()
            raise ResolverFailed(
                f"SGLang's resolver under {self._python} gave no answer: {error}; does that interpreter have sglang?"
            ) from error
        self._answered = True
        return told

    def _exchanged(self, line: bytes) -> bytes:
        """The answer to a line. One that had answered before may have died since: a new one is asked then."""
        if self._answered:
            with contextlib.suppress(BrokenPipeError, _Ended):
                return self._exchange(line)
            self.close()
        return self._exchange(line)

    def _exchange(self, line: bytes) -> bytes:
        """Send a line and wait for the one that answers it."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._start()
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise ResolverFailed("it has no streams")
        process.stdin.write(line)
        process.stdin.flush()
        limit_s = self._answer_s if self._answered else self._first_answer_s
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._received:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([process.stdout], [], [], left_s)[0]:
                raise ResolverFailed(f"silent for {limit_s:g} s")
            chunk = os.read(process.stdout.fileno(), 65536)
            if not chunk:
                raise _Ended(f"it ended (exit {process.wait()})")
            self._received += chunk
        answer, _, self._received = self._received.partition(b"\n")
        return answer

    def _start(self) -> None:
        self._answered = False
        self._received = b""
        self._process = subprocess.Popen(
            [self._python, str(self._script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._env,
            # A Ctrl-C is for the owner, with whom stdin ends.
            start_new_session=True,
        )
