"""What every launcher promises, held against each of them."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import requests
from launcher_subjects import SUBJECTS, Failing, Settings, Subject
from told_phases import Told

from launchers import guard, proc
from launchers.base import Launcher, LaunchSpec, Phase, ServerHandle, StartProgress
from launchers.errors import LaunchError, Stalled, StartCancelled, StartTimeout
from launchers.ports import port_is_free
from launchers.process import STUDY_MARKER

DEADLINE_S = 60.0


def never() -> bool:
    return False


def ignore(_: StartProgress) -> None:
    pass


def until(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"not within {deadline_s:g} s: {what}"
        time.sleep(0.02)


def processes_of(spec: LaunchSpec) -> set[int]:
    """Living processes with the spec's marker, guards left out: they end a moment after their report."""
    marker = f"{STUDY_MARKER}={spec.study_marker}".encode()
    found = set()
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(psutil.Error):
            ours = proc.is_alive(pid) and proc.has_marker(pid, marker)
            if ours and guard.__file__ not in psutil.Process(pid).cmdline():
                found.add(pid)
    return found


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


def asked_port(spec: LaunchSpec) -> int:
    """The port that a running server was told to take."""
    for pid in processes_of(spec):
        with contextlib.suppress(psutil.Error, ValueError):
            words = psutil.Process(pid).cmdline()
            return int(words[words.index("--port") + 1])
    raise AssertionError("no process with a --port")


def generates(server: ServerHandle) -> bool:
    body = {"text": "Hello", "sampling_params": {"max_new_tokens": 3, "temperature": 0}}
    headers = {"Authorization": f"Bearer {server.api_key}"}
    answer = requests.post(f"{server.url}/generate", json=body, headers=headers, timeout=DEADLINE_S)
    return answer.status_code == 200 and answer.json()["meta_info"]["completion_tokens"] == 3


class Started:
    """A ready server with what was seen of its start."""

    def __init__(self, subject: Subject, folder: Path) -> None:
        self.spec = subject.spec(Settings(env={"CONTRACT_VARIABLE": "arrived"}))
        self.launcher = subject.make(folder, hang_s=4.0)
        self.told = Told()
        self.handle = self.launcher.launch(self.spec, self.told, never)


@pytest.fixture(scope="module")
def started(subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """One server for the tests that only look at it, with the owner's environment spoilt while it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", "someone-else")
        patch.setenv("ORCHESTRATOR_SECRET_OF_OWNER", "mine")
        patch.setenv("PLAIN_VARIABLE_OF_OWNER", "inherited")
        seen = Started(subject, tmp_path_factory.mktemp("logs"))
    try:
        yield seen
    finally:
        seen.handle.stop()


def test_a_ready_server_generates_at_its_url(started: Started) -> None:
    assert generates(started.handle)
    assert started.handle.alive()


def test_phases_are_told_in_order_and_end_in_ready(started: Started) -> None:
    order = list(Phase)
    positions = [order.index(phase) for phase in started.told.phases]
    assert positions == sorted(set(positions))
    assert started.told.phases[0] is Phase.SPAWNED
    assert Phase.LOADING_WEIGHTS in started.told.phases
    assert started.told.phases[-1] is Phase.READY


def test_phase_durations_are_seconds(started: Started) -> None:
    assert started.handle.phase_s
    assert all(isinstance(s, float) and 0 <= s < 1e5 for s in started.handle.phase_s.values())
    assert sum(started.handle.phase_s.values()) > 0


def test_a_server_knows_whether_it_is_simulated(started: Started) -> None:
    assert started.handle.simulated is started.launcher.simulated
    assert started.launcher.versions()["sglang"]
    assert isinstance(started.launcher.gpu_names(), tuple)


def test_what_runs_is_the_command_that_was_told(started: Started) -> None:
    argv, env = started.launcher.command(started.spec, port_of(started.handle.url))
    lines = []
    for pid in processes_of(started.spec):
        with contextlib.suppress(psutil.Error):
            lines.append(psutil.Process(pid).cmdline())
    # Behind it, who the server is and where its ranks meet: nobody who starts it by hand needs these.
    (words,) = [line[len(argv) :] for line in lines if line[: len(argv)] == argv]
    assert words[::2] == ["--served-model-name", "--config", "--nccl-port"]
    assert words[1] == started.handle.model
    assert started.handle.start_id in started.handle.model
    assert env.items() >= started.spec.env.items()


def test_the_specs_environment_arrives_and_the_owners_private_one_does_not(started: Started) -> None:
    environments = [
        Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0") for pid in processes_of(started.spec)
    ]
    assert environments
    for variables in environments:
        assert "CONTRACT_VARIABLE=arrived" in variables
        assert "PLAIN_VARIABLE_OF_OWNER=inherited" in variables
        assert not [v for v in variables if v.startswith(("RAY_ADDRESS", "ORCHESTRATOR_SECRET"))]


def test_a_server_that_someone_froze_under_a_request_is_found_to_hang(started: Started) -> None:
    members = processes_of(started.spec)
    watch = started.handle.watch("under 1 user")
    with ThreadPoolExecutor(1) as user:
        try:
            for pid in members:
                os.kill(pid, signal.SIGSTOP)
            answer = user.submit(generates, started.handle)
            until(watch.stalled, "the hang is noticed")
        finally:
            for pid in members:
                os.kill(pid, signal.SIGCONT)
        assert answer.result()
    assert started.handle.watch("under 1 user").stalled() is None


def test_two_servers_on_one_node_do_not_share_a_port_or_an_id(started: Started) -> None:
    with started.launcher.launch(started.spec, ignore, never) as other:
        assert port_of(other.url) != port_of(started.handle.url)
        assert other.start_id != started.handle.start_id
        assert generates(other)
        assert generates(started.handle)
    assert started.handle.alive()


def test_stopping_proves_that_nothing_is_left_and_can_be_repeated(subject: Subject, launcher: Launcher) -> None:
    spec = subject.spec()
    server = launcher.launch(spec, ignore, never)
    report = server.stop()
    assert report.proven
    assert (report.survivors, report.ports_held, report.signals) == ((), (), ("SIGTERM",))
    assert report.exit_code == 0
    assert not server.alive()
    assert processes_of(spec) == set()
    assert port_is_free(port_of(server.url))
    assert server.stop() is report


def test_leaving_the_block_by_an_exception_stops_the_server(subject: Subject, launcher: Launcher) -> None:
    spec = subject.spec()
    server: ServerHandle | None = None

    def fail() -> None:
        nonlocal server
        with launcher.launch(spec, ignore, never) as server:
            raise KeyError("in the block")

    with pytest.raises(KeyError):
        fail()
    assert server is not None
    assert not server.alive()
    assert processes_of(spec) == set()


def test_a_server_that_dies_is_not_alive(subject: Subject, launcher: Launcher) -> None:
    spec = subject.spec()
    with launcher.launch(spec, ignore, never) as server:
        for pid in processes_of(spec):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not server.alive(), "the server's death is noticed")
        assert server.stop().proven


def test_a_server_that_ignores_term_is_killed(subject: Subject, tmp_path: Path) -> None:
    if subject.ignores_term is None:
        pytest.skip("this launcher's server cannot be made to ignore TERM")
    spec = subject.spec(subject.ignores_term)
    server = subject.make(tmp_path, stop_grace_s=0.2).launch(spec, ignore, never)
    report = server.stop()
    assert report.proven
    assert (report.signals, report.exit_code) == (("SIGTERM", "SIGKILL"), -signal.SIGKILL)
    assert processes_of(spec) == set()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "failing" in metafunc.fixturenames:
        names = sorted({name for subject in SUBJECTS for name in subject.failing})
        metafunc.parametrize("failing", names)


def test_a_start_that_fails_says_why_and_leaves_nothing(failing: str, subject: Subject, launcher: Launcher) -> None:
    if failing not in subject.failing:
        pytest.skip("this launcher's server cannot be made to fail so")
    case: Failing = subject.failing[failing]
    spec = subject.spec(case.settings)
    before = descendants()
    told = Told()
    error = failed_start(lambda: launcher.launch(spec, told, never), case.tries)
    assert type(error) is case.error
    assert error.exit_code == case.exit_code
    assert error.phase == told.phases[-1]
    assert case.says in error.tail
    assert processes_of(spec) == set()
    assert descendants() <= before
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), vars(copy)) == (str(error), vars(error))


def failed_start(launch: Callable[[], ServerHandle], tries: int) -> LaunchError:
    for _ in range(tries):
        try:
            launch().stop()
        except LaunchError as error:
            return error
    pytest.fail(f"it started, {tries} times")


def descendants() -> set[int]:
    """Living processes below this one."""
    seen = proc.see_all()
    return {pid for pid in proc.descendants(os.getpid(), seen) if seen[pid].alive}


@pytest.fixture
def hanging(subject: Subject, tmp_path: Path) -> LaunchSpec:
    folder = tmp_path / "hanging"
    folder.mkdir()
    return subject.spec(subject.hangs_loading(folder))


def test_a_start_is_given_up_when_the_sweep_stops(hanging: LaunchSpec, launcher: Launcher) -> None:
    spec = hanging
    told = Told()
    ports: list[int] = []

    def should_stop() -> bool:
        if Phase.LOADING_WEIGHTS in told.phases and not ports:
            ports.append(asked_port(spec))
        return bool(ports)

    with pytest.raises(StartCancelled) as caught:
        launcher.launch(spec, told, should_stop)
    assert caught.value.phase is Phase.LOADING_WEIGHTS
    assert processes_of(spec) == set()
    assert port_is_free(ports[0])


def test_a_start_ends_at_its_deadline_with_phase_and_last_line(
    subject: Subject, hanging: LaunchSpec, tmp_path: Path
) -> None:
    spec = hanging
    now = [0.0]
    launcher = subject.make(tmp_path, 2700.0, clock=lambda: now[0])

    def on_progress(progress: StartProgress) -> None:
        if progress.phase is Phase.LOADING_WEIGHTS:
            now[0] = 2700.0

    with pytest.raises(StartTimeout, match="Load weight begin") as caught:
        launcher.launch(spec, on_progress, never)
    assert caught.value.phase is Phase.LOADING_WEIGHTS
    assert processes_of(spec) == set()


class Hurry:
    """A clock that runs 20 s ahead each time the launcher asks whether to stop; only from when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.on = False

    def __call__(self) -> float:
        return self.now_s

    def never(self) -> bool:
        self.now_s += 20.0 if self.on else 0.0
        return False


def test_a_start_that_waits_for_what_never_comes_has_stalled(
    subject: Subject, hanging: LaunchSpec, tmp_path: Path
) -> None:
    clock = Hurry()

    def on_progress(progress: StartProgress) -> None:
        clock.on = progress.phase is Phase.LOADING_WEIGHTS

    with pytest.raises(Stalled, match=r"nothing moved for 6\d\d s.*Load weight begin") as caught:
        subject.make(tmp_path, 1e5, stall_s=600.0, clock=clock).launch(hanging, on_progress, clock.never)
    assert caught.value.phase is Phase.LOADING_WEIGHTS
    assert processes_of(hanging) == set()


def test_a_start_that_someone_froze_has_stalled_and_is_stopped_all_the_same(subject: Subject, tmp_path: Path) -> None:
    spec, clock = subject.spec(), Hurry()

    def on_progress(progress: StartProgress) -> None:
        for pid in processes_of(spec):
            os.kill(pid, signal.SIGSTOP)
        clock.on = True

    with pytest.raises(Stalled, match="nothing moved"):
        subject.make(tmp_path, 1e5, stall_s=600.0, clock=clock).launch(spec, on_progress, clock.never)
    assert processes_of(spec) == set()


def test_a_port_taken_between_choice_and_bind_is_nobodys_fault(subject: Subject, launcher: Launcher) -> None:
    spec = subject.spec()
    told = Told()
    with socket.socket() as thief:

        def on_progress(progress: StartProgress) -> None:
            if not told.phases:
                thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                thief.bind(("127.0.0.1", asked_port(spec)))
                thief.listen()
            told(progress)

        with launcher.launch(spec, on_progress, never) as server:
            assert generates(server)
            assert port_of(server.url) != thief.getsockname()[1]
    assert told.phases.count(Phase.SPAWNED) == 2
    assert told.phases.count(Phase.READY) == 1
    assert processes_of(spec) == set()


def test_killing_the_owner_leaves_nothing(subject: Subject, tmp_path: Path) -> None:
    spec = subject.spec()
    code = textwrap.dedent(
        f"""
        import pathlib, time
        from launchers.base import LaunchSpec
        folder = pathlib.Path({str(tmp_path)!r})
        {textwrap.indent(subject.source, " " * 8).lstrip()}
        spec = LaunchSpec({spec.model!r}, {dict(spec.flags)!r}, {dict(spec.env)!r},
                          study_marker={spec.study_marker!r}, run_marker="x")
        server = launcher.launch(spec, lambda progress: None, lambda: False)
        print(server.url, flush=True)
        time.sleep(600)
        """
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        url = owner.stdout.readline().strip()
        assert processes_of(spec)
        owner.kill()
        until(lambda: not processes_of(spec) and port_is_free(port_of(url)), "server and port gone", 10.0)
    finally:
        owner.kill()
        owner.wait()
        for pid in processes_of(spec):
            os.kill(pid, signal.SIGKILL)
