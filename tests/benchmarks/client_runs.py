"""How each client of the benchmark is run, and what it costs. See `client.py`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import md5
from pathlib import Path
from typing import Any

import psutil
from event_server import PROMPT_TOKENS

from orchestrator.benchmark import loop
from orchestrator.benchmark.load import run_level
from orchestrator.benchmark.metrics import distribution, level_metrics
from orchestrator.benchmark.workload import requests
from orchestrator.datasets import RandomIds
from orchestrator.offered_load import Load
from orchestrator.workload import Level, Workload

ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 900


@dataclass(frozen=True)
class Told:
    """Figures of one run, as a client reports them or as the server's stamps make them."""

    ttft_mean_ms: float
    ttft_p99_ms: float
    tpot_mean_ms: float
    tokens_per_s: float


@dataclass(frozen=True)
class Cost:
    """What a run took."""

    wall_s: float
    cpu_s: float
    peak_mib: float


@dataclass(frozen=True)
class Job:
    """One run of a client."""

    url: str
    users: int
    requests: int
    events: int
    input_tokens: int = PROMPT_TOKENS
    model: str = "m"

    def workload(self) -> Workload:
        """The same for our own load generator."""
        return Workload(
            dataset=RandomIds(input_tokens=self.input_tokens, output_tokens=self.events, vocab_size=1000),
            level=Level(
                requests_per_user=self.requests // self.users,
                min_s=0,
                max_s=_TIMEOUT_S,
                half_width=None,
                warmup_requests_per_user=0,
                warmup_tolerance=None,
            ),
        )


def figures(answers: Any) -> Told:
    """The figures that follow from (asked, arrivals of events) of each request, one token an event."""
    found = [(asked_s, events_s) for asked_s, events_s in answers]
    first = distribution([1e3 * (events_s[0] - asked_s) for asked_s, events_s in found])
    assert first is not None
    gaps = [1e3 * (e[-1] - e[0]) / (len(e) - 1) for _, e in found if len(e) > 1]
    span_s = max(e[-1] for _, e in found) - min(asked_s for asked_s, _ in found)
    return Told(first.mean, first.p99, statistics.fmean(gaps) if gaps else 0.0, sum(len(e) for _, e in found) / span_s)


# The clients. Ours and the bare one run in a process of their own, by this very file.


def ours(job: Job, out: Path) -> None:
    """Measure a level, and keep the figures and each request's stamps."""
    before_s, cpu_s = time.monotonic(), time.process_time()
    record = loop.run(run_level(job.url, job.workload(), Load(job.users), model=job.model, counters=dict))
    level_s, level_cpu_s = time.monotonic() - before_s, time.process_time() - cpu_s
    metrics = level_metrics(record)
    if metrics.requests_failed or metrics.ttft_ms is None or metrics.output_tokens_per_s_whole is None:
        raise SystemExit(f"{metrics.requests_failed} requests failed: {metrics.first_error}")
    told = Told(
        metrics.ttft_ms.mean,
        metrics.ttft_ms.p99,
        metrics.tpot_ms.mean if metrics.tpot_ms else 0.0,
        metrics.output_tokens_per_s_whole,
    )
    bodies = requests(job.workload(), Load(job.users).stem, job.model)
    out.write_bytes(
        pickle.dumps(
            {
                "told": asdict(told),
                "level_s": level_s,
                "level_cpu_s": level_cpu_s,
                "stamps": [(md5(next(bodies).body).hexdigest(), r.started_s, r.event_s) for r in record.requests],
            }
        )
    )


class _Bare(asyncio.Protocol):
    def __init__(self) -> None:
        self.reads: list[bytes] = []
        self.reads_s: list[float] = []
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.reads_s.append(time.monotonic())
        self.reads.append(data)
        if data.endswith(b"0\r\n\r\n"):
            self.over.set_result(None)


def bare(job: Job, out: Path) -> None:
    """Stamp and keep each read; every event of the paced server is one."""

    async def story() -> list[tuple[str, float, list[float]]]:
        host, port = job.url.removeprefix("http://").split(":")
        found = []
        connections = []
        for _ in range(job.users):
            _, connection = await asyncio.get_running_loop().create_connection(_Bare, host, int(port))
            connections.append(connection)
        for number in range(job.requests // job.users):
            for user, connection in enumerate(connections):
                body = b'{"%d/%d":0,"include_usage":true,"continuous_usage_stats":true}' % (number, user)
                head = b"POST /v1/completions HTTP/1.1\r\nhost: m\r\ncontent-length: %d\r\n\r\n" % len(body)
                connection.reads_s, connection.over = [], asyncio.get_running_loop().create_future()
                found.append((md5(body).hexdigest(), time.monotonic(), connection.reads_s))
                connection.transport.write(head + body)
            for connection in connections:
                await connection.over
        return found

    stamps = loop.run(story())
    out.write_bytes(pickle.dumps({"told": asdict(figures((s, e) for _, s, e in stamps)), "stamps": stamps}))


def sglang(job: Job, folder: Path, options: argparse.Namespace) -> tuple[Told, Cost]:
    """SGLang's own client."""
    out = folder / "sglang.jsonl"
    words: dict[str, Any] = {
        "backend": "sglang-oai",
        "base-url": job.url,
        "model": options.tokenizer,
        "tokenizer": options.tokenizer,
        "served-model-name": job.model,
        "dataset-name": "random-ids",
        "random-input-len": job.input_tokens,
        "random-output-len": job.events,
        "random-range-ratio": 1.0,
        "num-prompts": job.requests,
        "max-concurrency": job.users,
        "warmup-requests": 0,
        "output-file": out,
    }
    argv = [options.sglang_python, "-m", "sglang.benchmark.serving", "--disable-tqdm"]
    cost = run([*argv, *(str(word) for name, value in words.items() for word in (f"--{name}", value))])
    told = json.loads(out.read_text().splitlines()[-1])
    if told["completed"] != job.requests:
        raise RuntimeError(f"sglang.benchmark.serving completed {told['completed']} of {job.requests} requests")
    names = ("mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "output_throughput")
    return Told(*(told[name] for name in names)), cost


def aiperf(job: Job, folder: Path, options: argparse.Namespace) -> tuple[Told, Cost]:
    """NVIDIA's client."""
    words: dict[str, Any] = {
        "model": job.model,
        "tokenizer": options.tokenizer,
        "url": job.url,
        "endpoint-type": "completions",
        "concurrency": job.users,
        "request-count": job.requests,
        "synthetic-input-tokens-mean": job.input_tokens,
        "synthetic-input-tokens-stddev": 0,
        "output-tokens-mean": job.events,
        "output-tokens-stddev": 0,
        "extra-inputs": "ignore_eos:true",
        "ui-type": "none",
        "artifact-dir": folder,
    }
    flags = ["--streaming", "--use-server-token-count", "--no-gpu-telemetry", "--no-server-metrics"]
    argv = [str(Path(options.aiperf_python).parent / "aiperf"), "profile", *flags]
    # Told to stay offline, it looks for the tokenizer's folder in Hugging Face's cache only.
    argv += [str(word) for name, value in words.items() for word in (f"--{name}", value)]
    cost = run(argv, offline=False)
    told = json.loads(next(folder.rglob("profile_export_aiperf.json")).read_text())
    if told["request_count"]["avg"] != job.requests:
        raise RuntimeError(f"aiperf completed {told['request_count']['avg']} of {job.requests} requests")
    first, gap = told["time_to_first_token"], told.get("inter_token_latency", {"avg": 0.0})
    return Told(first["avg"], first["p99"], gap["avg"], told["output_token_throughput"]["avg"]), cost


def run(argv: Sequence[str], offline: bool = True) -> Cost:
    """Run a client; its CPU is that of all processes it has waited for, its peak the sum of what it had at a time."""
    peak, done = 0, threading.Event()
    env = {name: value for name, value in os.environ.items() if not name.endswith("_OFFLINE")}
    env |= {"PYTHONPATH": str(ROOT)} | ({"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"} if offline else {})
    with tempfile.TemporaryFile() as log:
        before_s = time.monotonic()
        process = subprocess.Popen(argv, env=env, stdout=log, stderr=subprocess.STDOUT)

        def watch() -> None:
            nonlocal peak
            while not done.wait(0.5):
                with contextlib.suppress(psutil.Error):
                    root = psutil.Process(process.pid)
                    family = [root, *root.children(recursive=True)]
                    peak = max(peak, sum(one.memory_info().rss for one in family))

        watcher = threading.Thread(target=watch)
        watcher.start()
        stopper = threading.Timer(_TIMEOUT_S, process.kill)
        stopper.start()
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - before_s
        stopper.cancel()
        done.set()
        watcher.join()
        process.returncode = os.waitstatus_to_exitcode(status)
        if status:
            log.seek(0)
            raise RuntimeError(f"{argv[0]} ended with {process.returncode}: {log.read().decode()[-3000:]}")
    return Cost(wall_s, used.ru_utime + used.ru_stime, max(peak / 2**20, used.ru_maxrss / 2**10))


def measure(client: str, job: Job, options: argparse.Namespace) -> tuple[Told, Cost, dict[str, Any]]:
    """Run one client. Raises RuntimeError where it fails or any of its requests does."""
    with tempfile.TemporaryDirectory() as folder:
        if client in ("sglang", "aiperf"):
            return *(sglang if client == "sglang" else aiperf)(job, Path(folder), options), {}
        out = Path(folder) / "out.pickle"
        cost = run([sys.executable, __file__, client, json.dumps(asdict(job)), str(out)])
        found = pickle.loads(out.read_bytes())
        return Told(**found.pop("told")), cost, found


if __name__ == "__main__":
    {"ours": ours, "bare": bare}[sys.argv[1]](Job(**json.loads(sys.argv[2])), Path(sys.argv[3]))
