"""How many streamed events the simulated server writes per second of one core.

    python tests/benchmarks/simulator_events.py [--users 64] [--tokens 400] [--rounds 3]

Steps take no simulated time, so that the server's own work is all there is. Its CPU time is read from the
system: on a shared machine the wall clock says less. The reader is as plain as can be and runs beside it.
"""

from __future__ import annotations

import argparse
import json
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import yaml

from launchers.simulated.profile import load_profile

TARGET_EVENTS_PER_CPU_S = 40_000


def instant_profile(folder: Path, tokens: int) -> Path:
    """The tiny profile with steps that take no time and a KV pool that holds every user."""
    profile = load_profile("tiny").model_dump(mode="json", exclude={"fault", "targets"})
    profile["engine"] |= {
        "kv_tokens": 4_000_000,
        "default_max_running_requests": 512,
        "context_length": tokens + 4096,
    }
    profile["compute"] |= {"step_s": 0, "token_s": 0, "prefill_token_s": 0, "kv_read_s_per_token": 0}
    profile["communication"] |= {"allreduces_per_step": 0}
    path = folder / "instant.yaml"
    path.write_text(yaml.safe_dump(profile))
    return path


@contextmanager
def server(profile: Path, log: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A twin that is ready, and its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "launchers.simulated", "--profile", str(profile)]
    command += ["--startup-speedup", "1000", "--model-path", "m", "--port", str(port)]
    command += ["--decode-log-interval", "100000"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stderr=output)
        try:
            deadline_s = time.monotonic() + 30
            while b"ready to roll" not in log.read_bytes():
                if process.poll() is not None or time.monotonic() > deadline_s:
                    raise RuntimeError(f"the simulated server did not start:\n{log.read_text()[-2000:]}")
                time.sleep(0.05)
            yield process, port
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


def body(path: str, tokens: int, user: int) -> bytes:
    """A streamed request of `tokens` output tokens."""
    prompt = [user + 1, *range(1, 33)]
    if path == "/generate":
        params = {"max_new_tokens": tokens, "ignore_eos": True, "temperature": 0}
        return json.dumps({"input_ids": prompt, "stream": True, "sampling_params": params}).encode()
    return json.dumps({"prompt": prompt, "stream": True, "max_tokens": tokens, "ignore_eos": True}).encode()


def read_streams(port: int, path: str, users: int, tokens: int) -> tuple[int, float]:
    """Send one request a user at once; events received in all and seconds from first send to last byte."""
    selector = selectors.DefaultSelector()
    connections = []
    for _ in range(users):
        connection = socket.create_connection(("127.0.0.1", port))
        selector.register(connection, selectors.EVENT_READ, bytearray())
        connections.append(connection)
    begun_s = time.perf_counter()
    for user, connection in enumerate(connections):
        data = body(path, tokens, user)
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
        connection.sendall(head.encode() + b"\r\n\r\n" + data)
    events, left = 0, users
    while left:
        for key, _ in selector.select():
            received = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
            events += received.count(b"data: {")
            tail: bytearray = key.data
            tail[:] = (tail + received)[-16:]
            if not received or tail.endswith(b"0\r\n\r\n"):
                selector.unregister(key.fileobj)
                left -= 1
    seconds = time.perf_counter() - begun_s
    for connection in connections:
        connection.close()
    return events, seconds


def main() -> int:
    """Print one row for each API and round; 1 if the best round misses the target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--users", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    expected = options.users * options.tokens
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        profile = instant_profile(Path(folder), options.tokens)
        with server(profile, Path(folder) / "server.log") as (process, port):
            watched = psutil.Process(process.pid)
            print(f"{'endpoint':18}{'events':>9}{'wall s':>9}{'CPU s':>8}{'events/wall s':>15}{'events/CPU s':>14}")
            for path in ("/v1/completions", "/generate"):
                for _ in range(options.rounds):
                    before = watched.cpu_times()
                    events, wall_s = read_streams(port, path, options.users, options.tokens)
                    after = watched.cpu_times()
                    cpu_s = after.user + after.system - before.user - before.system
                    if events != expected:
                        raise RuntimeError(f"{path}: {events} events instead of {expected}")
                    best[path] = max(best.get(path, 0.0), events / cpu_s)
                    print(
                        f"{path:18}{events:9}{wall_s:9.2f}{cpu_s:8.2f}{events / wall_s:15,.0f}{events / cpu_s:14,.0f}"
                    )
    missed = [path for path, rate in best.items() if rate < TARGET_EVENTS_PER_CPU_S]
    print(f"target: {TARGET_EVENTS_PER_CPU_S:,} events per CPU second; " + ("missed" if missed else "met"))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
