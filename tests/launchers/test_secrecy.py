"""No secret reaches a log, a command line, a stored answer or an error, and who answers is who was started.

Held against the twin, and once against a real SGLang, which echoes its key in its log and in /server_info.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import real_sglang
import requests

from launchers import local, proc
from launchers.base import LaunchSpec, Phase, ServerHandle, StartProgress
from launchers.errors import StartCancelled
from launchers.local import LocalLauncher
from launchers.local_server import server_info
from launchers.ports import PortBlock
from launchers.sglang.launcher import SGLangLauncher
from launchers.simulated.launcher import SimulatedLauncher
from orchestrator.benchmark.counters import flush_cache, scrape
from orchestrator.benchmark.load import run_level
from orchestrator.datasets import RandomIds
from orchestrator.offered_load import Load
from orchestrator.workload import Level, Workload

KEY = f"k3y{uuid.uuid4().hex}"
TOKEN, OWNERS_TOKEN = f"hf_{uuid.uuid4().hex}", f"hf_{uuid.uuid4().hex}"
SECRETS = {"key": KEY, "token of the trial": TOKEN, "token of the owner": OWNERS_TOKEN}


@dataclass
class Started:
    """A ready server, and what was seen of its start and of its machine."""

    launcher: LocalLauncher
    spec: LaunchSpec
    folder: Path
    #: Secrets by where they were seen.
    seen: dict[str, set[str]] = field(default_factory=dict)
    #: Modes of its private folder and of what is in it, before the server had read it.
    modes: dict[str, str] = field(default_factory=dict)
    server: ServerHandle | None = None

    def look(self) -> None:
        """At what everyone on the machine can read of the processes, and at the logs."""
        for pid in proc.see_all():
            for name in ("cmdline", "comm"):
                with contextlib.suppress(OSError):
                    self._note(f"/proc/*/{name}", Path(f"/proc/{pid}/{name}").read_bytes())
        self.look_at_files(self.folder)

    def look_at_files(self, folder: Path) -> None:
        for file in folder.rglob("*"):
            if file.is_file():
                self._note(str(file), file.read_bytes())

    def _note(self, where: str, data: bytes) -> None:
        found = {name for name, secret in SECRETS.items() if secret.encode() in data}
        if found:
            self.seen.setdefault(where, set()).update(found)

    def private_files(self) -> list[Path]:
        own = [path for path in Path(tempfile.gettempdir()).iterdir() if self.spec.study_marker in path.name]
        return [*own, *(file for folder in own for file in folder.iterdir())]

    def progress(self, progress: StartProgress) -> None:
        self.look()
        if progress.phase is Phase.SPAWNED:
            for path in self.private_files():
                self.modes["folder" if path.is_dir() else path.name] = stat.filemode(path.stat().st_mode)


def simulated(folder: Path) -> tuple[LocalLauncher, str, Mapping[str, Any], Mapping[str, str]]:
    return SimulatedLauncher(folder, "tiny", 1000.0, key=lambda: KEY), "example/tiny", {}, {}


def real(folder: Path) -> tuple[LocalLauncher, str, Mapping[str, Any], Mapping[str, str]]:
    launcher = SGLangLauncher(folder, str(real_sglang.PYTHON), 400.0, 30.0, key=lambda: KEY)
    return launcher, str(real_sglang.MARKOV), real_sglang.FLAGS, real_sglang.ENV


@pytest.fixture(
    scope="module",
    params=[simulated, pytest.param(real, marks=pytest.mark.real_sglang)],
    ids=lambda make: make.__name__,
)
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    make: Callable[[Path], tuple[LocalLauncher, str, Mapping[str, Any], Mapping[str, str]]] = request.param
    folder = tmp_path_factory.mktemp("study")
    launcher, model, flags, env = make(folder / "logs")
    marker = f"secrecy{uuid.uuid4().hex[:8]}"
    spec = LaunchSpec(
        model, flags, {**env, "MY_API_TOKEN": TOKEN}, study_marker=marker, run_marker="run", folder=folder
    )
    seen = Started(launcher, spec, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_TOKEN", OWNERS_TOKEN)
        seen.server = launcher.launch(spec, seen.progress, lambda: False)
    try:
        yield seen
    finally:
        seen.server.stop()


def ready(started: Started) -> ServerHandle:
    assert started.server is not None
    return started.server


def get(server: ServerHandle, path: str, key: str | None) -> requests.Response:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return requests.get(server.url + path, headers=headers, timeout=60)


def test_the_key_goes_by_a_file_that_nobody_else_can_read_and_that_is_gone_when_it_was_read(started: Started) -> None:
    assert started.modes["folder"] == "drwx------"
    assert started.modes["config.yaml"] == "-rw-------"
    assert not [file for file in started.private_files() if file.suffix == ".yaml"]


def test_the_server_asks_for_its_key_and_answers_to_a_name_of_its_own(started: Started) -> None:
    server = ready(started)
    assert server.api_key == KEY
    assert server.start_id in server.model
    for path in ("/model_info", "/v1/models", "/server_info"):
        assert get(server, path, None).status_code == 401
        assert get(server, path, "another-key").status_code == 401
    assert get(server, "/model_info", KEY).json()["served_model_name"] == server.model
    assert [model["id"] for model in get(server, "/v1/models", KEY).json()["data"]] == [server.model]
    # They are asked without a key by whoever scrapes or probes.
    assert get(server, "/metrics", None).status_code == 200
    assert get(server, "/health", None).status_code == 200


def test_it_echoes_its_key_and_nothing_of_that_is_kept(started: Started) -> None:
    server = ready(started)
    # The danger is real: else the rest would prove nothing.
    assert KEY in get(server, "/server_info", KEY).text
    told = server_info(server.url, server.api_key)
    assert told["port"]
    assert told["api_key"] == "<redacted>"
    assert KEY not in str(told)
    assert "'api_key': '<redacted>'" in server.log.read_text()


def test_its_environment_is_shown_without_secrets(started: Started) -> None:
    shown = ready(started).environment()
    assert shown["MY_API_TOKEN"] == shown["HF_TOKEN"] == "<redacted>"
    assert not [name for name in SECRETS if SECRETS[name] in str(shown)]


def test_a_level_is_measured_with_the_key_and_without_it_nothing_is(started: Started, tmp_path: Path) -> None:
    server = ready(started)
    workload = Workload(
        dataset=RandomIds(input_tokens=16, output_tokens=8, vocab_size=2048),
        concurrency=(2,),
        level=Level(requests_per_user=1, min_s=0.0, max_s=60.0, half_width=None, warmup_tolerance=None),
    )

    def level(key: str | None) -> Any:
        return asyncio.run(run_level(server.url, workload, Load(2), model=server.model, api_key=key))

    assert flush_cache(server.url, api_key=server.api_key) == "flushed"
    record = level(server.api_key)
    assert record.requests
    assert all(request.succeeded for request in record.requests)
    assert scrape(server.url, api_key=server.api_key)["generation_tokens_total"] > 0
    refused = level("another-key")
    assert refused.gave_up is not None
    assert not [request for request in refused.requests if request.succeeded]
    assert "401" in str(refused.gave_up)
    (tmp_path / "records").write_text(f"{record} {refused}")
    started.look_at_files(tmp_path)
    assert started.seen == {}


class OnPortsOf:
    """Gives out the ports of a running server first."""

    def __init__(self, http: int) -> None:
        self._first: int | None = http
        self._ports = local._PORTS
        self.taken: list[int] = []

    def take(self) -> PortBlock:
        block = self._ports.take()
        if self._first is not None:
            block, self._first = PortBlock(self._first, block.nccl, block._lock), None
        self.taken.append(block.http)
        return block


def test_another_server_of_the_same_kind_on_the_port_is_left_alone(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ready(started)
    ports = OnPortsOf(int(server.url.rsplit(":", 1)[1]))
    monkeypatch.setattr(local, "_PORTS", ports)
    before = server.log.read_text().count("POST /generate")
    # The second try begins on another port; it need not end.
    with pytest.raises(StartCancelled):
        started.launcher.launch(started.spec, lambda progress: None, lambda: len(ports.taken) == 2)
    assert ports.taken[1] != ports.taken[0]
    assert server.log.read_text().count("POST /generate") == before
    assert server.alive()
    assert get(server, "/model_info", KEY).status_code == 200


def test_after_the_stop_neither_a_secret_nor_a_private_file_is_left(started: Started) -> None:
    server = ready(started)
    started.look()
    report = server.stop()
    assert report.proven
    started.look()
    assert started.seen == {}
    assert server.environment() == {}
    assert started.private_files() == []
    assert os.path.getsize(server.log) > 1000
