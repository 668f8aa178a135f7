"""What is written for a trial: read back, and run."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from launchers.base import LaunchSpec
from launchers.sglang.launcher import SGLangLauncher
from launchers.simulated.arguments import parse_arguments
from orchestrator.analysis.rows import Row
from orchestrator.export.artefact import Artefact, artefact
from orchestrator.export.choice import NotExportable, choose
from orchestrator.export.config_file import config_yaml, environment_file, split_flags
from orchestrator.export.docker import docker_script
from orchestrator.export.shell import shell_script
from orchestrator.kept_study import KeptStudy

#: What a shell, YAML and a command line could each take for something else.
FLAGS = {
    "max-running-requests": 48,
    "mem-fraction-static": 0.85,
    "trust-remote-code": True,
    "disable-radix-cache": False,
    "speculative-draft-model-path": '/models/it\'s a "drafter" $HOME',
    "chat-template": "no",
    "json-model-override-args": {"rope": {"factor": 2.0}},
    "cuda-graph-bs-decode": [1, 2, 4],
}
ENV = {"NCCL_ALGO": "allreduce:tree", "NCCL_MIN_CTAS": 8, "ODD": "two words; $(touch never) `x` 'q'\nand a line"}
RECORD = '#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done >"$RECORDED"\nenv -0 >>"$RECORDED.env"\n'

Make = Callable[..., Artefact]


@pytest.fixture
def made(setting: Callable[..., Row], kept: Callable[..., KeptStudy]) -> Make:
    """Makes an artefact of a trial with these settings."""

    def make(*, real: bool = False, model: str = "org/model", port: int = 30_000, **options: object) -> Artefact:
        study = kept(setting(0, role="baseline", **options), model=model)
        return artefact(study, choose(study), real=real, port=port)

    return make


def run(
    script: str, folder: Path, name: str, *words: str, shell: str = "sh", **env: str
) -> tuple[list[str], dict[str, str]]:
    """Words and variables that the program `name` gets from the script."""
    program = folder / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(RECORD)
    program.chmod(0o755)
    file = folder / "serve.sh"
    file.write_text(script)
    recorded = folder / "recorded"
    variables = {"PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": "/home/x", "RECORDED": str(recorded), **env}
    subprocess.run([shell, str(file), *words], env=variables, cwd=folder, check=True, capture_output=True, timeout=60)
    told = recorded.read_bytes().decode().split("\0")[:-1]
    pairs = (word.partition("=") for word in Path(f"{recorded}.env").read_bytes().decode().split("\0") if word)
    return told, {name: value for name, _, value in pairs}


def test_the_shell_script_runs_the_very_command_and_environment(made: Make, tmp_path: Path) -> None:
    one = made(flags=FLAGS, env=ENV, simulated=False)
    words, env = run(shell_script(one), tmp_path, "python", SERVE_PYTHON="python")
    asked = LaunchSpec("org/model", FLAGS, {k: str(v) for k, v in ENV.items()})
    command, variables = SGLangLauncher(tmp_path, "python").command(asked, 30_000)
    assert words == command[1:]
    assert {name: env[name] for name in variables} == variables
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_no_value_is_taken_for_anything_but_itself(made: Make, tmp_path: Path, shell: str) -> None:
    """Of program, model, paths, flags and variables alike, by whichever shell."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    odd = '-it\'s "a" $HOME `x` \\ * ~\n#{end}'
    (tmp_path / odd).mkdir()
    program = tmp_path / odd / "bin" / "python"
    command = f"{shlex.quote(str(program))} -m sglang.launch_server --model-path x"
    flags = {"chat-template": f"/{odd}", "served": odd, "list": [odd, "", "b"], "json": {"a": odd}}
    one = made(model=f"/{odd}", flags=flags, env={"ODD": odd}, simulated=False, command=command)
    words, env = run(shell_script(one), tmp_path / odd, "python", odd, shell=shell)
    asked, _ = SGLangLauncher(tmp_path, str(program)).command(LaunchSpec(f"/{odd}", flags, {}), 30_000)
    assert words == [*asked[1:], odd]
    assert env["ODD"] == odd
    docker, _ = run(docker_script(one), tmp_path / odd, "docker", odd, shell=shell)
    image = docker.index("lmsysorg/sglang:v0.5.23")
    assert docker[image + 1 :] == ["python3", *(w if w != "127.0.0.1" else "0.0.0.0" for w in words)]
    assert {f"ODD={odd}", f"/{odd}:/{odd}:ro"} <= set(docker[:image])
    assert docker.count(f"/{odd}:/{odd}:ro") == 1


def test_variables_and_words_say_otherwise(made: Make, tmp_path: Path) -> None:
    given = {"SERVE_HOST": "0.0.0.0", "SERVE_PORT": "81", "SERVE_MODEL": "/m y", "SERVE_CONFIG": "key.yaml"}
    words, _ = run(
        shell_script(made(simulated=False)), tmp_path, "python", "--tp-size", "2", SERVE_PYTHON="python", **given
    )
    assert words == [
        *("-m", "sglang.launch_server", "--model-path", "/m y", "--host", "0.0.0.0", "--port", "81"),
        *("--enable-metrics", "--config", str(tmp_path / "key.yaml"), "--tp-size", "2"),
    ]


def test_the_interpreter_is_the_one_that_was_measured(made: Make) -> None:
    command = "NCCL_PROTO=LL 'ODD=a b' /opt/env/bin/sglang serve --model-path org/model --tp-size 8"
    one = made(simulated=False, command=command)
    assert (one.program, one.entry) == ("/opt/env/bin/sglang", ("serve",))
    assert 'exec "$SERVE_SGLANG" serve' in shell_script(one)
    with pytest.raises(NotExportable, match="not one of ours"):
        made(simulated=False, command="echo hello")


def test_without_the_interpreter_the_way_out_is_told(made: Make, tmp_path: Path) -> None:
    file = tmp_path / "serve.sh"
    file.write_text(
        shell_script(made(simulated=False, command="/no/such/python -m sglang.launch_server --model-path x"))
    )
    done = subprocess.run(["sh", str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 127
    assert "name one in SERVE_PYTHON" in done.stderr


def test_a_study_of_relative_paths_starts_where_they_lead_from(
    made: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "the project"
    (home / "models" / "mine").mkdir(parents=True)
    monkeypatch.chdir(home)
    one = made(model="models/mine", simulated=False, flags={"speculative-draft-model-path": "models/mine"})
    assert one.places.folder == home
    script = shell_script(one)
    _, env = run(script, tmp_path, "python", SERVE_PYTHON="python", SERVE_CONFIG="key.yaml")
    assert env["PWD"] == str(home)
    words, _ = run(script, tmp_path, "python", SERVE_PYTHON="python", SERVE_CONFIG="key.yaml")
    assert words[-1] == str(tmp_path / "key.yaml")
    docker, _ = run(docker_script(one), tmp_path, "docker")
    mine = str(home / "models" / "mine")
    assert docker.count(f"{mine}:{mine}:ro") == 1
    assert docker[docker.index("--speculative-draft-model-path") + 1] == mine
    assert made(model="org/model").places.folder is None


def test_what_a_person_names_is_meant_from_where_the_script_is_started(made: Make, tmp_path: Path) -> None:
    (tmp_path / "my model").mkdir()
    mine = str(tmp_path / "my model")
    given = {"SERVE_MODEL": "my model", "SERVE_CONFIG": "key.yaml"}
    words, _ = run(shell_script(made(simulated=False)), tmp_path, "python", SERVE_PYTHON="python", **given)
    assert words[words.index("--model-path") + 1] == mine
    words, _ = run(docker_script(made(simulated=False)), tmp_path, "docker", **given)
    assert words[words.index("--model-path") + 1] == mine
    assert f"{mine}:{mine}:ro" in words
    words, _ = run(docker_script(made(simulated=False)), tmp_path, "docker", SERVE_MODEL="another/one")
    assert words[words.index("--model-path") + 1] == "another/one"
    assert not any("another" in word for word in words if ":ro" in word)


def test_without_the_folder_the_script_tells_what_to_set(
    made: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    one = made(model="./nowhere", simulated=False, flags={"chat-template": "a b.jinja"})
    for script, name in ((shell_script(one), "python"), (docker_script(one), "docker")):
        assert "SERVE_FOLDER=" not in script.split("set -eu")[1].replace("SERVE_FOLDER=$PWD/", "")
        file = tmp_path / "serve.sh"
        file.write_text(script)
        env = {"PATH": os.environ["PATH"], "HOME": "/home/x"}
        done = subprocess.run(["sh", str(file)], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "set SERVE_FOLDER to the folder where the sweep was started" in done.stderr
        assert "these lead from: ./nowhere, a b.jinja" in done.stderr
        words, env = run(script, tmp_path, name, SERVE_PYTHON="python", SERVE_FOLDER="..")
        assert words[words.index("--model-path") + 1] == "./nowhere"
        above = f"{tmp_path}/.."
        if name == "docker":
            assert f"{above}:{above}:ro" in words
            assert words[words.index("--workdir") + 1] == above
        else:
            assert Path(env["PWD"]).resolve() == tmp_path.parent
    assert "in the folder where the sweep was started" in config_yaml(one)


def test_docker_mounts_what_is_read_for_reading_and_what_is_written_for_writing(made: Make, tmp_path: Path) -> None:
    flags = {"chat-template": "/t/x.jinja", "crash-dump-folder": "/dumps", "device": "cuda"}
    words, _ = run(docker_script(made(simulated=False, flags=flags)), tmp_path, "docker")
    assert {"/t/x.jinja:/t/x.jinja:ro", "/dumps:/dumps"} <= set(words)
    with pytest.raises(NotExportable, match="no path with a colon: /a:b"):
        docker_script(made(simulated=False, flags={"chat-template": "/a:b"}))


def test_a_profile_of_ones_own_is_started_where_it_is_found(
    setting: Callable[..., Row], kept: Callable[..., KeptStudy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").touch()
    launcher = "{kind: simulated, profile: mine.yaml, startup_speedup: 1000}"
    study = kept(setting(0, role="baseline"), launcher=launcher)
    assert artefact(study, choose(study)).places.folder == tmp_path
    assert artefact(study, choose(study), real=True).places.folder is None


@pytest.mark.parametrize("real", [False, True])
def test_simulated_is_said_loudly(made: Make, tmp_path: Path, real: bool) -> None:
    one = made(real=real, sglang="simulated 0.5.23")
    assert one.provenance[1].startswith("SIMULATED")
    file = tmp_path / "serve.sh"
    file.write_text(shell_script(one))
    done = subprocess.run(
        ["sh", str(file)],
        env={"SERVE_PYTHON": "true", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ("this starts the simulated server" if not real else "on a simulated server only") in done.stderr
    assert ("launchers.simulated" in shell_script(one).split("set -eu")[1]) is not real


def test_the_docker_script_runs_the_same_words_in_the_image_of_the_version(made: Make, tmp_path: Path) -> None:
    one = made(flags=FLAGS, env=ENV, simulated=False, gpus=8)
    words, _ = run(docker_script(one), tmp_path, "docker", "--extra", "1")
    image = words.index("lmsysorg/sglang:v0.5.23")
    shell, _ = run(shell_script(one), tmp_path, "python", "--extra", "1", SERVE_PYTHON="python")
    inside = [word if word != "127.0.0.1" else "0.0.0.0" for word in shell]
    assert words[image + 1 :] == ["python3", *inside]
    options = words[:image]
    assert options[options.index("--gpus") + 1] == "8"
    assert options[options.index("--publish") + 1] == "127.0.0.1:30000:30000"
    assert "/home/x/.cache/huggingface:/root/.cache/huggingface" in options
    given = [options[at + 1] for at, word in enumerate(options) if word == "--env"]
    assert given == ["HF_TOKEN", *(f"{key}={value}" for key, value in ENV.items())]


def test_a_version_that_is_no_release_names_no_image(made: Make, tmp_path: Path) -> None:
    script = docker_script(made(simulated=False, sglang="0.5.24.dev3+gabc"))
    assert "lmsysorg/sglang:v" not in script
    file = tmp_path / "serve.sh"
    file.write_text(script)
    done = subprocess.run(["sh", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "name an image that has it" in done.stderr
    with pytest.raises(NotExportable, match="take --to shell"):
        docker_script(made(simulated=False, gpus=0))


def test_the_yaml_reads_back_as_the_command(made: Make, tmp_path: Path) -> None:
    flags = {**FLAGS, "enable-flashinfer-allreduce-fusion": True}
    one = made(flags=flags, env={"NCCL_ALGO": "allreduce:tree"}, simulated=False)
    file = tmp_path / "serve.yaml"
    file.write_text(config_yaml(one, file))
    _, beside = split_flags(one)
    argv = ["--config", str(file), *(f"--{name}" for name in beside)]
    read = parse_arguments(argv)
    command, _ = SGLangLauncher(tmp_path, "python").command(LaunchSpec("org/model", flags, {}), 30_000)
    asked = parse_arguments(command[3:])
    assert read.flags == asked.flags
    assert read.flags["chat-template"] == "no"
    assert json.loads(read.flags["json-model-override-args"]) == FLAGS["json-model-override-args"]


def test_the_command_of_the_yaml_runs_from_anywhere(
    made: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "it's $HOME"
    (home / "models").mkdir(parents=True)
    monkeypatch.chdir(home)
    odd = "two words; $(touch never) `x` 'q' \"d\" \\"
    command = f"{shlex.quote(str(tmp_path / 'bin' / 'python'))} -m sglang.launch_server --model-path models"
    one = made(model="models", env={"ODD": odd}, simulated=False, command=command)
    told = next(line for line in config_yaml(one, Path("out of here.yaml")).splitlines() if " --config " in line)
    words, env = run(told.lstrip("# "), tmp_path, "python")
    assert words == ["-m", "sglang.launch_server", "--config", str(home / "out of here.yaml")]
    assert env["ODD"] == odd
    assert env["PWD"] == str(home)
    assert not list(tmp_path.rglob("never"))


def test_the_environment_file_has_a_variable_a_line(made: Make) -> None:
    text = environment_file(made(env={"NCCL_PROTO": "LL", "NCCL_MIN_CTAS": 8}))
    assert [line for line in text.splitlines() if not line.startswith("#")] == ["NCCL_PROTO=LL", "NCCL_MIN_CTAS=8"]
    assert "systemd" not in text
    assert "systemd reads the value of ODD otherwise" in environment_file(made(env={"ODD": "a 'b'", "EVEN": "a b"}))


@pytest.mark.parametrize("value", ["a\nb", "a\n", "a\u2028b"])
def test_a_line_break_in_a_variable_is_refused_where_it_would_break_the_line(made: Make, value: str) -> None:
    one = made(env={"FINE": "", "ODD": value}, simulated=False)
    for write in (environment_file, config_yaml):
        with pytest.raises(NotExportable, match=r"the value of the variable ODD has a line break.*take --to shell"):
            write(one)
    assert shell_script(one)


def test_the_provenance_stays_a_comment(made: Make) -> None:
    command = shlex.join(
        ["python", "-m", "sglang.launch_server", "--model-path", "x\ntouch /tmp/never", "--a", "\r\x0bb"]
    )
    one = made(simulated=False, command=command)
    before = shell_script(one).split("set -eu")[0]
    assert all(line.startswith("#") for line in before.splitlines() if line)
    assert yaml.safe_load(config_yaml(one))["model-path"] == "org/model"


def test_the_provenance_tells_where_it_comes_from(made: Make) -> None:
    text = "\n".join(made(simulated=False, half_width=2.5, accept_length=1.65).provenance)
    for part in (
        "trial 0 (the baseline) of the study small, id id-1",
        "sglang 0.5.23",
        "GPUs: 1 x a card",
        "C=8: 100.0 ± 2.5 tok/s, TTFT p99 100.0 ms, TPOT mean 3.0 ms, accept length 1.65",
        "2026-03-01",
        "/opt/env/bin/python -m sglang.launch_server",
    ):
        assert part in text
    assert "SIMULATED" not in text


def test_no_secret_is_written(made: Make) -> None:
    with pytest.raises(NotExportable, match="HF_TOKEN would put a secret"):
        made(env={"HF_TOKEN": "hf_abcdef"})
    with pytest.raises(NotExportable, match="api-key"):
        made(flags={"api-key": "abcdef"})
