import asyncio
import contextlib
import gc
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from stream_server import DONE, StreamServer, completion, event, good_answer, stream

from orchestrator.benchmark import loop
from orchestrator.benchmark.client import Client
from orchestrator.benchmark.records import RequestRecord
from orchestrator.benchmark.session import Session
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
    async with Client(url, api="completion", timeout_s=DEADLINE_S, clock=ticking()) as client:
        for request in requests:
            await client.send(request, user=0, warmup=False, deliver=delivered.append)
    return delivered


async def send(url: str, timeout_s: float = DEADLINE_S, **options: Any) -> RequestRecord:
    delivered: list[RequestRecord] = []
    async with Client(url, api="completion", timeout_s=timeout_s, clock=ticking(), **options) as client:
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
            async with Client(server.url, api="completion", timeout_s=DEADLINE_S, clock=ticking()) as client:
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


# Connections


class Door:
    """A server of bare connections: answers every request with `reply`, and counts who comes."""

    def __init__(self, reply: bytes) -> None:
        self.reply = reply
        self.opened = 0
        self.asked: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> "Door":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        self.hang_up()
        await self._server.wait_closed()

    def hang_up(self) -> None:
        """Close every connection, politely."""
        while self.writers:
            self.writers.pop().close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        self.writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                (length,) = (int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.startswith(b"Content-Length:"))
                self.asked.append(head + await reader.readexactly(length))
                writer.write(self.reply)


WHOLE = HEAD + b"".join(map(chunked, good_answer(4))) + b"0\r\n\r\n"


async def until(condition: Callable[[], bool]) -> None:
    """The callers' deadline bounds it."""
    while not condition():
        await asyncio.sleep(0.001)


def client(url: str, **options: Any) -> Client:
    return Client(url, api="completion", timeout_s=DEADLINE_S, clock=time.monotonic, **options)


async def ask(sender: Client, delivered: list[RequestRecord], **options: Any) -> bool:
    return (await sender.send(REQUEST, user=0, warmup=False, deliver=delivered.append, **options)).succeeded


def test_connections_are_opened_beforehand_and_used_again() -> None:
    async def story() -> None:
        async with Door(WHOLE) as door, client(door.url, connections=3) as sender:
            await until(lambda: door.opened == 3)
            for _ in range(3):
                assert all(await asyncio.gather(*(ask(sender, []) for _ in range(3))))
            assert (door.opened, len(door.asked)) == (3, 9)

    run(story())


def test_a_connection_that_the_server_has_closed_is_opened_anew_before_the_first_stamp() -> None:
    async def story() -> None:
        delivered: list[RequestRecord] = []
        async with Door(WHOLE) as door, client(door.url, connections=1) as sender:
            assert await ask(sender, delivered)
            door.hang_up()
            # Let the client hear of it.
            await until(lambda: not any(one.open for one in sender._way._all))
            before_s = time.monotonic()
            assert await ask(sender, delivered)
            assert door.opened == 2
        assert [record.error for record in delivered] == [None, None]
        assert delivered[1].started_s > before_s

    run(story())


def test_a_server_that_is_started_anew_between_requests_breaks_none() -> None:
    async def story() -> list[RequestRecord]:
        delivered: list[RequestRecord] = []
        async with Door(HEAD + chunked(good_answer(9)[0])) as door, client(door.url, connections=1) as sender:
            broken = asyncio.create_task(ask(sender, delivered))
            await until(lambda: sender.pieces == 1)
            for writer in door.writers:
                writer.transport.abort()
            assert not await broken
            door.reply = WHOLE
            assert await ask(sender, delivered)
        return delivered

    broken, good = run(story())
    assert (broken.error_kind, broken.output_tokens, len(broken.event_s)) == ("cut", None, 1)
    assert good.succeeded


def test_a_request_is_one_write_with_its_length_and_the_target_is_kept() -> None:
    async def story() -> tuple[RequestRecord, bytes]:
        delivered: list[RequestRecord] = []
        async with Door(WHOLE) as door, client(door.url + "/base/", api_key="k") as sender:
            await ask(sender, delivered, targeted_s=1.5)
        return delivered[0], door.asked[0]

    record, asked = run(story())
    assert record.targeted_s == 1.5
    head, _, body = asked.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /base/v1/completions HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nContent-Length: 2" in head
    assert body == b"{}"


def test_a_body_larger_than_the_sockets_buffer_arrives_whole() -> None:
    body = bytes(range(256)) * 40_000

    async def story() -> bytes:
        async with Door(WHOLE) as door, client(door.url) as sender:
            request = PreparedRequest(0, "/v1/completions", body, 4)
            assert (await sender.send(request, user=0, warmup=False, deliver=lambda record: None)).succeeded
        return door.asked[0]

    assert run(story()).endswith(b"\r\n\r\n" + body)


def test_a_key_that_would_break_the_head_is_refused_without_being_told() -> None:
    with pytest.raises(ValueError, match="API key") as found:
        Client("http://127.0.0.1:1", api="completion", timeout_s=1, clock=ticking(), api_key="secret\r\nX: y")
    assert "secret" not in str(found.value)


def test_records_come_in_the_order_of_the_ends_and_all_of_them_by_settling() -> None:
    async def story() -> None:
        delivered: list[RequestRecord] = []
        async with Door(WHOLE) as door, client(door.url, connections=8) as sender:
            await asyncio.gather(*(ask(sender, delivered) for _ in range(8)))
            sender.settle()
            assert len(delivered) == 8
            ends = [record.finished_s for record in delivered]
            assert ends == sorted(ends)

    run(story())


def test_many_at_once_take_turns_and_cancelling_one_leaves_the_others_theirs() -> None:
    async def story() -> None:
        async with Door(WHOLE) as door, client(door.url) as sender:
            turns = [asyncio.create_task(sender.turn()) for _ in range(50)]
            await asyncio.sleep(0)
            turns[-1].cancel()
            await asyncio.wait(turns)
            assert sum(not turn.cancelled() for turn in turns) == 49

    run(story())


@pytest.mark.parametrize("status", [200, 307, 500])
def test_the_way_over_aiohttp_says_the_same(status: int) -> None:
    """It is taken for https; here without TLS."""

    async def answer(server: StreamServer, request: web.Request, number: int) -> web.StreamResponse:
        if status == 200:
            return await stream(request, good_answer())
        return web.json_response({"message": "no"}, status=status, headers={"location": "/v1/completions"})

    async def story() -> tuple[RequestRecord, RequestRecord]:
        found: list[RequestRecord] = []
        async with StreamServer(answer) as server:
            for way in (None, Session(server.url, {"Content-Type": "application/json"}, time.monotonic)):
                sender = client(server.url)
                sender._way = way or sender._way
                async with sender:
                    await ask(sender, found)
        return found[0], found[1]

    ours, theirs = run(story())
    for name in ("error_kind", "error_code", "error", "warning", "output_tokens", "event_tokens", "finish_reason"):
        assert getattr(ours, name) == getattr(theirs, name)


def test_https_is_left_to_aiohttp() -> None:
    async def story() -> RequestRecord:
        async with StreamServer() as server:
            return await send(server.url.replace("http:", "https:"))

    assert run(story()).error_kind == "connect"


def test_measurements_run_on_uvloop_and_leave_the_collector_as_it_was() -> None:
    async def story() -> tuple[str, int]:
        return type(asyncio.get_running_loop()).__module__, gc.get_freeze_count()

    module, frozen = loop.run(story())
    assert module.startswith("uvloop")
    assert frozen > 0
    assert gc.get_freeze_count() == 0


def test_what_was_measured_is_not_written_out_at_the_end() -> None:
    written = []

    class Measured:
        def __repr__(self) -> str:
            written.append(self)
            return "a million stamps"

    async def story() -> Measured:
        return Measured()

    assert isinstance(loop.run(story()), Measured)
    assert written == []
