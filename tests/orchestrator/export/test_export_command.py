"""`python -m orchestrator.export` as it is typed."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml

from orchestrator.export.__main__ import main

KINDS = [("shell", "#!/bin/sh\n"), ("docker", "#!/bin/sh\n"), ("yaml", "# Written")]


@pytest.mark.parametrize(("kind", "begins"), KINDS)
def test_without_a_file_it_goes_to_the_terminal_and_nothing_else_does(
    study: Path, capsys: pytest.CaptureFixture[str], kind: str, begins: str
) -> None:
    assert main([str(study), "--to", kind, "--port", "31000"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(begins)
    assert "31000" in out
    assert err.startswith("SIMULATED figures. Trial 1. It is the best of the search")


def test_a_real_sglang_is_started_where_that_is_asked_for(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(study), "--real"]) == 0
    out = capsys.readouterr().out
    assert "-m sglang.launch_server" in out
    assert "launchers.simulated" not in out.split("set -eu")[1]


def test_files_are_written_and_written_again_but_never_over_others(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = study / "serve.yaml"
    for _ in range(2):
        assert main([str(study), "--to", "yaml", "--out", str(file)]) == 0
    assert yaml.safe_load(file.read_text())["model-path"] == "tiny"
    file.write_text("mine: true\n")
    assert main([str(study), "--to", "yaml", "--out", str(file)]) == 2
    assert file.read_text() == "mine: true\n"
    assert "was not written by this command" in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "name"), [("shell", "a b.sh"), ("docker", "it's.sh"), ("yaml", "a b.yaml")])
def test_a_relative_name_is_told_whole_and_quoted(
    study: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    monkeypatch.chdir(study)
    assert main([".", "--to", kind, "--out", name]) == 0
    told = capsys.readouterr().err.splitlines()[-1]
    assert shlex.split(told.removesuffix("command").removesuffix("with that"))[1] == f"{study / name}:"
    if kind == "yaml":
        assert f"--config {shlex.quote(str(study / name))}" in (study / name).read_text()


def test_sglang_reads_no_other_ending(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(study), "--to", "yaml", "--out", str(study / "serve.conf")]) == 2
    assert "ends in .yaml" in capsys.readouterr().err
    assert not (study / "serve.conf").exists()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--trial", "9"], 2, "there is no trial 9"),
        (["--trial", "3"], 2, "trial 3 cannot run: GPU memory does not suffice"),
        (["--out", "/proc/none/serve.sh"], 1, "cannot write"),
    ],
)
def test_errors_are_sentences(
    study: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, told: str
) -> None:
    assert main([str(study), *words]) == code
    assert told in capsys.readouterr().err


def test_bad_usage_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "absent")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    for words in (["x", "--port", "0"], ["x", "--to", "helm"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
