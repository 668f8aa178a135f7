"""What measuring costs and how far it is off: this load generator beside sglang.benchmark.serving and aiperf.

    python tests/benchmarks/client.py [--users 64 256 1024] [--interval-ms 20 5] [--events 256] [--clients ours bare]
    python tests/benchmarks/client.py --server http://127.0.0.1:30000 [--rounds 4]

Against the paced server of `event_server.py`, which stamps each event by the same clock just before it writes it. The
error of a figure is what a client reports, minus the same figure computed from those stamps. CPU is that of the
client's whole process tree; `fixed` is that of a run of two events a request, start of the client included, which is
taken off before dividing by the events. `bare` is an asyncio protocol on uvloop that keeps stamps and bytes and does
nothing else: the floor for a client in Python on this machine, whatever its load.

With `--server` the clients take turns on a real SGLang, as many users, prompts and output tokens each.

sglang.benchmark.serving runs in the environment of `python3 -m launchers.sglang.cpu` (--sglang-python); aiperf in one
of its own: `python3 -m venv aiperf && aiperf/bin/pip install aiperf` (--aiperf-python).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import importlib.metadata
import itertools
import json
import os
import pickle
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import md5
from pathlib import Path
from typing import Any

import psutil
from event_server import PROMPT_TOKENS

from orchestrator.benchmark import loop
from orchestrator.benchmark.load import run_level
from orchestrator.benchmark.metrics import distribution, level_metrics
from orchestrator.benchmark.records import Distribution
from orchestrator.benchmark.workload import requests
from orchestrator.datasets import RandomIds
from orchestrator.offered_load import Load
from orchestrator.workload import Level, Workload

_ROOT = Path(__file__).parents[2]
CLIENTS = ("ours", "bare", "sglang", "aiperf")
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
    bodies = requests(job.workload(), Load(job.users), job.model)
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
                body = b"%d/%d" % (number, user)
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
    cost = run([*argv, *(str(word) for name, value in words.items() for word in (f"--{name}", value))])
    told = json.loads(next(folder.rglob("profile_export_aiperf.json")).read_text())
    if told["request_count"]["avg"] != job.requests:
        raise RuntimeError(f"aiperf completed {told['request_count']['avg']} of {job.requests} requests")
    first, gap = told["time_to_first_token"], told.get("inter_token_latency", {"avg": 0.0})
    return Told(first["avg"], first["p99"], gap["avg"], told["output_token_throughput"]["avg"]), cost


def run(argv: Sequence[str]) -> Cost:
    """Run a client; its CPU is that of all processes it has waited for, its peak the sum of what it had at a time."""
    peak, done = 0, threading.Event()
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONPATH": str(_ROOT)}
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


# The truth


def figures(answers: Any) -> Told:
    """The figures that follow from (asked, arrivals of events) of each request, one token an event."""
    found = [(asked_s, events_s) for asked_s, events_s in answers]
    first = distribution([1e3 * (events_s[0] - asked_s) for asked_s, events_s in found])
    assert first is not None
    gaps = [1e3 * (e[-1] - e[0]) / (len(e) - 1) for _, e in found if len(e) > 1]
    span_s = max(e[-1] for _, e in found) - min(asked_s for asked_s, _ in found)
    return Told(first.mean, first.p99, statistics.fmean(gaps) if gaps else 0.0, sum(len(e) for _, e in found) / span_s)


def stamp_errors_ms(
    stamps: Sequence[tuple[str, float, Sequence[float]]], truth: Sequence[dict[str, Any]]
) -> Distribution | None:
    """Arrival by the client's stamp minus departure by the server's, of every event."""
    sent_s = {one["key"]: one["sent_s"] for one in truth}
    errors = [
        1e3 * (came_s - went_s)
        for key, _, events_s in stamps
        # The bare client takes two events that come together for one.
        if len(events_s) == len(sent_s[key])
        for came_s, went_s in zip(events_s, sent_s[key], strict=True)
    ]
    return distribution(errors)


def call(url: str, body: object | None = None) -> Any:
    """GET, or POST a JSON body."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=60) as answer:
        return json.loads(answer.read())


@contextlib.contextmanager
def event_server() -> Iterator[str]:
    """The paced server, in a process of its own."""
    argv = [sys.executable, str(Path(__file__).with_name("event_server.py"))]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def measure(client: str, job: Job, options: argparse.Namespace) -> tuple[Told, Cost, dict[str, Any]]:
    """Run one client. Raises RuntimeError where it fails or any of its requests does."""
    with tempfile.TemporaryDirectory() as folder:
        if client in ("sglang", "aiperf"):
            return *(sglang if client == "sglang" else aiperf)(job, Path(folder), options), {}
        out = Path(folder) / "out.pickle"
        cost = run([sys.executable, __file__, "--run", client, json.dumps(asdict(job)), str(out)])
        found = pickle.loads(out.read_bytes())
        return Told(**found.pop("told")), cost, found


def against_truth(client: str, url: str, users: int, interval_ms: float, options: argparse.Namespace) -> dict[str, Any]:
    """One row: cost and errors of a client."""
    per_user = options.requests_per_user
    call(f"{url}/reset", {"events": 2, "interval_ms": interval_ms})
    _, fixed, fixed_found = measure(client, Job(url, users, users * per_user, 2), options)
    call(f"{url}/reset", {"events": options.events, "interval_ms": interval_ms})
    told, cost, found = measure(client, Job(url, users, users * per_user, options.events), options)
    answer = call(f"{url}/truth")
    true = figures((one["arrived_s"], one["sent_s"]) for one in answer["requests"])
    events = sum(len(one["sent_s"]) for one in answer["requests"])
    sent_s = [one["sent_s"] for one in answer["requests"]]
    streaming_s = max(s[-1] for s in sent_s) - min(one["arrived_s"] for one in answer["requests"])
    row: dict[str, Any] = {"client": client, "users": users, "interval_ms": interval_ms, "events": events}
    row |= {
        "cpu_us_per_event": 1e6 * (cost.cpu_s - fixed.cpu_s) / events,
        "cpu_s": cost.cpu_s,
        "fixed_cpu_s": fixed.cpu_s,
        "fixed_wall_s": cost.wall_s - streaming_s,
        "peak_mib": cost.peak_mib,
        "told": asdict(told),
        "true": asdict(true),
        "blocked_writes": answer["blocked"],
        "events_per_s": events / streaming_s,
    }
    if "level_s" in found:
        # Of a level alone: a sweep measures many in one process.
        row |= {"level_fixed_wall_s": found["level_s"] - streaming_s, "level_fixed_cpu_s": fixed_found["level_cpu_s"]}
    if "stamps" in found and (stamp := stamp_errors_ms(found["stamps"], answer["requests"])) is not None:
        row["stamp_error_ms"] = asdict(stamp)
    return row


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    told, true = row["told"], row["true"]
    stamp = row.get("stamp_error_ms")
    cells = [
        f"{row['client']:>7}",
        f"{row['users']:>5}",
        f"{row['interval_ms']:>4g}",
        f"{row['events_per_s']:>8,.0f}",
        f"{row['cpu_us_per_event']:>7.1f}",
        f"{row['fixed_wall_s']:>6.2f} {row['fixed_cpu_s']:>6.2f}",
        f"{true['ttft_mean_ms']:>7.2f} {told['ttft_mean_ms'] - true['ttft_mean_ms']:>+8.2f}",
        f"{told['ttft_p99_ms'] - true['ttft_p99_ms']:>+8.2f}",
        f"{100 * (told['tpot_mean_ms'] / true['tpot_mean_ms'] - 1):>+7.2f}" if true["tpot_mean_ms"] else "      -",
        f"{100 * (told['tokens_per_s'] / true['tokens_per_s'] - 1):>+7.2f}",
        f"{stamp['mean']:>6.2f} {stamp['p99']:>6.2f}" if stamp else "     -      -",
        f"{row['peak_mib']:>6.0f}",
    ]
    return "  ".join(cells)


_TITLE = (
    " client  users  ms/e  events/s  us/evnt  fixed s  CPU s  TTFT ms    error  p99 err  TPOT %  tok/s %"
    "  stamp  p99 ms    MiB"
)


def against_sglang(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rounds of all clients against a real server, in turns that go back and forth."""
    model = call(f"{options.server}/v1/models")["data"][0]["id"]
    rows = []
    for users, number in itertools.product(options.users, range(options.rounds)):
        clients = [client for client in options.clients if client != "bare"]
        for client in clients if number % 2 == 0 else reversed(clients):
            asked = users * options.requests_per_user
            job = Job(options.server, users, asked, options.events, options.input_tokens, model)
            told, cost, _ = measure(client, job, options)
            rows.append({"client": client, "users": users, "round": number, "told": asdict(told), **asdict(cost)})
            print(
                f"{client:>7}  C={users}  {told.tokens_per_s:8.1f} tok/s  TTFT {told.ttft_mean_ms:.1f} ms", flush=True
            )
    for users in options.users:
        rates = {
            client: [row["told"]["tokens_per_s"] for row in rows if (row["client"], row["users"]) == (client, users)]
            for client in options.clients
        }
        for client, rate in rates.items():
            if rate and rates.get("ours"):
                ratio = statistics.fmean(rate) / statistics.fmean(rates["ours"])
                print(f"C={users}  {client:>7}  {statistics.fmean(rate):8.1f} tok/s  x{ratio:.3f} of ours")
    return rows


def environment(options: argparse.Namespace) -> dict[str, Any]:
    """When, where and with what it was measured."""
    versions = {name: importlib.metadata.version(name) for name in ("uvloop", "httptools")}
    for name, python in (("sglang", options.sglang_python), ("aiperf", options.aiperf_python)):
        if name in options.clients:
            ask = f"import importlib.metadata as m; print(m.version({name!r}))"
            versions[name] = subprocess.run([python, "-c", ask], capture_output=True, text=True).stdout.strip()
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB",
        "kernel": platform.release(),
        "load_before": os.getloadavg(),
        "python": platform.python_version(),
        "versions": versions,
    }


def main() -> None:
    if sys.argv[1:2] == ["--run"]:
        client, job, out = sys.argv[2:]
        {"ours": ours, "bare": bare}[client](Job(**json.loads(job)), Path(out))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--users", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument(
        "--interval-ms", type=float, nargs="+", default=[20.0, 5.0], help="between two events of a user"
    )
    parser.add_argument("--events", type=int, default=256, help="events of an answer, one token each")
    parser.add_argument("--requests-per-user", type=int, default=2)
    parser.add_argument("--clients", choices=CLIENTS, nargs="+", default=list(CLIENTS))
    parser.add_argument("--sglang-python", default=str(_ROOT / ".venv-sglang/bin/python"))
    parser.add_argument("--aiperf-python", default="aiperf/bin/python")
    parser.add_argument("--tokenizer", default=str(_ROOT / ".venv-sglang/models/markov"), help="a local model folder")
    parser.add_argument("--server", help="URL of a running SGLang, instead of the paced server")
    parser.add_argument("--input-tokens", type=int, default=64, help="with --server: tokens of a prompt")
    parser.add_argument("--rounds", type=int, default=3, help="with --server")
    parser.add_argument("--out", type=Path, help="folder for the figures as JSON: results/client-benchmark, say")
    options = parser.parse_args()
    for client in ("sglang", "aiperf"):
        python = Path(vars(options)[f"{client}_python"])
        if client in options.clients and not python.exists():
            parser.error(f"there is no {python} for {client}: see above, or leave it out with --clients")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    about = environment(options)
    print(json.dumps(about))
    if options.server:
        rows = against_sglang(options)
    else:
        rows = []
        print(_TITLE)
        with event_server() as url:
            for users, interval_ms in itertools.product(options.users, options.interval_ms):
                for client in options.clients:
                    rows.append(against_truth(client, url, users, interval_ms, options))
                    print(line(rows[-1]), flush=True)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        path = options.out / f"client-{about['date'].replace(':', '')}.json"
        path.write_text(json.dumps({"about": about, "rows": rows}, indent=1))
        print(path)


if __name__ == "__main__":
    main()
