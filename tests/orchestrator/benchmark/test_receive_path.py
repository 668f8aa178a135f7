"""The receive path without sockets: bytes cut anywhere, through connection, frame and both decoders."""

import asyncio
import itertools
import json
import time
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_server import DONE, completion, event, good_answer

from orchestrator.benchmark import answer as answer_module
from orchestrator.benchmark.answer import Answer
from orchestrator.benchmark.connection import Connection
from orchestrator.benchmark.skim import EVENT_END, skim
from orchestrator.benchmark.stream import NativeStream, OpenAIStream, Verdict

SAMPLES = Path(__file__).parent / "samples"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Reads:
    """What came of an answer whose reads were stamped 0, 1, 2, ..."""

    def __init__(self, reads: list[bytes], native: bool, close: Exception | bool | None) -> None:
        self.answer = Answer(native=native)
        self.relieved = 0
        asyncio.run(self._story(reads, close))
        while not self.answer.digest():
            pass
        assert self.answer.verdict is not None
        self.verdict: Verdict = self.answer.verdict
        self.event_s = self.answer.event_s
        self.told = self.answer.told

    async def _story(self, reads: list[bytes], close: Exception | bool | None) -> None:
        ticks = iter(range(-1, 10**9))
        connection = Connection(lambda: float(next(ticks)), self._relieve)
        self.transport = FakeTransport()
        connection.connection_made(cast(asyncio.Transport, self.transport))
        asking = asyncio.create_task(connection.ask(b"POST / HTTP/1.1\r\n\r\n", self.answer))
        await asyncio.sleep(0)
        for data in reads:
            if self.transport.aborted:
                break
            connection.data_received(data)
        self.over_by_bytes = self.answer.over
        if close is not False and not self.transport.aborted:
            connection.connection_lost(cast(Exception | None, close))
        self.seemed_good = self.answer.over and self.answer.succeeded
        await asyncio.wait_for(asking, 5)
        self.reusable = connection.open

    def _relieve(self, connection: Connection) -> None:
        self.relieved += 1
        connection.digest()


class FakeTransport:
    """Takes what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.aborted = False

    def get_extra_info(self, name: str) -> None:
        """No socket."""

    def write(self, data: bytes) -> None:
        self.written += data

    def abort(self) -> None:
        self.aborted = True


def receive(reads: list[bytes], *, native: bool = False, close: Exception | bool | None = None) -> Reads:
    """`close`: how the server closes the connection at the end; False for not at all."""
    return Reads([data for data in reads if data], native, close)


def cut_at(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({c % (len(data) + 1) for c in cuts})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def byte_by_byte(
    body: list[tuple[int, int]], reads: list[bytes], native: bool
) -> tuple[list[float], list[int], Verdict]:
    """The strict decoder's outcome; `body` holds each byte of the body and its place on the wire."""
    owner = [read for read, data in enumerate(d for d in reads if d) for _ in data]
    stream = NativeStream() if native else OpenAIStream()
    event_s: list[float] = []
    told: list[int] = []
    for byte, place in body:
        outputs = stream.feed(bytes([byte]))
        event_s += [float(owner[place])] * len(outputs)
        told += outputs
    late, verdict = stream.finish()
    return event_s + [float(owner[body[-1][1]])] * len(late), told + late, verdict


def on_the_wire(chunks: list[bytes]) -> tuple[bytes, list[tuple[int, int]]]:
    """The chunked answer, and each byte of its body with its place in it."""
    wire, body = CHUNKED, []
    for data in chunks:
        start = len(wire) + len(b"%x\r\n" % len(data))
        body += [(byte, start + i) for i, byte in enumerate(data)]
        wire += chunk(data)
    return wire + LAST, body


# Streams like SGLang's, and what may come among them


def ordinary(text: str, tokens: int, finish: str | None = None, details: bool = False, **usage: Any) -> bytes:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish, "matched_stop": None}
    counts: dict[str, Any] = {"prompt_tokens": 8, "total_tokens": 8 + tokens, "completion_tokens": tokens}
    counts |= {"prompt_tokens_details": None} if details else {}
    counts |= {"reasoning_tokens": 0}
    counts |= {"completion_tokens_details": None} if details else {}
    frame = {"id": "f" * 32, "object": "text_completion", "created": 1796055420, "model": "m"}
    return event({**frame, "choices": [choice], "usage": {**counts, **usage}})


def native(text: str, tokens: int, finish: bool = False) -> bytes:
    meta = {"id": "i", "finish_reason": {"type": "length", "length": tokens} if finish else None, "prompt_tokens": 8}
    return event({"text": text, "output_ids": [1] * tokens, "meta_info": {**meta, "completion_tokens": tokens}})


TRAP = '"}],"usage":{"completion_tokens":99,"finish_reason":null,"text":"","error":{"message":"x"}}\n\n\r\n0\r\n\r\n'
text = st.one_of(st.sampled_from([" 400", "", "é", '"', "\\", '\\"', TRAP]), st.text(max_size=8))
odd = st.sampled_from(
    [
        b": ping\n\n",
        event({"error": {"message": "boom", "code": 500}}),
        b"data: {not json\n\n",
        b'event: error\ndata: {"message":"late"}\n\n',
        completion("x"),
        ordinary("x", 3, prompt_tokens=9),
        ordinary("x", 3).replace(b'"text":"x"', b'"text":"x","text":"y"'),
        ordinary("x", 3).replace(b'"text":"x"', b'"text":"x","error":{"message":"hidden"},"z":"y"'),
        ordinary("x", 3).replace(b'"matched_stop":null', b'"matched_stop": null'),
        ordinary("x", 3).replace(b'"text":"x"', b'"text":"x\r"'),
        b"data: 1\ndata: 2\n\n",
        DONE,
    ]
)


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """The events of an answer, good or not."""
    tokens, events = 0, []
    for one in draw(st.lists(text, max_size=12)):
        tokens += draw(st.sampled_from([1, 1, 1, 1, 0, 4]))
        events.append(ordinary(one, tokens))
    if draw(st.booleans()):
        events.insert(draw(st.integers(0, len(events))), draw(odd))
    usage = event({"choices": [], "usage": {"prompt_tokens": 8, "completion_tokens": tokens + 1}})
    end = [ordinary(" a", tokens + 1, "length"), usage, DONE, DONE]
    return events + end[: draw(st.sampled_from([0, 1, 2, 3, 3, 3, 3, 4]))]


@st.composite
def chunkings(draw: st.DrawFn, events: list[bytes]) -> list[bytes]:
    """The body in chunks: one for each event, all in one, or cut anywhere."""
    how = draw(st.sampled_from(["events", "events", "one", "anywhere"]))
    body = b"".join(events)
    chunks = events if how == "events" else [body]
    if how == "anywhere":
        chunks = cut_at(body, draw(st.lists(st.integers(0, 5000), max_size=8)))
    return [data for data in chunks if data]


@st.composite
def wire_reads(draw: st.DrawFn, wire: bytes, chunks: list[bytes]) -> list[bytes]:
    """The bytes of an answer as they are read: chunk by chunk, some chunks together, or cut anywhere."""
    how = draw(st.sampled_from(["chunks", "chunks", "together", "anywhere"]))
    if how == "anywhere":
        return cut_at(wire, draw(st.lists(st.integers(0, len(wire)), max_size=10)))
    pieces = [CHUNKED, *map(chunk, chunks), LAST]
    if how == "chunks":
        return pieces
    joints = draw(st.lists(st.integers(0, len(pieces)), max_size=10))
    edges = sorted({0, len(pieces), *joints})
    return [b"".join(pieces[a:b]) for a, b in itertools.pairwise(edges)]


@settings(max_examples=300)
@given(data=st.data())
def test_every_answer_is_what_the_strict_decoder_says_with_the_stamp_of_the_read_that_completed_it(
    data: st.DataObject,
) -> None:
    chunks = data.draw(streams().flatmap(chunkings))
    wire, body = on_the_wire(chunks)
    reads = [piece for piece in data.draw(wire_reads(wire, chunks)) if piece]
    got = receive(reads, close=False)
    assert got.over_by_bytes
    event_s, told, verdict = byte_by_byte(body, reads, False) if body else ([], [], OpenAIStream().finish()[1])
    assert (got.told, got.event_s, got.verdict) == (told, event_s, verdict)
    if verdict.kind is None:
        assert got.seemed_good


@settings(max_examples=100)
@given(data=st.data())
def test_native_answers_too(data: st.DataObject) -> None:
    tokens, written, chunks = 0, "", []
    for one in data.draw(st.lists(text, max_size=8)):
        tokens += data.draw(st.sampled_from([1, 1, 0, 3]))
        written += one
        chunks.append(native(written, tokens))
    chunks += [native(written + "z", tokens + 1, finish=True), DONE]
    wire, body = on_the_wire(chunks)
    reads = [piece for piece in data.draw(wire_reads(wire, chunks)) if piece]
    got = receive(reads, native=True, close=False)
    assert (got.event_s, got.told, got.verdict) == byte_by_byte(body, reads, True)
    assert got.verdict.kind is None


@settings(max_examples=60)
@given(st.integers(2, 9), st.lists(st.integers(0, 3000), max_size=12))
def test_a_long_answer_decoded_while_it_streams_is_the_same(slice_reads: int, cuts: list[int]) -> None:
    chunks = [*(ordinary(" a", n) for n in range(1, 12)), ordinary(" a", 12, "length"), DONE]
    wire, body = on_the_wire(chunks)
    reads = [piece for piece in cut_at(wire, cuts) if piece]
    answer, step = Answer(native=False), 0
    monkey = pytest.MonkeyPatch()
    monkey.setattr(answer_module, "SLICE_READS", slice_reads)
    try:
        for step, data in enumerate(reads):
            answer.take(data, float(step))
            answer.digest()
        while not answer.digest():
            pass
    finally:
        monkey.undo()
    assert (answer.event_s, answer.told, answer.verdict) == byte_by_byte(body, reads, False)


def test_much_that_is_kept_is_decoded_while_the_answer_streams() -> None:
    long = "x" * 3000
    events = [native(long * n, n) for n in range(1, 40)]
    got = receive(
        [CHUNKED, *map(chunk, events), chunk(native(long * 40, 40, finish=True)), chunk(DONE) + LAST], native=True
    )
    assert got.relieved > 5
    assert got.told == list(range(1, 41))
    assert got.event_s == [float(n) for n in range(1, 41)]


def test_junk_found_while_an_answer_streams_ends_it_at_once() -> None:
    events = [chunk(native("x" * 3000 * n, n)) for n in range(1, 20)]
    got = receive([CHUNKED, *events[:5], b"zz\n\n\r\n", *events[5:]], native=True, close=False)
    assert got.over_by_bytes
    assert (got.verdict.kind, got.reusable) == ("cut", False)


@pytest.mark.parametrize(("details", "jump"), [(False, 1), (True, 1), (True, 4)])
def test_what_sglang_writes_is_ordinary(details: bool, jump: int) -> None:
    """Or else nothing would be fast, and no other test would show it."""
    chunks = [chunk(ordinary(t, jump * n, details=details)) for n, t in enumerate([" 400", '"\\\n', "", "é"] * 50, 1)]
    last = [chunk(ordinary("a", 999, "length")), chunk(DONE)]
    assert skim(chunks + last, 0) == [jump * n for n in range(1, 201)]
    assert skim([c.removesuffix(EVENT_END) for c in chunks + last], 0, b"") == [jump * n for n in range(1, 201)]
    assert skim(chunks, jump) == []


def recorded(name: str) -> list[bytes]:
    """Head and chunks of an answer of SGLang 0.5.23 on the CPU, with the bytes of its connection."""
    head, body = (SAMPLES / name).read_bytes().split(b"\r\n\r\n", 1)
    return [head + b"\r\n\r\n", *(part + EVENT_END for part in body.split(EVENT_END)[:-1]), LAST]


@pytest.mark.parametrize(("name", "tokens"), [("v1_completions_usage.http", 24), ("generate.http", 12)])
@settings(max_examples=40)
@given(data=st.data())
def test_recorded_answers_are_the_same_however_they_are_cut(name: str, tokens: int, data: st.DataObject) -> None:
    reads = recorded(name)
    native = name == "generate.http"
    if not native:
        assert skim(reads[1:-1], 0) == list(range(1, tokens))
    whole = receive(reads, native=native, close=False)
    assert whole.told == list(range(1, tokens + 1))
    assert whole.event_s == [float(n) for n in range(1, tokens + 1)]
    assert (whole.verdict.kind, whole.verdict.warning, whole.verdict.output_tokens) == (None, None, tokens)
    wire = b"".join(reads)
    got = receive(cut_at(wire, data.draw(st.lists(st.integers(0, len(wire)), max_size=10))), native=native, close=False)
    assert (got.told, got.verdict, got.reusable) == (whole.told, whole.verdict, False)


def test_a_recorded_refusal_keeps_its_message() -> None:
    got = receive([(SAMPLES / "too_long.http").read_bytes()])
    assert (got.verdict.kind, got.verdict.code) == ("http", 400)
    assert "longer than the model's context length" in (got.verdict.message or "")


# Frames


def test_a_head_is_cut_anywhere_and_interim_ones_are_skipped() -> None:
    body = b"".join(map(chunk, good_answer(4))) + LAST
    wire = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + CHUNKED + body
    for place in range(1, len(wire)):
        got = receive([wire[:place], wire[place:]], close=False)
        assert (got.verdict.kind, got.verdict.output_tokens, got.reusable) == (None, 4, True)


BODY = b"".join(good_answer(4))
FRAMES = {
    "content-length": (HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY, True),
    "until close": (HEAD + b"\r\n" + BODY, False),
    "HTTP/1.0": (HEAD.replace(b"1.1", b"1.0") + b"\r\n" + BODY, False),
    "close asked for": (HEAD + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(BODY) + LAST, False),
    "trailer": (CHUNKED + chunk(BODY) + b"0\r\nx-checksum: 1\r\n\r\n", True),
    "chunk extension": (CHUNKED + b"%x;a=b\r\n%s\r\n000;c\r\n\r\n" % (len(BODY), BODY), True),
    "trailing bytes": (CHUNKED + chunk(BODY) + LAST + b"junk", False),
}


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("by_bytes", [True, False])
def test_every_frame_of_a_body_is_understood(name: str, by_bytes: bool) -> None:
    wire, reusable = FRAMES[name]
    until_close = name in ("until close", "HTTP/1.0")
    got = receive(
        [wire[i : i + 1] for i in range(len(wire))] if by_bytes else [wire], close=None if until_close else False
    )
    assert (got.verdict.kind, got.verdict.output_tokens, got.verdict.warning) == (None, 4, None)
    assert got.over_by_bytes is not until_close
    # Byte by byte, what trails comes after the end, and closes the connection then.
    assert got.reusable is reusable


@pytest.mark.parametrize("status", [400, 503])
def test_a_refusal_is_one_whatever_its_frame(status: int) -> None:
    message = json.dumps({"error": {"message": "too long", "code": status}}).encode()
    start = b"HTTP/1.1 %d Bad Luck\r\ncontent-type: application/json\r\n" % status
    for wire in (
        start + b"content-length: %d\r\n\r\n" % len(message) + message,
        start + b"transfer-encoding: chunked\r\n\r\n" + chunk(message) + LAST,
        start + b"\r\n" + message,
    ):
        got = receive([wire])
        assert (got.verdict.kind, got.verdict.code, got.seemed_good) == ("http", status, False)
        assert got.verdict.message == f"HTTP {status} Bad Luck: too long"


def test_a_redirect_is_no_success() -> None:
    got = receive(
        [b"HTTP/1.1 307 Temporary Redirect\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n"], close=False
    )
    assert (got.verdict.kind, got.verdict.code) == ("http", 307)


def test_an_answer_of_json_instead_of_a_stream_fails_with_its_beginning() -> None:
    body = b'{"error":{"message":"no stream for you"}}'
    got = receive(
        [b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 41\r\n\r\n" + body], close=False
    )
    assert got.verdict.kind == "empty"
    assert "no stream for you" in (got.verdict.message or "")


# Bad streams

GOOD = [CHUNKED, *map(chunk, good_answer(6)), LAST]
RESET = ConnectionResetError("reset by peer")


def bad(reads: list[bytes], close: Exception | bool | None = None) -> Verdict:
    got = receive(reads, close=close)
    assert not got.seemed_good
    assert not got.reusable
    assert got.verdict.output_tokens is None
    return got.verdict


def test_a_reset_before_between_and_in_chunks_is_a_cut_that_says_so() -> None:
    wire = b"".join(GOOD)
    for place in range(0, wire.index(b'"finish_reason":"length"'), 7):
        verdict = bad([wire[:place]], RESET)
        assert verdict.kind == "cut"
        assert "reset by peer" in (verdict.message or "")


def test_a_cut_in_a_chunks_size_is_a_cut() -> None:
    assert bad([*GOOD[:3], b"1"]).kind == "cut"
    assert bad([*GOOD[:3], b"1f\r"]).kind == "cut"


@pytest.mark.parametrize(
    "junk", [b"zz\r\n", b"\r\n\r\n", b"data: {}\n\n", b"-5\r\n", b"HTTP/1.1 500 Oops\r\n\r\n", b"\xff\xfe"]
)
def test_junk_where_a_chunk_begins_is_a_cut(junk: bytes) -> None:
    for reads in ([*GOOD[:3], junk, *GOOD[3:]], [b"".join([*GOOD[:3], junk, *GOOD[3:]])]):
        # Its end may look clean, but the record has the last word.
        verdict = receive(reads).verdict
        assert (verdict.kind, verdict.output_tokens) == ("cut", None)


def test_a_chunk_longer_than_it_says_is_a_cut_even_with_a_clean_end() -> None:
    wrong = chunk(good_answer(6)[2]).replace(b"\r\n", b"x\r\n", 1)
    got = receive([*GOOD[:3], wrong, *GOOD[4:]])
    assert got.verdict.kind == "cut"
    short = GOOD[3].replace(b'" a"', b'" ab"')
    assert receive([*GOOD[:3], short, *GOOD[4:]]).verdict.kind == "cut"


def test_no_done_is_a_success_with_a_warning_and_no_last_chunk_a_cut() -> None:
    got = receive([*GOOD[:-2], LAST], close=False)
    assert (got.verdict.kind, got.verdict.output_tokens) == (None, 6)
    assert "[DONE]" in (got.verdict.warning or "")
    assert bad(GOOD[:-2]).kind == "cut"


def test_a_body_without_its_last_chunk_is_whole_after_done() -> None:
    got = receive(GOOD[:-1])
    assert (got.verdict.kind, got.verdict.output_tokens, got.reusable) == (None, 6, False)
    assert "after [DONE]" in (got.verdict.warning or "")


def test_two_last_chunks_end_the_answer_once_and_close_the_connection() -> None:
    got = receive([*GOOD, LAST], close=False)
    assert (got.verdict.kind, got.verdict.output_tokens) == (None, 6)
    assert got.transport.aborted


def test_an_error_inside_a_stream_with_a_clean_end_fails_in_the_record() -> None:
    error = chunk(event({"error": {"message": "boom", "code": 500}}))
    got = receive([*GOOD[:3], error, *GOOD[3:]], close=False)
    assert (got.verdict.kind, got.verdict.code, got.verdict.output_tokens) == ("stream_error", 500, None)
    assert not receive([*GOOD[:6], error, *GOOD[6:]], close=False).seemed_good


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=6), st.booleans())
def test_no_bytes_at_all_raise_or_look_like_a_success(junk: list[bytes], after_head: bool) -> None:
    got = receive([CHUNKED, *junk] if after_head else junk)
    assert got.verdict.kind is not None
    assert not got.seemed_good


# Clocks


def test_a_step_of_the_wall_clock_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing between socket and metrics reads it: here it raises."""

    def wall() -> float:
        raise AssertionError("the wall clock was read")

    for name in ("time", "time_ns", "localtime", "gmtime"):
        monkeypatch.setattr(time, name, wall)
    got = receive(GOOD, close=False)
    assert got.event_s == [float(n) for n in range(1, 7)]
