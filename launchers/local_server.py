"""A server that was started on this node, from its start to the proof that it is gone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from launchers.base import Phase, ServerHandle, StopReport
from launchers.dialect import Dialect
from launchers.environment import started_with
from launchers.errors import LaunchError
from launchers.facts import FactsReader, NodeFacts
from launchers.identity import Identity
from launchers.ports import PortBlock
from launchers.process import OwnedProcess
from launchers.secrets import redact_environment, redact_info
from launchers.serving import ServingWatch
from launchers.usage import Looker
from launchers.watch import LOG_BYTES

_INFO_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Start:
    """A server that was started, and what goes with it."""

    start_id: str
    process: OwnedProcess
    identity: Identity
    ports: PortBlock
    #: What holds the key, until it has been read.
    config: Path
    #: What its environment and its key hold.
    secrets: frozenset[str]
    #: Made before it was started.
    facts_reader: FactsReader

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.ports.http}"

    def facts(self) -> NodeFacts:
        """What the node shows, once it has ended."""
        return self.facts_reader(self.process.members())

    def stop(self, grace_s: float | None = None) -> StopReport:
        """Stop every process of it, with proof, and let its ports go."""
        report = self.process.stop(grace_s)
        self.ports.release()
        return report


class LocalServer(ServerHandle):
    """A ready server on this node."""

    def __init__(
        self, start: Start, dialect: Dialect, phase_s: Mapping[str, float], simulated: bool, hang_s: float
    ) -> None:
        """`hang_s` is how long it may answer nothing and show no movement while requests are open."""
        self._start = start
        self._hang_s = hang_s
        self._dialect = dialect
        self.url = start.url
        self.model = start.identity.model
        self.api_key = start.identity.api_key
        self.log = start.process.log
        self.start_id = start.start_id
        self.phase_s = phase_s
        self.simulated = simulated

    @property
    def process(self) -> OwnedProcess:
        """Its processes."""
        return self._start.process

    def alive(self) -> bool:
        """Whether the server's main process is running."""
        return not self.process.ended

    def environment(self) -> Mapping[str, str]:
        """Of the main process, and over it what its children were started with: SGLang sets some variables itself.

        Seen in 0.5.23 (entrypoints/engine.py): NCCL_CUMEM_ENABLE, NCCL_NVLS_ENABLE, CUDA_DEVICE_MAX_CONNECTIONS.
        """
        found: dict[str, str] = {}
        for pid in sorted(self.process.members(), key=lambda pid: (pid != self.process.pid, pid)):
            found |= started_with(pid)
        return redact_environment(found, self._start.secrets)

    def failure(self) -> LaunchError | None:
        """Why it ended without being asked to, from its log and the node; None after a stop of our own."""
        if self.process.stop_asked:
            return None
        self.process.wait_end(5)
        log, exit_code = self.process.tail(LOG_BYTES), self.process.exit_code
        return self._dialect.classify(log, exit_code, Phase.READY, self._start.facts()).logged_in(self.log.name)

    def watch(self, when: str) -> ServingWatch:
        """What notices that it hangs while requests are open; `when` is told with it."""
        # A GPU's memory says nothing of a ready server: it was taken beforehand.
        look = Looker(self.process.members, gpus=False)
        return ServingWatch(look, self.log, self._dialect.new_reader(), self._hang_s, time.monotonic, when)

    def stop(self) -> StopReport:
        """Stop every process of the server, with proof."""
        return self._start.stop()


def server_info(url: str, api_key: str | None, hidden: frozenset[str] = frozenset()) -> dict[str, Any]:
    """What /server_info tells, without secrets; empty where it cannot be had: being ready does not need it."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    with contextlib.suppress(requests.RequestException, ValueError), requests.Session() as session:
        session.trust_env = False
        answer = session.get(f"{url}/server_info", headers=headers, timeout=_INFO_TIMEOUT_S)
        told = answer.json() if answer.status_code == 200 else {}
        if isinstance(told, dict):
            clean: dict[str, Any] = redact_info(told, hidden | ({api_key} if api_key else set()))
            return clean
    return {}
