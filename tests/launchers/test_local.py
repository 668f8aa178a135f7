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
from told_phases import Told

from launchers import proc
from launchers.base import LaunchSpec, Phase, StartProgress, StopReport
from launchers.errors import BadArgument, CannotRun, CudaError, LaunchError, NotOurs, NotStopped, PortTaken
from launchers.local import LocalLauncher
from launchers.process import STUDY_MARKER, OwnedProcess
from launchers.sglang.dialect import SGLANG
from launchers.simulated.launcher import SimulatedLauncher

SPEC = LaunchSpec("example/tiny", study_marker=f"test-local-{os.getpid()}", run_marker="run")

#: What the server below tells of itself, and what is said of it.
STRANGE = {
    "another name": "it serves 'sweep-of-another'",
    "anything without a key": "it answers without the key",
    "nothing to our key": "it refuses the key of ours .status 401",
}
#: A server in a few lines: it logs, waits for files in FOLDER, and answers as the variables say.
SCRIPT = """
import http.server, json, os, pathlib, signal, sys, time
folder, port = pathlib.Path(sys.argv[1]), int(sys.argv[2])
name = sys.argv[sys.argv.index("--served-model-name") + 1]
key = json.loads(pathlib.Path(sys.argv[sys.argv.index("--config") + 1]).read_text())["api-key"]
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        (folder / "asked").open("a").write(self.command + " " + self.path + "\\n")
        tells, given = os.environ.get("TELLS"), self.headers["Authorization"]
        refused = given != "Bearer " + key and tells != "anything without a key" or tells == "nothing to our key"
        if self.path != "/health" and refused:
            return self.send_error(401)
        if self.path == "/model_info":
            called = "sweep-of-another" if tells == "another name" else name
            body = json.dumps({"served_model_name": called}).encode()
        elif self.path == "/generate":
            body = json.dumps({"meta_info": {"completion_tokens": 1}}).encode()
        elif self.path == "/health" and (folder / "busy").exists():
            return self.send_error(503)
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
print("\\rLoading safetensors checkpoint shards: 50% Completed | 81/163\\r", end="", flush=True)
if "SAYS" in os.environ:
    print(os.environ["SAYS"].replace("ITS_KEY", key), flush=True)
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

    def interpreter(self) -> str:
        return sys.executable

    def gpu_names(self) -> tuple[str, ...]:
        return ()

    def versions(self) -> Mapping[str, str]:
        return {"sglang": "0"}


def spec(**env: str) -> LaunchSpec:
    return dataclasses.replace(SPEC, env=env)


def never() -> bool:
    return False


def ignore(_: StartProgress) -> None:
    pass


def left() -> list[int]:
    """Living processes with this file's marker."""
    marker = f"{STUDY_MARKER}={SPEC.study_marker}".encode()
    return [pid for pid in proc.see_all() if proc.is_alive(pid) and proc.has_marker(pid, marker)]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    deadline_s = time.monotonic() + 10
    while left():
        assert time.monotonic() < deadline_s, f"left running: {left()}"
        time.sleep(0.02)


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
    launcher, told = Ported(tmp_path), Told()
    Stranger.asked.clear()
    with strangers() as serve:

        def on_progress(progress: StartProgress) -> None:
            told(progress)
            if told.phases == [Phase.SPAWNED]:
                serve(launcher.ports[0])

        with launcher.launch(SPEC, on_progress, never) as server:
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

        def on_progress(progress: StartProgress) -> None:
            if progress.phase is Phase.SPAWNED and len(launcher.ports) == 1:
                serve(launcher.ports[0])

        with launcher.launch(SPEC, on_progress, never):
            assert len(launcher.ports) == 2
            assert asked.read_text().startswith("GET /health")


@pytest.mark.parametrize("tells", ["another name", "anything without a key", "nothing to our key"])
def test_another_server_is_not_measured_even_behind_our_own_process(tells: str, tmp_path: Path) -> None:
    # As a process of ours that passes requests on to a server that it found.
    launcher = ScriptLauncher(tmp_path)
    with pytest.raises(NotOurs, match=STRANGE[tells]):
        launcher.launch(spec(TELLS=tells), ignore, never)
    asked = (tmp_path / "asked").read_text()
    assert "/model_info" in asked
    assert "/generate" not in asked


def test_after_three_taken_ports_a_start_gives_up(tmp_path: Path) -> None:
    launcher, told = Ported(tmp_path), Told()
    with strangers() as serve:

        def on_progress(progress: StartProgress) -> None:
            told(progress)
            if progress.phase is Phase.SPAWNED:
                serve(launcher.ports[-1])

        with pytest.raises(PortTaken, match=r"another program|already in use"):
            launcher.launch(SPEC, on_progress, never)
    assert len(set(launcher.ports)) == 3


def test_an_exit_that_nobody_asked_for_is_a_failure_whatever_its_code(tmp_path: Path) -> None:
    says = "RuntimeError: CUDA error: an illegal memory access was encountered"
    with pytest.raises(CudaError, match="illegal memory access") as caught:
        ScriptLauncher(tmp_path).launch(spec(SAYS=says, EXIT="0"), ignore, never)
    assert caught.value.exit_code == 0
    assert caught.value.phase is Phase.LOADING_WEIGHTS


def test_a_server_that_dies_under_load_tells_why(tmp_path: Path) -> None:
    # The first request is the one that proves it ready.
    fault = {"kind": "crash", "after_requests": 2, "exit_code": 0}
    launcher = SimulatedLauncher(tmp_path, "tiny", 1000.0)
    with launcher.launch(spec(SIMULATED_FAULT=json.dumps(fault)), ignore, never) as server:
        with contextlib.suppress(requests.RequestException):
            requests.post(
                f"{server.url}/generate",
                json={"text": "x"},
                headers={"Authorization": f"Bearer {server.api_key}"},
                timeout=60,
            )
        error = server.failure()
        assert type(error) is CudaError
        assert "illegal memory access" in error.message
        assert server.log.name in error.message
        assert (error.exit_code, error.phase) == (0, Phase.READY)
        server.stop()
        # Of a server that we have stopped no end is a failure.
        assert server.failure() is None


def test_a_failed_start_that_cannot_be_stopped_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = OwnedProcess.stop

    def stops_all_but_one(self: OwnedProcess, grace_s: float | None = None) -> StopReport:
        return dataclasses.replace(stop(self, grace_s), survivors=(4711,))

    monkeypatch.setattr(OwnedProcess, "stop", stops_all_but_one)
    with pytest.raises(NotStopped, match=r"\[4711\].*ValueError: x.*stop them by hand") as caught:
        ScriptLauncher(tmp_path).launch(spec(SAYS="ValueError: x"), ignore, never)
    assert isinstance(caught.value.__cause__, LaunchError)


def test_a_server_that_is_too_busy_to_be_healthy_is_alive(tmp_path: Path) -> None:
    with ScriptLauncher(tmp_path).launch(SPEC, ignore, never) as server:
        (tmp_path / "busy").touch()
        assert requests.get(f"{server.url}/health", timeout=60).status_code == 503
        assert server.alive()


def test_an_observer_that_fails_ends_the_start(tmp_path: Path) -> None:
    def on_progress(progress: StartProgress) -> None:
        if progress.phase is Phase.LOADING_WEIGHTS:
            raise KeyError("the observer")

    with pytest.raises(KeyError):
        ScriptLauncher(tmp_path).launch(spec(SILENT="1"), on_progress, never)


def test_no_secret_reaches_an_error_or_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_inherited_secret")
    says = "OSError: 401 for hf_given_secret, hf_inherited_secret and ITS_KEY"
    env = {"SAYS": says, "MY_API_KEY": "hf_given_secret"}
    with pytest.raises(LaunchError, match="OSError: 401 for <redacted>, <redacted> and <redacted>") as caught:
        ScriptLauncher(tmp_path, key=lambda: "k3y-of-this-start").launch(spec(**env), ignore, never)
    assert "<redacted>" in caught.value.tail
    (log,) = (tmp_path / "logs").iterdir()
    for text in (f"{caught.value!r} {vars(caught.value)}", log.read_text()):
        assert "secret" not in text
        assert "k3y" not in text


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
    told = Told()

    def should_stop() -> bool:
        if told.phases[-1] is Phase.LOADING_WEIGHTS:
            for log in (tmp_path / "logs").iterdir():
                log.unlink()
            (tmp_path / "go on").touch()
        return False

    with ScriptLauncher(tmp_path).launch(spec(SILENT="1"), told, should_stop) as server:
        assert server.alive()
        assert os.listdir(tmp_path / "logs") == []
