"""What a node reads back from a running server, and the answers by which output is compared."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launchers.base import LaunchSpec, ServerHandle
from launchers.simulated.launcher import SimulatedLauncher
from orchestrator.analysis.agreement import OUTPUT_TOKENS, PROMPTS
from orchestrator.readback import ask_prompts, environment_of, log_size, log_text, look_at

DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    """A simulated server that speculates, so that more than one token comes at a time."""
    flags = {
        "max-running-requests": 32,
        "speculative-algorithm": "EAGLE3",
        "speculative-draft-model-path": "example/drafter",
        "speculative-num-steps": 3,
        "speculative-eagle-topk": 1,
        "speculative-num-draft-tokens": 4,
    }
    launcher = SimulatedLauncher(tmp_path_factory.mktemp("logs"), "tiny", 1000.0)
    spec = LaunchSpec("tiny", flags, {"NCCL_PROTO": "LL"}, study_marker="looked-at", run_marker="now")
    with launcher.launch(spec, lambda progress: None, lambda: False) as handle:
        yield handle


def asked(server: ServerHandle, *, at_once: bool = True, stop: Callable[[], bool] = lambda: False) -> Any:
    return ask_prompts(server, at_once=at_once, timeout_s=DEADLINE_S, should_stop=stop)


def test_a_look_gives_what_is_in_force(server: ServerHandle) -> None:
    look = look_at(server)
    assert look.max_running_requests == 32
    assert look.resolved["speculative-num-draft-tokens"] == 4
    assert look.kv_tokens is not None
    assert server.api_key not in json.dumps(look.settings([]))


def test_answers_are_the_same_at_once_and_one_by_one(server: ServerHandle) -> None:
    together = asked(server)
    assert [len(answer) for answer in together] == [OUTPUT_TOKENS] * len(PROMPTS)
    assert len(set(together)) == len(PROMPTS)
    assert asked(server, at_once=False) == together


def test_the_variables_kept_are_those_that_may_move_a_measurement(server: ServerHandle) -> None:
    kept = environment_of(server, ["PATH"])
    assert kept["NCCL_PROTO"] == "LL"
    assert "PATH" in kept
    assert "HOME" not in kept


def test_the_log_is_read_from_where_a_level_began(server: ServerHandle) -> None:
    size = log_size(server)
    assert size > 0
    assert len(log_text(server).encode()) >= size
    assert len(log_text(server, since=size - 10)) < 10_000
    nowhere = SimpleNamespace(log=Path("/nonexistent/server.log"))
    assert (log_size(nowhere), log_text(nowhere)) == (0, "")  # type: ignore[arg-type]


class Answers:
    """A server that answers /generate as a test says, and holds back what it is told to hold."""

    def __init__(self, status: int, body: Any, *, held: bool = False) -> None:
        self.asked: list[dict[str, Any]] = []
        self.release = threading.Event()
        if not held:
            self.release.set()
        answers = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"]))
                answers.asked.append(json.loads(text) | {"key": self.headers["Authorization"]})
                answers.release.wait(DEADLINE_S)
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *words: Any) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.handle: Any = SimpleNamespace(url=f"http://127.0.0.1:{self.http.server_port}", api_key="the-key")


@pytest.fixture
def answering() -> Iterator[Callable[..., Answers]]:
    made: list[Answers] = []

    def make(*words: Any, **options: Any) -> Answers:
        made.append(Answers(*words, **options))
        threading.Thread(target=made[-1].http.serve_forever, args=(0.01,), daemon=True).start()
        return made[-1]

    yield make
    for answers in made:
        answers.release.set()
        answers.http.shutdown()
        answers.http.server_close()


def test_each_prompt_is_asked_greedily_with_the_servers_key(answering: Callable[..., Answers]) -> None:
    answers = answering(200, {"output_ids": [7, 8]})
    assert asked(answers.handle) == ((7, 8),) * len(PROMPTS)
    assert sorted(body["text"] for body in answers.asked) == sorted(PROMPTS)
    assert {body["key"] for body in answers.asked} == {"Bearer the-key"}
    assert all(body["sampling_params"]["temperature"] == 0 for body in answers.asked)
    assert all(body["sampling_params"]["max_new_tokens"] == OUTPUT_TOKENS for body in answers.asked)


@pytest.mark.parametrize(
    ("status", "body"), [(400, {"error": "no tokenizer"}), (200, {"output_ids": []}), (200, {"text": "x"}), (200, [])]
)
def test_no_answer_is_none(answering: Callable[..., Answers], status: int, body: Any) -> None:
    for at_once in (True, False):
        assert asked(answering(status, body).handle, at_once=at_once) is None


def test_a_stop_ends_the_asking_at_once(answering: Callable[..., Answers]) -> None:
    answers = answering(200, {"output_ids": [7]}, held=True)
    began = time.monotonic()
    assert asked(answers.handle, stop=lambda: len(answers.asked) > 0) is None
    assert time.monotonic() - began < DEADLINE_S
