import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from stream_server import DONE, StreamServer, completion, event, good_answer, stream

from orchestrator.benchmark import loop
from orchestrator.benchmark.client import Client
from orchestrator.benchmark.records import RequestRecord
from orchestrator.benchmark.workload import PreparedRequest

REQUEST = PreparedRequest(3, "/v1/completions", b"{}", 4)
DEADLINE_S = 30


def ticking() -> Callable[[], float]:
    """A clock that moves one second each time it is read."""
    return itertools.count(100.0).__next__


def run(story: Awaitable[Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(DEADLINE_S):
            return await story

    return loop.run(bounded())


async def send_all(url: str, requests: Sequence[PreparedRequest]) -> list[RequestRecord]:
    """One after the other, by one user."""
    delivered: list[RequestRecord] = []
    async with Client(url, api="openai", timeout_s=DEADLINE_S, clock=ticking()) as client:
        for request in requests:
            await client.send(request, user=0, warmup=False, deliver=delivered.append)
    return delivered


async def send(url: str, timeout_s: float = DEADLINE_S, **options: Any) -> RequestRecord:
    delivered: list[RequestRecord] = []
    async with Client(url, api="openai", timeout_s=timeout_s, clock=ticking(), **options) as client:
        ending = await client.send(REQUEST, user=5, warmup=True, deliver=delivered.append)
    (record,) = delivered
    assert (ending.succeeded, ending.finished_s) == (record.succeeded, record.finished_s)
    return record


def answered(*parts: bytes) -> RequestRecord:
    async def story() -> RequestRecord:
        async with StreamServer(lambda server, request, number: stream(request, parts)) as server:
            return await send(server.url)

    record: RequestRecord = run(story())
    return record


@asynccontextmanager
async def raw_server(reply: Sequence[bytes]) -> AsyncIterator[str]:
    """Reads a request's head, writes `reply` as it stands, and closes the connection."""

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for part in reply:
            writer.write(part)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


def raw(*reply: bytes) -> RequestRecord:
    async def story() -> RequestRecord:
        async with raw_server(reply) as url:
            return await send(url)

    record: RequestRecord = run(story())
    return record


def test_a_good_answer_is_a_success_with_a_stamp_and_a_count_for_each_event() -> None:
    record = answered(*good_answer(4))
    assert record.succeeded
    assert (record.index, record.user, record.warmup) == (3, 5, True)
    assert (record.output_tokens, record.prompt_tokens, record.finish_reason) == (4, 5, "length")
    assert record.event_tokens == (1, 2, 3, 4)
    assert list(record.event_s) == sorted(record.event_s)
    assert record.started_s < record.event_s[0] <= record.event_s[-1] <= record.finished_s


def test_chunks_of_several_tokens_are_counted_by_usage() -> None:
    usage = event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 12, "total_tokens": 17}})
    parts = [completion("a b c"), completion("d e f"), completion("g h i"), completion("j k l", finish="length")]
    record = answered(*parts, usage, DONE)
    assert record.output_tokens == 12
    assert len(record.event_s) == 4
    assert record.event_tokens == (3, 6, 9, 12)
    assert not record.tokens_estimated


def test_an_answer_shorter_than_asked_is_a_success_with_a_warning() -> None:
    async def story(exact: bool) -> RequestRecord:
        asked = PreparedRequest(0, "/v1/completions", b"{}", 5, exact=exact)
        async with StreamServer() as server:
            (record,) = await send_all(server.url, [asked])
        return record

    short, allowed = run(story(True)), run(story(False))
    assert short.succeeded
    assert allowed.succeeded
    assert "4 of 5" in short.warning
    assert allowed.warning is None


def test_a_failed_stream_credits_no_tokens() -> None:
    record = answered(*good_answer(9)[:5], event({"error": {"message": "boom", "code": 500}}), DONE)
    assert (record.error_kind, record.error_code, record.error) == ("stream_error", 500, "boom")
    assert (record.output_tokens, record.event_tokens) == (None, ())


def test_a_refused_request_keeps_status_and_message() -> None:
    async def refuse(server: StreamServer, request: web.Request, number: int) -> web.StreamResponse:
        return web.json_response({"object": "error", "message": "prompt too long", "code": 400}, status=400)

    async def story() -> RequestRecord:
        async with StreamServer(refuse) as server:
            return await send(server.url)

    record = run(story())
    assert (record.error_kind, record.error_code) == ("http", 400)
    assert "prompt too long" in record.error


def test_an_empty_answer_fails() -> None:
    record = answered()
    assert (record.error_kind, record.output_tokens) == ("empty", None)


def test_nobody_listening_is_a_connect_error() -> None:
    async def story() -> RequestRecord:
        async with StreamServer() as server:
            url = server.url
        return await send(url)

    record = run(story())
    assert (record.error_kind, record.error_code, record.output_tokens) == ("connect", None, None)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def test_a_chunked_body_cut_short_fails() -> None:
    record = raw(HEAD, *map(chunked, good_answer(9)[:5]))
    assert (record.error_kind, record.output_tokens) == ("cut", None)
    assert "closed the connection" in (record.error or "")


def test_a_body_cut_after_done_is_a_success_with_a_warning() -> None:
    record = raw(HEAD, *map(chunked, good_answer(4)))
    assert record.succeeded
    assert record.output_tokens == 4
    assert record.warning


def test_a_connection_closed_without_an_answer_is_a_cut() -> None:
    assert raw().error_kind == "cut"


def test_an_answer_that_is_no_http_is_a_cut() -> None:
    assert raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n").error_kind == "cut"


async def hang(server: StreamServer, request: web.Request, number: int) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(completion(" a", 1))
    await asyncio.Event().wait()
    return response


def test_an_answer_that_takes_too_long_fails() -> None:
    async def story() -> RequestRecord:
        async with StreamServer(hang) as server:
            return await send(server.url, timeout_s=0.3)

    record = run(story())
    assert (record.error_kind, record.output_tokens) == ("timeout", None)
    assert "0.3 s" in record.error


def test_cancelling_delivers_a_record_and_goes_on_as_cancellation() -> None:
    async def story() -> list[RequestRecord]:
        delivered: list[RequestRecord] = []
        async with StreamServer(hang) as server:
            async with Client(server.url, api="openai", timeout_s=DEADLINE_S, clock=ticking()) as client:
                task = asyncio.create_task(client.send(REQUEST, user=0, warmup=False, deliver=delivered.append))
                while not server.arrived:
                    await asyncio.sleep(0.001)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            while server.in_flight:
                await asyncio.sleep(0.001)
        return delivered

    (record,) = run(story())
    assert (record.error_kind, record.output_tokens) == ("cancelled", None)


def test_the_key_is_sent_as_a_bearer_token_and_stays_out_of_the_record() -> None:
    async def refuse(server: StreamServer, request: web.Request, number: int) -> web.StreamResponse:
        return web.Response(status=401, text="who are you?")

    async def story() -> tuple[RequestRecord, dict[str, str]]:
        async with StreamServer(refuse) as server:
            return await send(server.url, api_key="sk-secret"), server.headers[0]

    record, headers = run(story())
    assert headers["Authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in repr(record)


def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert answered(*good_answer()).succeeded


def test_a_connection_is_used_again_and_survives_a_server_that_closes_it() -> None:
    async def close_each(server: StreamServer, request: web.Request, number: int) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Connection": "close"} if number % 2 else {})
        await response.prepare(request)
        for part in good_answer():
            await response.write(part)
        await response.write_eof()
        return response

    async def story() -> list[RequestRecord]:
        async with StreamServer(close_each) as server:
            return await send_all(server.url, [REQUEST] * 6)

    records = run(story())
    assert len(records) == 6
    assert all(record.succeeded for record in records)
