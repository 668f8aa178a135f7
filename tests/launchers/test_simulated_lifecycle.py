"""Starts, refusals, signals and busy ports of the twin as a parent process sees them."""

from __future__ import annotations

import re
import signal
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
from simulated_twin import READY, free_port, twin, wait_until

SPECULATIVE = "--speculative-algorithm EAGLE3 --speculative-draft-model-path example/tiny-eagle3"


def status(url: str) -> int | None:
    """HTTP status, None while nothing listens."""
    try:
        return requests.get(url, timeout=5).status_code
    except requests.ConnectionError:
        return None


def test_the_port_opens_after_the_load_and_health_is_503_until_the_warm_up_ends(tmp_path: Path) -> None:
    seen: list[int | None] = []
    # 7.5 simulated seconds of load in 0.75 s, and a warm-up long enough to be seen
    with twin(tmp_path, speedup=10, profile=str(_with_warm_up(tmp_path, 5.0)), ready=False) as server:
        wait_until(lambda: "Load weight begin" in server.log, "loading")
        seen.append(status(server.url + "/health"))
        wait_until(lambda: "Uvicorn running on" in server.log, "the port")
        seen.append(status(server.url + "/health"))
        seen.append(status(server.url + "/ready"))
        server.wait_line(READY)
        seen.append(status(server.url + "/health"))
    assert seen == [None, 503, 503, 200]


def _with_warm_up(folder: Path, seconds: float) -> Path:
    import yaml

    from launchers.simulated.profile import load_profile

    profile = load_profile("tiny").model_dump(mode="json", exclude={"fault", "targets"})
    profile["startup"]["warmup_s"] = seconds
    path = folder / "slow-warm-up.yaml"
    path.write_text(yaml.safe_dump(profile))
    return path


def test_progress_lines_come_in_sglangs_order(tmp_path: Path) -> None:
    with twin(tmp_path, *SPECULATIVE.split()) as server:
        lines = server.log.replace("\r", "\n").splitlines()
    expected = [
        "SIMULATED SERVER",
        "Max running requests is reset to 48 for speculative decoding.",
        "server_args={",
        "Init parallel begin.",
        "Init parallel ends. elapsed=",
        "Load weight begin. avail mem=",
        "Multi-thread loading shards:   0% Completed | 0/4 [00:00<?, ?it/s]",
        "Multi-thread loading shards: 100% Completed | 4/4 [",
        "Load weight end. elapsed=4.00 s",
        "Load weight begin. avail mem=",
        "Load weight end. elapsed=1.00 s",
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 16384",
        "Memory pool end.",
        "Capture target verify CUDA graph begin.",
        "Capture target verify CUDA graph end.",
        "Capture draft decode CUDA graph begin.",
        "Capture draft extend CUDA graph begin.",
        "max_total_num_tokens=16384, chunked_prefill_size=2048, max_prefill_tokens=4096, max_running_requests=48",
        "Engine startup timings (s): load_weight=5.00",
        "INFO:     Started server process [",
        "INFO:     Application startup complete.",
        "INFO:     Uvicorn running on http://127.0.0.1:",
        '"GET /model_info HTTP/1.1" 200 OK',
        "Prefill batch, #new-seq: 1, #new-token:",
        '"POST /generate HTTP/1.1" 200 OK',
        '"POST /freeze_gc HTTP/1.1" 200 OK',
        READY,
    ]
    at = 0
    for text in expected:
        found = [i for i in range(at, len(lines)) if text in lines[i]]
        assert found, f"no line with {text!r} after line {at}:\n" + "\n".join(lines[at:])
        at = found[0] + 1
    assert all(re.match(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d( TP\d)?\] ", line) for line in lines if line[:1] == "[")


@pytest.mark.parametrize(
    ("flags", "exit_code", "last_line"),
    [
        ("--no-such-flag 3", 2, "sglang serve: error: unrecognized arguments: --no-such-flag 3"),
        ("--speculative-algorithm FOO", 1, "ValueError: Unknown speculative algorithm name: FOO"),
        (
            f"{SPECULATIVE} --speculative-num-steps 3",
            1,
            "TypeError: '>' not supported between instances of 'NoneType' and 'int'",
        ),
        (f"{SPECULATIVE} --speculative-eagle-topk 1", 1, "AssertionError"),
        (
            "--chunked-prefill-size 100 --page-size 16",
            1,
            "AssertionError: chunked_prefill_size must be divisible by page_size",
        ),
    ],
)
def test_refusals_at_parse_have_sglangs_text_and_exit_code(
    tmp_path: Path, flags: str, exit_code: int, last_line: str
) -> None:
    with twin(tmp_path, *flags.split(), ready=False) as server:
        assert server.wait_end() == exit_code
        assert server.log.rstrip().splitlines()[-1] == last_line
        assert "Init parallel" not in server.log


def test_a_tree_that_is_too_large_dies_only_at_its_first_draft(tmp_path: Path) -> None:
    flags = "--speculative-num-steps 1 --speculative-eagle-topk 2 --speculative-num-draft-tokens 30"
    with twin(tmp_path, *SPECULATIVE.split(), *flags.split(), ready=False) as server:
        assert server.wait_end() == -signal.SIGKILL
        log = server.log
    assert log.index("Uvicorn running on") < log.index("Prefill batch") < log.index("Scheduler hit an exception")
    assert "RuntimeError: selected index k out of range" in log
    assert READY not in log
    assert "SIGQUIT received. signum=None, frame=None." in log


def test_a_drafter_left_out_is_no_reason_to_refuse(tmp_path: Path) -> None:
    with twin(tmp_path, "--speculative-algorithm", "EAGLE3") as server:
        assert server.generate(5).status_code == 200


def test_an_unknown_profile_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with twin(tmp_path, profile="tinny", ready=False) as server:
        assert server.wait_end() == 2
        assert "Did you mean 'tiny'?" in server.log


def test_sigterm_when_ready_drains_what_runs_and_exits_0(tmp_path: Path) -> None:
    with twin(tmp_path) as server:
        answers: list[requests.Response] = []
        thread = threading.Thread(target=lambda: answers.append(server.generate(600)))
        thread.start()
        wait_until(lambda: server.log.count("Prefill batch") == 2, "the request runs")
        server.signal(signal.SIGTERM)
        server.wait_line("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        assert server.get("/health").status_code == 503
        assert server.wait_end() == 0
        thread.join(30)
        assert answers[0].json()["meta_info"]["completion_tokens"] == 600
        log = server.log
    tail = [
        "Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[].",
        "INFO:     Shutting down",
        "INFO:     Waiting for application shutdown.",
        "INFO:     Application shutdown complete.",
        "INFO:     Finished server process [",
        "kill_process_tree called: parent_pid=",
    ]
    positions = [log.index(text) for text in tail]
    assert positions == sorted(positions)


def test_sigterm_while_loading_is_deadly(tmp_path: Path) -> None:
    with twin(tmp_path, speedup=2, ready=False) as server:
        server.wait_line("Load weight begin")
        server.signal(signal.SIGTERM)
        assert server.wait_end() == -signal.SIGTERM


@pytest.mark.parametrize("moment", ["Load weight begin", READY])
def test_sigint_ends_by_sigint(tmp_path: Path, moment: str) -> None:
    with twin(tmp_path, speedup=1000 if moment == READY else 2, ready=False) as server:
        server.wait_line(moment)
        server.signal(signal.SIGINT)
        assert server.wait_end() == -signal.SIGINT


def test_a_port_held_by_another_server_is_believed_to_be_ones_own(tmp_path: Path) -> None:
    with twin(tmp_path) as first:
        (tmp_path / "second").mkdir()
        with twin(tmp_path / "second", port=first.port, ready=False) as second:
            assert second.wait_end() == 3
            log = second.log
        assert first.process.poll() is None
    taken = f"[Errno 98] error while attempting to bind on address ('127.0.0.1', {first.port}): address already in use"
    assert taken in log
    assert log.index(taken) < log.index(READY)


def test_a_port_held_by_another_program_makes_it_hang_deaf_to_sigterm(tmp_path: Path) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *_: Any) -> None:
            pass

    other = HTTPServer(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        # 120 simulated seconds of patience in 1.2 s
        with twin(tmp_path, speedup=100, port=other.server_port, ready=False) as server:
            server.wait_line("address already in use")
            server.signal(signal.SIGTERM)
            assert server.wait_end() == -signal.SIGKILL
            log = server.log
    finally:
        other.shutdown()
        thread.join()
        other.server_close()
    assert "Initialization failed. warmup error: Traceback" in log
    assert READY not in log


def test_a_port_held_by_something_silent_ends_too(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", free_port()))
        port = int(holder.getsockname()[1])
        # bound, not listening: connections are refused, yet the port cannot be had
        with twin(tmp_path, port=port, ready=False) as server:
            assert server.wait_end() == -signal.SIGKILL
            assert "Initialization failed. warmup error" in server.log
