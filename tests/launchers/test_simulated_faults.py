"""Faults on demand: each as a process shows it."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import requests
from pydantic import ValidationError
from simulated_twin import READY, Twin, events, twin

from launchers.simulated.faults import Crash, active_fault, parse_fault

BODY = {"prompt": [1, 2, 3], "max_tokens": 12, "ignore_eos": True, "stream": True}


def test_a_fault_hits_only_the_configuration_it_names() -> None:
    fault = Crash(after_requests=1, when={"tp-size": 2, "NCCL_PROTO": "LL"})
    assert fault.applies({"tp-size": 2}, {"NCCL_PROTO": "LL"})
    assert not fault.applies({"tp-size": 4}, {"NCCL_PROTO": "LL"})
    assert not fault.applies({"tp-size": 2}, {})
    absent = Crash(after_requests=1, when={"speculative-algorithm": None})
    assert absent.applies({}, {})
    assert not absent.applies({"speculative-algorithm": "EAGLE3"}, {})


def test_the_environment_comes_before_the_profile() -> None:
    profile = Crash(after_requests=1)
    text = '{"kind": "crash", "after_requests": 7}'
    assert active_fault(profile, {}, {"SIMULATED_FAULT": text}) == Crash(after_requests=7)
    assert active_fault(profile, {}, {}) is profile
    assert active_fault(None, {}, {}) is None


@pytest.mark.parametrize(
    "text", ["{", '{"kind": "earthquake"}', '{"kind": "crash"}', '{"kind": "crash", "after_requests": 0}']
)
def test_what_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="SIMULATED_FAULT is not a fault"):
        parse_fault(text)
    with pytest.raises((ValidationError, ValueError)):
        parse_fault(text)


def test_a_bad_fault_ends_the_start_with_exit_2(tmp_path: Path) -> None:
    with twin(tmp_path, fault={"kind": "earthquake"}, ready=False) as server:
        assert server.wait_end() == 2
        assert "SIMULATED_FAULT is not a fault" in server.log


def test_refusal(tmp_path: Path) -> None:
    fault = {"kind": "refusal", "text": "ValueError: not on a Monday", "exit_code": 1}
    with twin(tmp_path, fault=fault, ready=False) as server:
        assert server.wait_end() == 1
        assert server.log.rstrip().endswith("ValueError: not on a Monday")


def test_a_fault_of_other_configurations_does_nothing(tmp_path: Path) -> None:
    fault = {"kind": "refusal", "text": "x", "when": {"tp-size": 2}}
    with twin(tmp_path, fault=fault) as server:
        assert server.generate().status_code == 200


@pytest.mark.parametrize(
    ("phase", "cause", "before"),
    [
        ("load_weight", "CUDA out of memory", "Load weight begin"),
        ("kv_pool", "Loaded weights leave no GPU memory for the KV cache", "Load weight end"),
        ("graph_capture", "Capture cuda graph failed: CUDA out of memory", "Memory pool end"),
    ],
)
def test_out_of_memory_while_starting(tmp_path: Path, phase: str, cause: str, before: str) -> None:
    with twin(tmp_path, fault={"kind": "out_of_memory", "phase": phase}, ready=False) as server:
        assert server.wait_end() == -signal.SIGKILL
        log = server.log
    assert log.index(before) < log.index("Scheduler hit an exception") < log.index(cause)
    assert "Received sigquit from a child process" in log
    assert "Uvicorn running" not in log


def test_a_slow_load_is_silent_and_then_goes_on(tmp_path: Path) -> None:
    fault = {"kind": "slow_load", "seconds": 600}
    with twin(tmp_path, fault=fault) as server:
        info = server.get("/server_info").json()
        assert info["startup_time"]["tokenizer_e2e"] > 600


@pytest.mark.parametrize("phase", ["load_weight", "warmup"])
def test_a_hang_while_starting_never_gets_ready(tmp_path: Path, phase: str) -> None:
    with twin(tmp_path, fault={"kind": "hang", "phase": phase}, ready=False) as server:
        server.wait_line("Load weight begin" if phase == "load_weight" else "Uvicorn running on")
        if phase == "warmup":
            assert server.get("/health").status_code == 503
        server.signal(signal.SIGTERM)
        # loading dies of the signal; with the port open it is drained
        assert server.wait_end() == (-signal.SIGTERM if phase == "load_weight" else 0)
        assert READY not in server.log


def test_a_hang_under_load_is_ended_by_the_watchdog(tmp_path: Path) -> None:
    fault = {"kind": "hang", "phase": "running", "after_requests": 2}
    with twin(tmp_path, "--watchdog-timeout", "0.5", fault=fault) as server:
        assert server.generate().status_code == 200
        with pytest.raises(requests.ConnectionError):
            server.generate()
        assert server.wait_end() == -signal.SIGKILL
        assert "Scheduler watchdog timeout (self.watchdog_timeout=0.5, self.soft=False)" in server.log


@pytest.mark.parametrize("exit_code", [-9, 0])
def test_a_crash_after_some_requests_answers_the_last_one_with_nothing(tmp_path: Path, exit_code: int) -> None:
    fault = {"kind": "crash", "after_requests": 3, "exit_code": exit_code}
    with twin(tmp_path, fault=fault) as server:
        assert [server.generate().status_code for _ in range(2)] == [200, 200]
        with pytest.raises(requests.ConnectionError):
            server.generate()
        assert server.wait_end() == exit_code
        assert "Scheduler hit an exception: Traceback" in server.log


def test_out_of_memory_under_load(tmp_path: Path) -> None:
    fault = {"kind": "out_of_memory", "phase": "running", "after_requests": 1}
    with twin(tmp_path, fault=fault) as server:
        with pytest.raises(requests.ConnectionError):
            server.generate()
        assert server.wait_end() == -signal.SIGKILL
        assert "RuntimeError: Decode out of memory. Try to lower your batch size." in server.log


def test_sigterm_ignored(tmp_path: Path) -> None:
    with twin(tmp_path, fault={"kind": "ignore_sigterm"}) as server:
        server.signal(signal.SIGTERM)
        assert server.generate().status_code == 200
        assert server.get("/health").status_code == 200
        assert server.process.poll() is None


def stream(server: Twin, path: str = "/v1/completions") -> requests.Response:
    return server.post(path, BODY)


def parsed(response: requests.Response) -> list[Any]:
    return [json.loads(e) for e in events(response) if e != "[DONE]"]


@pytest.mark.parametrize(
    ("shape", "good_events", "error", "done"),
    [
        ("gateway_timeout", 5, {"message": "TimeoutError", "type": "GatewayTimeout", "code": 504}, True),
        ("error_object", 5, {"code": 500}, True),
        ("bad_request", 0, {"object": "error", "type": "BadRequestError", "code": 400}, True),
        ("clean_end", 5, None, False),
        ("empty", 0, None, False),
        ("no_done", 12, None, False),
        ("error_string", 5, "failed", True),
    ],
)
def test_an_error_inside_a_stream_with_status_200(
    tmp_path: Path, shape: str, good_events: int, error: Any, done: bool
) -> None:
    fault = {"kind": "stream_error", "shape": shape, "after_tokens": 6, "every": 2}
    with twin(tmp_path, fault=fault) as server:
        whole, broken = stream(server), stream(server)
        assert server.generate(12).json()["meta_info"]["completion_tokens"] == 12
    assert len(parsed(whole)) == 12
    assert whole.text.endswith("data: [DONE]\n\n")
    assert broken.status_code == 200
    answers = parsed(broken)
    good = [a for a in answers if "error" not in a]
    assert len(good) == good_events
    errors = [a["error"] for a in answers if "error" in a]
    if error is None:
        assert errors == []
    elif isinstance(error, str):
        assert error in errors[0]
    else:
        assert error.items() <= errors[0].items()
    assert broken.text.endswith("data: [DONE]\n\n") is done
    finished = [a["choices"][0]["finish_reason"] for a in good]
    assert ("length" in finished) is (shape == "no_done")
    if shape == "empty":
        assert broken.content == b""


def test_a_connection_cut_inside_the_body(tmp_path: Path) -> None:
    fault = {"kind": "stream_error", "shape": "cut", "after_tokens": 6}
    with twin(tmp_path, fault=fault) as server:
        with pytest.raises(requests.exceptions.ChunkedEncodingError):
            stream(server)
        assert server.generate().status_code == 200


def test_garbled_output_is_another_text_of_the_same_length(tmp_path: Path) -> None:
    body = {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 12, "ignore_eos": True, "temperature": 0}}
    answers = []
    for fault in (None, None, {"kind": "garbled"}):
        with twin(tmp_path, fault=fault) as server:
            answers.append(requests.post(f"{server.url}/generate", json=body, timeout=10).json()["output_ids"])
    assert answers[0] == answers[1]
    assert len(answers[2]) == 12
    assert answers[2] != answers[0]
