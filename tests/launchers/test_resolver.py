"""The process that asks SGLang's resolver: its answers, its silence, its end. A stand-in for sglang is asked here."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launchers.sglang.resolver import Resolver, ResolverFailed

#: As much of sglang/srt/server_args.py as is asked, with the habits of the real one: it prints, sets variables,
#: takes its time, and dies.
SERVER_ARGS = """
import argparse, logging, os, sys, time
print("imported", flush=True)
os.system("echo from a library")

class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model-path", "--model", required=False)
        parser.add_argument("--steps", type=int, choices=[1, 2, 3])
        parser.add_argument("--quiet", action="store_true")
        parser.add_argument("--old", action="store_true", help="(Deprecated: use --new=auto) It was so.")

    def resolve_once(self):
        print("resolving", flush=True)
        logging.warning("steps are adjusted")
        os.environ["NCCL_ALGO"] = "allreduce:tree"
        os.environ["LEFT_BEHIND"] = "1"
        os.environ.pop("GIVEN", None)
        if self.steps == 3:
            raise ValueError("three is refused")

    def check_server_args(self):
        if self.model_path == "die":
            os._exit(7)
        if self.model_path == "hang":
            time.sleep(600)

    def resolved_dict(self):
        return {"steps": self.steps, "seen": sorted(k for k in os.environ if k in ("GIVEN", "LEFT_BEHIND")),
                "api_key": "s3cret", "pid": os.getpid(), "offline": os.environ.get("HF_HUB_OFFLINE")}

def prepare_server_args(argv):
    parser = argparse.ArgumentParser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    arguments = ServerArgs()
    parser.parse_args(argv, namespace=arguments)
    logging.basicConfig(force=True)
    return arguments
"""


@pytest.fixture
def sglang(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH that holds the stand-in."""
    package = tmp_path / "sglang" / "srt"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "server_args.py").write_text(SERVER_ARGS)
    return tmp_path


@pytest.fixture
def resolver(sglang: Path) -> Iterator[Resolver]:
    env = {"PATH": os.defpath, "PYTHONPATH": str(sglang), "GIVEN": "1"}
    with Resolver(sys.executable, env, first_answer_s=60, answer_s=60) as made:
        yield made


def impatient(sglang: Path, answer_s: float) -> Resolver:
    return Resolver(sys.executable, {"PYTHONPATH": str(sglang)}, first_answer_s=60, answer_s=answer_s)


def eventually(holds: Callable[[], bool], limit_s: float = 30.0) -> bool:
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def test_values_come_back_and_what_sglang_prints_does_not_disturb_them(resolver: Resolver) -> None:
    first = resolver.resolve(["--steps", "2"], {})
    assert first.ok
    assert first.error is None
    assert first.values["steps"] == 2
    assert resolver.resolve(["--steps", "1"], {}).values["steps"] == 1


def test_one_process_answers_every_question(resolver: Resolver) -> None:
    pids = {resolver.resolve([], {}).values["pid"] for _ in range(3)}
    assert pids == {resolver.pid}


def test_no_question_leaves_a_variable_for_the_next(resolver: Resolver) -> None:
    for _ in range(2):
        told = resolver.resolve([], {"ASKED": "1"})
        assert told.values["seen"] == ["LEFT_BEHIND"]
        assert told.env == {"NCCL_ALGO": "allreduce:tree"}
    # What was asked with is not told as a change.
    assert resolver.resolve([], {"NCCL_ALGO": "allreduce:tree"}).env == {}


def test_a_secret_among_the_values_stays_there(resolver: Resolver) -> None:
    assert "api_key" not in resolver.resolve([], {}).values


def test_asking_never_downloads(resolver: Resolver) -> None:
    assert resolver.resolve([], {}).values["offline"] == "1"


def test_a_refusal_is_told_with_the_servers_last_words(resolver: Resolver) -> None:
    told = resolver.resolve(["--steps", "3"], {})
    assert (told.ok, told.exit_code, told.error) == (False, 1, "ValueError: three is refused")
    assert "resolve_once(" in told.log
    assert "steps are adjusted" in told.log
    assert told.values == {}


@pytest.mark.parametrize(
    ("argv", "text"),
    [(["--stepz", "1"], "unrecognized arguments: --stepz"), (["--steps", "x"], "invalid int value: 'x'")],
)
def test_words_that_the_parser_refuses_end_with_its_exit_code(resolver: Resolver, argv: list[str], text: str) -> None:
    told = resolver.resolve(argv, {})
    assert told.exit_code == 2
    assert told.error is not None
    assert text in told.error
    # And the process lives on.
    assert resolver.resolve([], {}).ok


def test_the_flags_of_the_installed_version(resolver: Resolver) -> None:
    known = {flag.names[0]: flag for flag in resolver.flags()}
    assert known["model-path"].names == ("model-path", "model")
    assert (known["steps"].choices, known["steps"].type, known["steps"].bare) == ((1, 2, 3), "int", False)
    assert known["quiet"].bare
    assert known["old"].instead == "--new=auto"
    assert known["steps"].instead is None


def test_a_process_that_died_between_questions_is_replaced(resolver: Resolver) -> None:
    for _ in range(3):
        first = resolver.resolve([], {}).values["pid"]
        os.kill(first, 9)
        # At once: it may not be known to be dead yet.
        assert resolver.resolve([], {}).values["pid"] != first


def test_a_question_that_kills_it_fails_and_the_next_is_answered(resolver: Resolver) -> None:
    with pytest.raises(ResolverFailed, match="ended"):
        resolver.resolve(["--model", "die"], {})
    assert resolver.resolve([], {}).ok


def test_a_question_that_it_hangs_on_fails_and_leaves_no_process(sglang: Path) -> None:
    with impatient(sglang, 1.0) as hasty:
        first = hasty.resolve([], {}).values["pid"]
        with pytest.raises(ResolverFailed, match="silent for 1 s"):
            hasty.resolve(["--model", "hang"], {})
        assert gone(first)
        assert hasty.pid is None
        assert hasty.resolve([], {}).ok


def test_an_interpreter_without_sglang_is_told_as_such(tmp_path: Path) -> None:
    with (
        Resolver(sys.executable, {"PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}, first_answer_s=60) as bare,
        pytest.raises(ResolverFailed, match="does that interpreter have sglang"),
    ):
        bare.flags()


def test_no_interpreter_at_all(tmp_path: Path) -> None:
    with Resolver(str(tmp_path / "python"), {}) as none, pytest.raises(ResolverFailed, match="No such file"):
        none.flags()


@pytest.mark.parametrize("busy", [False, True])
def test_it_ends_with_its_owner_even_while_it_is_busy(sglang: Path, tmp_path: Path, busy: bool) -> None:
    script = (
        "import sys; from launchers.sglang.resolver import Resolver\n"
        f"r = Resolver(sys.executable, {{'PYTHONPATH': {str(sglang)!r}}})\n"
        "r.resolve([], {}); print(r.pid, flush=True)\n"
        + ("r.resolve(['--model', 'hang'], {})" if busy else "sys.stdin.read()")
    )
    owner = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    pid = None
    try:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert not gone(pid)
        owner.kill()
        assert eventually(lambda: gone(pid))
    finally:
        owner.kill()
        owner.communicate()
        if pid is not None and not gone(pid):
            os.kill(pid, 9)


def test_a_process_that_holds_a_gpu_is_not_kept(tmp_path: Path) -> None:
    script = tmp_path / "answers.py"
    answer = "json.dumps({'values': {'pid': os.getpid()}, 'holds_gpu': True})"
    script.write_text(f"import sys, json, os\nfor _ in sys.stdin:\n    print({answer}, flush=True)\n")
    with Resolver(sys.executable, {}, script=script) as holder:
        pids = [holder.resolve([], {}).values["pid"] for _ in range(2)]
        assert pids[0] != pids[1]
        assert all(map(gone, pids))
