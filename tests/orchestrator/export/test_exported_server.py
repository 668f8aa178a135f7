"""The exported script starts a server that serves, and that goes when it is told to."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import real_sglang
import requests

from launchers.base import LaunchSpec, shell_command
from launchers.ledger import SharedFile, held_inodes, remove_files, shared_files
from launchers.proc import descendants, see_all
from launchers.sglang.launcher import SGLangLauncher
from orchestrator.analysis.rows import Row
from orchestrator.export.__main__ import main
from orchestrator.export.artefact import artefact
from orchestrator.export.choice import choose
from orchestrator.export.config_file import config_yaml
from orchestrator.export.shell import shell_script
from orchestrator.kept_study import KeptStudy, open_study


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


@contextmanager
def serving(script: Path, deadline_s: float, **variables: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The script's server once it is healthy, with its URL; at the end its processes and shared memory are gone."""
    port = free_port()
    log = script.with_suffix(".log")
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["sh", str(script)],
            env={**os.environ, **variables, "SERVE_PORT": str(port)},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    shared: set[SharedFile] = set()
    try:
        end = time.monotonic() + deadline_s
        url = f"http://127.0.0.1:{port}"
        while True:
            assert process.poll() is None, log.read_text(errors="replace")[-4000:]
            assert time.monotonic() < end, log.read_text(errors="replace")[-4000:]
            with contextlib.suppress(requests.RequestException):
                if requests.get(f"{url}/health", timeout=25).status_code == 200:
                    break
            time.sleep(0.1)
        held = held_inodes({process.pid, *descendants(process.pid, see_all())}, writable=True)
        shared = {file for file in shared_files() if file.inode in held}
        yield url, process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
        # SGLang 0.5.23 leaves its own there also when it is told to end.
        remove_files(shared)


def test_the_script_of_a_simulated_study_starts_a_server_that_answers(study: Path) -> None:
    script = study / "serve.sh"
    choice = choose(open_study(study))
    assert choice.trial == 1
    assert main([str(study), "--out", str(script)]) == 0
    assert os.access(script, os.X_OK)
    with serving(script, 60) as (url, process):
        asked = {"model": "tiny", "prompt": "Once", "max_tokens": 5, "ignore_eos": True}
        answer = requests.post(f"{url}/v1/completions", json=asked, timeout=30)
        assert answer.json()["usage"]["completion_tokens"] == 5
        told = requests.get(f"{url}/server_info", timeout=30).json()
        assert told["max_running_requests"] == choice.rows[0].trial.requested_flags["max-running-requests"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert "SIMULATED" in script.with_suffix(".log").read_text()


def test_a_key_comes_by_a_file_and_is_asked_for(study: Path) -> None:
    script, key = study / "serve.sh", study / "key.yaml"
    key.write_text("api-key: of-this-test\n")
    assert main([str(study), "--trial", "0", "--out", str(script)]) == 0
    with serving(script, 60, SERVE_CONFIG=str(key)) as (url, _):
        asked = {"model": "tiny", "prompt": "Once", "max_tokens": 1}
        refused = requests.post(f"{url}/v1/completions", json=asked, timeout=30)
        header = {"Authorization": "Bearer of-this-test"}
        answered = requests.post(f"{url}/v1/completions", json=asked, headers=header, timeout=30)
    assert (refused.status_code, answered.status_code) == (401, 200)


@pytest.mark.real_sglang
@pytest.mark.timeout(600)
def test_the_script_of_a_real_study_starts_a_server_that_answers(
    setting: Callable[..., Row], kept: Callable[..., KeptStudy], tmp_path: Path
) -> None:
    spec = LaunchSpec(str(real_sglang.MARKOV), real_sglang.FLAGS, real_sglang.ENV)
    command = shell_command(*SGLangLauncher(tmp_path, str(real_sglang.PYTHON)).command(spec, 30_000))
    row = setting(
        0, role="baseline", flags=real_sglang.FLAGS, env=real_sglang.ENV, command=command, gpus=0, simulated=False
    )
    study = kept(row, model=str(real_sglang.MARKOV), launcher="{kind: sglang}")
    made = artefact(study, choose(study))
    script = tmp_path / "serve.sh"
    script.write_text(shell_script(made))
    with serving(script, 300) as (url, process):
        sampling = {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}
        answer = requests.post(
            f"{url}/generate", json={"input_ids": [5, 6, 7], "sampling_params": sampling}, timeout=120
        )
        assert answer.json()["meta_info"]["completion_tokens"] == 8
        told = requests.get(f"{url}/server_info", timeout=60).json()
        assert told["max_total_tokens"] == real_sglang.FLAGS["max-total-tokens"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    # SGLang's own reader of --config makes the same settings of the YAML file as its parser does of the words.
    file = tmp_path / "serve.yaml"
    file.write_text(config_yaml(made))
    code = (
        "import json, sys; from sglang.srt.server_args import prepare_server_args as p; import dataclasses\n"
        "cut = sys.argv.index('--'); a, b = p(sys.argv[1:cut]), p(sys.argv[cut + 1:])\n"
        "print(json.dumps([k for k, v in vars(a).items() if k != 'random_seed' and v != vars(b).get(k)], default=str))"
    )
    words = SGLangLauncher(tmp_path, str(real_sglang.PYTHON)).command(spec, 30_000)[0][3:]
    done = subprocess.run(
        [str(real_sglang.PYTHON), "-c", code, "--config", str(file), "--", *words],
        env={**os.environ, **real_sglang.ENV},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "[]"
