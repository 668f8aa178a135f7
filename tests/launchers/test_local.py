"""Starting on this node: what counts as ready, what ends a start, what a failed start leaves and says."""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import requests

from launchers import guard
from launchers.base import LaunchSpec, Phase, StopReport
from launchers.errors import BadArgument, CannotRun, NotStopped, PortTaken, ServerCrashed, StartTimeout
from launchers.local import LocalLauncher
from launchers.process import STUDY_MARKER, OwnedProcess
from launchers.sglang.dialect import SGLANG
from launchers.simulated.launcher import SimulatedLauncher

SPEC = LaunchSpec("example/tiny", study_marker=f"test-local-{os.getpid()}", run_marker="run")

#: A server in a few lines: it logs, waits for files in FOLDER, and answers as the variables say.
SCRIPT = """
import http.server, json, os, pathlib, signal, sys, time
folder, port = pathlib.Path(sys.argv[1]), int(sys.argv[2])
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        (folder / "asked").open("a").write(self.command + " " + self.path + "\\n")
        if self.path == "/health" and os.environ.get("HEALTH") == "silent":
            time.sleep(600)
        if self.path == "/generate":
            told = json.loads(os.environ.get("GENERATED", '{"meta_info": {"completion_tokens": 1}}'))
            if not (folder / "lies over").exists() and "LIES" in os.environ:
                told = {}
            body = json.dumps(told).encode()
        elif self.path == "/health":
            body = b""
        else:
            return self.send_error(404)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_POST = answer
    def log_message(self, *_): pass
def wait(name):
    while not (folder / name).exists(): time.sleep(0.01)
print("Init parallel begin.\\nLoad weight begin. avail mem=1 GB", flush=True)
print("\\rLoading safetensors checkpoint shards: 100% Completed | 163/163\\r", end="", flush=True)
if "SAYS" in os.environ:
    print(os.environ["SAYS"], flush=True)
    sys.exit(int(os.environ.get("EXIT", "1")))
if "SILENT" in os.environ:
    wait("go on")
print("Load weight end. elapsed=1 s", flush=True)
print("Capture cuda graph begin. This can take up to several minutes.", flush=True)
try:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
except OSError:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
print(f"INFO:     Uvicorn running on http://127.0.0.1:{port}", flush=True)
server.serve_forever()
"""


class ScriptLauncher(LocalLauncher):
    """Starts the script above instead of SGLang."""

    simulated = False

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder / "logs", SGLANG, **{"startup_timeout_s": 60.0, "stop_grace_s": 1.0, **options})
        self.folder = folder
        self.ports: list[int] = []

    def command(self, spec: LaunchSpec, port: int) -> tuple[list[str], dict[str, str]]:
        self.ports.append(port)
        return [sys.executable, "-c", SCRIPT, str(self.folder), str(port)], dict(spec.env)

    def startup_s(self, info: Mapping[str, Any], wall_s: Mapping[str, float]) -> dict[str, float]:
        return dict(wall_s)

    def gpu_names(self) -> tuple[str, ...]:
        return ()

    def versions(self) -> Mapping[str, str]:
        return {"sglang": "0"}


def spec(**env: str) -> LaunchSpec:
    return dataclasses.replace(SPEC, env=env)


def never() -> bool:
    return False


def ignore(_: Phase) -> None:
    pass


def left() -> list[int]:
    """Living processes with this file's marker."""
    marker = f"{STUDY_MARKER}={SPEC.study_marker}".encode()
    return [pid for pid in guard.see_all() if guard.is_alive(pid) and guard.has_marker(pid, marker)]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    deadline_s = time.monotonic() + 10
    while left():
        assert time.monotonic() < deadline_s, f"left running: {left()}"
        time.sleep(0.02)


class Clock:
    """Goes only where it is put; each look at it lets the real time of a poll pass."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_long_silence_while_loading_is_not_a_failure(tmp_path: Path) -> None:
    clock, phases, waited = Clock(), [], []

    def should_stop() -> bool:
        if phases[-1] is Phase.LOADING_WEIGHTS:
            # Ten minutes without a line, then half an hour.
            clock.now_s = 700.0 if clock.now_s == 0.0 else 1840.0
            waited.append(clock.now_s)
            if clock.now_s == 1840.0:
                (tmp_path / "go on").touch()
        return False

    launcher = ScriptLauncher(tmp_path, startup_timeout_s=2700.0, clock=clock)
    with launcher.launch(spec(SILENT="1"), phases.append, should_stop) as server:
        assert waited[:2] == [700.0, 1840.0]
        assert phases[-1] is Phase.READY
        assert sum(server.phase_s.values()) == 1840.0
        assert server.phase_s["loading weights"] == 1840.0
        assert set(server.phase_s) == {str(phase) for phase in phases[:-1]}


@pytest.mark.parametrize(("end_s", "ends"), [(2699.9, False), (2700.0, True)])
def test_the_deadline_is_exact_and_tells_phase_and_last_line(end_s: float, ends: bool, tmp_path: Path) -> None:
    clock, phases, polls = Clock(), [], []

    def should_stop() -> bool:
        if phases[-1] is Phase.LOADING_WEIGHTS:
            clock.now_s = end_s
            polls.append(end_s)
        if len(polls) == 3:
            (tmp_path / "go on").touch()
        return False

    launcher = ScriptLauncher(tmp_path, startup_timeout_s=2700.0, clock=clock)
    if not ends:
        launcher.launch(spec(SILENT="1"), phases.append, should_stop).stop()
        return
    with pytest.raises(StartTimeout, match=r"2700 s .* 163/163.*startup_timeout_s") as caught:
        launcher.launch(spec(SILENT="1"), phases.append, should_stop)
    assert caught.value.phase is Phase.LOADING_WEIGHTS
    assert "163/163" in caught.value.tail


def test_a_healthy_server_that_generates_nothing_is_not_ready(tmp_path: Path) -> None:
    asked = tmp_path / "asked"

    def should_stop() -> bool:
        # It was asked to generate twice, and each time gave no token.
        if asked.exists() and asked.read_text().count("/generate") >= 2:
            assert Phase.READY not in phases
            (tmp_path / "lies over").touch()
        return False

    phases: list[Phase] = []
    with ScriptLauncher(tmp_path).launch(spec(LIES="1"), phases.append, should_stop):
        assert (tmp_path / "lies over").exists()


def test_a_server_that_accepts_and_never_answers_ends_at_the_deadline_with_one_question_open(tmp_path: Path) -> None:
    clock = Clock()
    asked = tmp_path / "asked"

    def should_stop() -> bool:
        if asked.exists() and clock.now_s < 600.0:
            clock.now_s += 100.0
        return False

    with pytest.raises(StartTimeout, match="not ready 600 s"):
        ScriptLauncher(tmp_path, startup_timeout_s=600.0, clock=clock).launch(
            spec(HEALTH="silent"), ignore, should_stop
        )
    assert asked.read_text() == "GET /health\n"


class Stranger(http.server.ThreadingHTTPServer):
    """Another program's server, which gives the right answers, on any number of ports."""

    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            Stranger.asked.append(self.path)
            body = json.dumps({"meta_info": {"completion_tokens": 1}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_: object) -> None: ...


@contextlib.contextmanager
def strangers() -> Iterator[Callable[[int], None]]:
    """A function that lets a stranger serve a port."""
    running: list[Stranger] = []

    def serve(port: int) -> None:
        server = Stranger(("127.0.0.1", port), Stranger.Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        running.append(server)

    try:
        yield serve
    finally:
        for server in running:
            server.shutdown()
            server.server_close()


class Ported(SimulatedLauncher):
    """Notes the ports that it was given."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "tiny", 1000.0)
        self.ports: list[int] = []

    def command(self, spec: LaunchSpec, port: int) -> tuple[list[str], dict[str, str]]:
        self.ports.append(port)
        return super().command(spec, port)


def test_anothers_server_on_the_port_is_never_taken_for_ours(tmp_path: Path) -> None:
    launcher, phases = Ported(tmp_path), []
    Stranger.asked.clear()
    with strangers() as serve:

        def on_phase(phase: Phase) -> None:
            phases.append(phase)
            if phases == [Phase.SPAWNED]:
                serve(launcher.ports[0])

        with launcher.launch(SPEC, on_phase, never) as server:
            assert len(launcher.ports) == 2
            assert server.url.endswith(f":{launcher.ports[1]}")
            # The simulated server asks its own port when it warms up, as SGLang does; a probe begins here.
            assert "/health" not in Stranger.asked
    assert launcher.ports[0] != launcher.ports[1]


def test_a_server_that_hangs_on_a_taken_port_is_not_waited_for(tmp_path: Path) -> None:
    # SGLang 0.5.23 does so for two minutes, and ignores TERM meanwhile.
    launcher = ScriptLauncher(tmp_path)
    asked = tmp_path / "asked"
    with strangers() as serve:

        def on_phase(phase: Phase) -> None:
            if phase is Phase.SPAWNED and len(launcher.ports) == 1:
                serve(launcher.ports[0])

        with launcher.launch(SPEC, on_phase, never):
            assert len(launcher.ports) == 2
            assert asked.read_text().startswith("GET /health")


def test_after_three_taken_ports_a_start_gives_up(tmp_path: Path) -> None:
    launcher, phases = Ported(tmp_path), []
    with strangers() as serve:

        def on_phase(phase: Phase) -> None:
            phases.append(phase)
            if phase is Phase.SPAWNED:
                serve(launcher.ports[-1])

        with pytest.raises(PortTaken, match=r"another program|already in use"):
            launcher.launch(SPEC, on_phase, never)
    assert len(set(launcher.ports)) == 3


def test_an_exit_that_nobody_asked_for_is_a_failure_whatever_its_code(tmp_path: Path) -> None:
    says = "RuntimeError: CUDA error: an illegal memory access was encountered"
    with pytest.raises(ServerCrashed, match="illegal memory access") as caught:
        ScriptLauncher(tmp_path).launch(spec(SAYS=says, EXIT="0"), ignore, never)
    assert caught.value.exit_code == 0
    assert caught.value.phase is Phase.LOADING_WEIGHTS


def test_a_server_that_dies_under_load_tells_why(tmp_path: Path) -> None:
    # The first request is the one that proves it ready.
    fault = {"kind": "crash", "after_requests": 2, "exit_code": 0}
    launcher = SimulatedLauncher(tmp_path, "tiny", 1000.0)
    with launcher.launch(spec(SIMULATED_FAULT=json.dumps(fault)), ignore, never) as server:
        with contextlib.suppress(requests.RequestException):
            requests.post(f"{server.url}/generate", json={"text": "x"}, timeout=60)
        error = server.failure()
    assert type(error) is ServerCrashed
    assert "illegal memory access" in error.message
    assert (error.exit_code, error.phase) == (0, Phase.READY)


def test_a_failed_start_that_cannot_be_stopped_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = OwnedProcess.stop

    def stops_all_but_one(self: OwnedProcess, grace_s: float | None = None) -> StopReport:
        return dataclasses.replace(stop(self, grace_s), survivors=(4711,))

    monkeypatch.setattr(OwnedProcess, "stop", stops_all_but_one)
    with pytest.raises(NotStopped, match=r"\[4711\].*ValueError: x.*stop them by hand") as caught:
        ScriptLauncher(tmp_path).launch(spec(SAYS="ValueError: x"), ignore, never)
    assert isinstance(caught.value.__cause__, ServerCrashed)


def test_an_observer_that_fails_ends_the_start(tmp_path: Path) -> None:
    def on_phase(phase: Phase) -> None:
        if phase is Phase.LOADING_WEIGHTS:
            raise KeyError("the observer")

    with pytest.raises(KeyError):
        ScriptLauncher(tmp_path).launch(spec(SILENT="1"), on_phase, never)


def test_a_secret_of_the_environment_does_not_reach_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_inherited_secret")
    env = {"SAYS": "OSError: 401 for hf_given_secret and hf_inherited_secret", "MY_API_KEY": "hf_given_secret"}
    with pytest.raises(ServerCrashed, match="OSError: 401 for <redacted> and <redacted>") as caught:
        ScriptLauncher(tmp_path).launch(spec(**env), ignore, never)
    assert "secret" not in str(caught.value) + caught.value.tail
    assert "<redacted>" in caught.value.tail


def test_a_secret_on_the_command_line_is_refused(tmp_path: Path) -> None:
    secret = dataclasses.replace(SPEC, flags={"api_key": "hf_secret"})
    with pytest.raises(BadArgument, match="api_key") as caught:
        SimulatedLauncher(tmp_path, "tiny").launch(secret, ignore, never)
    assert "hf_secret" not in str(caught.value)


def test_a_log_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(CannotRun, match=r"log cannot be written.*make room"):
        ScriptLauncher(tmp_path).launch(SPEC, ignore, never)


def test_a_log_that_disappears_does_not_end_a_start(tmp_path: Path) -> None:
    phases: list[Phase] = []

    def should_stop() -> bool:
        if phases[-1] is Phase.LOADING_WEIGHTS:
            for log in (tmp_path / "logs").iterdir():
                log.unlink()
            (tmp_path / "go on").touch()
        return False

    with ScriptLauncher(tmp_path).launch(spec(SILENT="1"), phases.append, should_stop) as server:
        assert server.alive()
        assert os.listdir(tmp_path / "logs") == []
