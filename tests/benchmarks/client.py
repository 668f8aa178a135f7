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
of its own: `python3 -m venv .venv-aiperf && .venv-aiperf/bin/pip install aiperf` (--aiperf-python).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import itertools
import json
import resource
import statistics
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from client_runs import ROOT, Job, figures, measure
from kept import environment, keep

from orchestrator.benchmark.counters import flush_cache
from orchestrator.benchmark.metrics import distribution
from orchestrator.benchmark.records import Distribution

CLIENTS = ("ours", "bare", "sglang", "aiperf")


# The truth


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
        f"{row['level_fixed_wall_s']:>6.2f}" if "level_fixed_wall_s" in row else "     -",
        f"{row['peak_mib']:>6.0f}",
    ]
    return "  ".join(cells)


_TITLE = (
    " client  users  ms/e  events/s  us/evnt  fixed s  CPU s  TTFT ms    error  p99 err  TPOT %  tok/s %"
    "  stamp  p99 ms  level s   MiB"
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
            # The clients' prompts are the same in each round.
            flush_cache(options.server)
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


def versions(options: argparse.Namespace) -> dict[str, str]:
    """Of what was measured."""
    found = {name: importlib.metadata.version(name) for name in ("uvloop", "httptools")}
    for name, python in (("sglang", options.sglang_python), ("aiperf", options.aiperf_python)):
        if name in options.clients:
            ask = f"import importlib.metadata as m; print(m.version({name!r}))"
            found[name] = subprocess.run([python, "-c", ask], capture_output=True, text=True).stdout.strip()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--users", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument(
        "--interval-ms", type=float, nargs="+", default=[20.0, 5.0], help="between two events of a user"
    )
    parser.add_argument("--events", type=int, default=256, help="events of an answer, one token each")
    parser.add_argument("--requests-per-user", type=int, default=2)
    parser.add_argument("--clients", choices=CLIENTS, nargs="+", default=list(CLIENTS))
    parser.add_argument("--sglang-python", default=str(ROOT / ".venv-sglang/bin/python"))
    parser.add_argument("--aiperf-python", default=str(ROOT / ".venv-aiperf/bin/python"))
    parser.add_argument("--tokenizer", default=str(ROOT / ".venv-sglang/models/markov"), help="a local model folder")
    parser.add_argument("--server", help="URL of a running SGLang, instead of the paced server")
    parser.add_argument("--input-tokens", type=int, default=64, help="with --server: tokens of a prompt")
    parser.add_argument("--rounds", type=int, default=3, help="with --server")
    parser.add_argument("--out", type=Path, help="an Arrow file for the figures")
    options = parser.parse_args()
    for client in ("sglang", "aiperf"):
        python = Path(vars(options)[f"{client}_python"])
        if client in options.clients and not python.exists():
            parser.error(f"there is no {python} for {client}: see above, or leave it out with --clients")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    about = environment() | {"versions": versions(options)}
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
        keep(rows, about, options.out)


if __name__ == "__main__":
    main()
