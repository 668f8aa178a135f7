"""What the load generator can take: CPU time of the client per streamed event, and how exactly it holds the load.

    python tests/benchmarks/load_generator.py [--concurrency 128] [--tokens 256] [--step-ms 10] [--api openai]

A server in a process of its own streams one event to every open request each step, like an engine that
decodes one token for the whole batch, in SGLang's form. The client is one process on one core: its CPU time
over the events it read gives the events per second that it could take if it did nothing else. A client
that is behind finds several events in one read, which makes each cheaper: --step-ms 0.1 shows that.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import multiprocessing.connection
import time
from collections.abc import Iterator

from orchestrator.benchmark.load import run_level
from orchestrator.benchmark.metrics import level_metrics
from orchestrator.benchmark.records import LevelRecord
from orchestrator.workload import Level, SyntheticDataset, Workload

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _event(payload: object) -> bytes:
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"


def _openai_answer(tokens: int) -> list[bytes]:
    frame = {"id": "0" * 32, "object": "text_completion", "created": 0, "model": "m"}
    events = []
    for n in range(1, tokens + 1):
        choice = {
            "index": 0,
            "text": " 400",
            "logprobs": None,
            "finish_reason": "length" if n == tokens else None,
            "matched_stop": None,
        }
        usage = {"prompt_tokens": 8, "total_tokens": 8 + n, "completion_tokens": n, "reasoning_tokens": 0}
        events.append(_event({**frame, "choices": [choice], "usage": usage}))
    return events


def _native_answer(tokens: int) -> list[bytes]:
    events = []
    for n in range(1, tokens + 1):
        meta = {
            "id": "0" * 32,
            "finish_reason": {"type": "length", "length": n} if n == tokens else None,
            "prompt_tokens": 8,
            "weight_version": "default",
            "num_retractions": 0,
            "queue_time": 0.00037660099997083307,
            "reasoning_tokens": 0,
            "completion_tokens": n,
            "cached_tokens": 0,
            "dp_rank": None,
        }
        events.append(_event({"text": " 400" * n, "output_ids": [778] * n, "meta_info": meta}))
    return events


async def _serve(pipe: multiprocessing.connection.Connection, answer: list[bytes], step_s: float) -> None:
    chunks = [_HEAD + _chunk(answer[0]), *map(_chunk, answer[1:-1])]
    chunks.append(_chunk(answer[-1]) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    batch: dict[asyncio.StreamWriter, Iterator[bytes]] = {}
    most = 0

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal most
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET"):
                    writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                    continue
                lengths = [h for h in head.lower().split(b"\r\n") if h.startswith(b"content-length:")]
                await reader.readexactly(int(lengths[0].split(b":")[1]))
                batch[writer] = iter(chunks)
                most = max(most, len(batch))
        writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0, backlog=1024, limit=2**20)
    pipe.send(server.sockets[0].getsockname()[1])
    while not pipe.poll():
        await asyncio.sleep(step_s)
        for writer, rest in list(batch.items()):
            chunk = next(rest)
            if chunk is chunks[-1]:
                del batch[writer]
            writer.write(chunk)
    pipe.send(most)
    server.close()


def _server(pipe: multiprocessing.connection.Connection, answer: list[bytes], step_s: float) -> None:
    asyncio.run(_serve(pipe, answer, step_s))


def _measure(port: int, workload: Workload, concurrency: int) -> tuple[LevelRecord, float]:
    before_s = time.process_time()
    record = __import__("uvloop").run(run_level(f"http://127.0.0.1:{port}", workload, concurrency, counters=dict))
    return record, time.process_time() - before_s


def _mean_in_flight(record: LevelRecord) -> float | None:
    """Requests between sent and read, averaged over the window."""
    if record.window_s is None:
        return None
    start_s, end_s = record.window_s
    overlaps = (min(r.finished_s, end_s) - max(r.started_s, start_s) for r in record.requests)
    return sum(max(0.0, o) for o in overlaps) / (end_s - start_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 32, 128, 512])
    parser.add_argument("--tokens", type=int, default=128, help="output tokens, one event each")
    parser.add_argument("--step-ms", type=float, default=10.0, help="pause between two steps of the server")
    parser.add_argument("--requests-per-user", type=int, default=3)
    parser.add_argument("--api", choices=["openai", "native"], nargs="+", default=["openai", "native"])
    args = parser.parse_args()
    columns = ["api", "users", "events", "events/read", "CPU us/event", "events/s on one core"]
    columns += ["events/s read", "in flight: mean", "most", "failed"]
    print("  ".join(columns))
    spawn = multiprocessing.get_context("spawn")
    for api in args.api:
        answer = (_openai_answer if api == "openai" else _native_answer)(args.tokens)
        for concurrency in args.concurrency:
            ours, theirs = spawn.Pipe()
            server = spawn.Process(target=_server, args=(theirs, answer, args.step_ms / 1000), daemon=True)
            server.start()
            try:
                workload = Workload(
                    api=api,
                    dataset=SyntheticDataset(input_tokens=64, output_tokens=args.tokens),
                    concurrency=(concurrency,),
                    level=Level(requests_per_user=args.requests_per_user, min_s=0, max_s=60),
                )
                record, cpu_s = _measure(ours.recv(), workload, concurrency)
                ours.send("stop")
                most = ours.recv()
            finally:
                server.terminate()
                server.join()
            metrics = level_metrics(record)
            events = sum(len(r.event_s) for r in record.requests)
            reads = sum(len(set(r.event_s)) for r in record.requests)
            rate, mean = metrics.output_tokens_per_s, _mean_in_flight(record)
            cells = (
                api,
                str(concurrency),
                str(events),
                f"{events / reads:.2f}",
                f"{cpu_s / events * 1e6:.1f}",
                f"{events / cpu_s:,.0f}",
                "-" if rate is None else f"{rate:,.0f}",
                "-" if mean is None else f"{mean:.2f}",
                str(most),
                str(metrics.requests_failed),
            )
            print("  ".join(cell.rjust(len(column)) for cell, column in zip(cells, columns, strict=True)))


if __name__ == "__main__":
    main()
