import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stream_server import DONE, completion, event, good_answer

from orchestrator.benchmark.sse import Event, SSEDecoder
from orchestrator.benchmark.stream import (
    AnswerStream,
    NativeStream,
    OpenAIStream,
    Verdict,
    estimate_tokens,
    spread,
)

SAMPLES = Path(__file__).parent / "samples"


def cut_at(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({c % (len(data) + 1) for c in cuts})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def events(chunks: list[bytes]) -> list[Event]:
    decoder = SSEDecoder()
    return [e for chunk in chunks for e in decoder.feed(chunk)] + decoder.flush()


def answer(stream: AnswerStream, chunks: list[bytes], cut: str | None = None) -> tuple[list[int], Verdict]:
    outputs = [o for chunk in chunks for o in stream.feed(chunk)]
    late, verdict = stream.finish(cut)
    return outputs + late, verdict


def openai(*chunks: bytes, cut: str | None = None) -> tuple[list[int], Verdict]:
    return answer(OpenAIStream(), list(chunks), cut)


# The decoder of events

line_text = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12)
line = st.one_of(
    line_text.map(lambda t: f"data: {t}"),
    line_text.map(lambda t: f"data:{t}"),
    line_text.map(lambda t: f": {t}"),
    st.sampled_from([":", "id: 7", "event: error", "retry: 10", "data", "unknown: field", "", ""]),
)


@given(st.lists(line, max_size=20), st.sampled_from(["\n", "\r\n", "\r"]), st.lists(st.integers(0, 500)))
def test_cutting_an_event_stream_anywhere_changes_nothing(lines: list[str], end: str, cuts: list[int]) -> None:
    data = (end.join(lines) + end).encode()
    by_bytes = events([data[i : i + 1] for i in range(len(data))])
    assert events(cut_at(data, cuts)) == by_bytes
    # And it is what the lines say, whatever ends them.
    assert events([("\n".join(lines) + "\n").encode()]) == by_bytes


@given(st.lists(st.binary(max_size=30).filter(lambda b: b"\n" not in b and b"\r" not in b), min_size=1))
def test_every_event_of_one_data_line_comes_out_as_it_went_in(data: list[bytes]) -> None:
    wire = b"".join(b"data: %s\n\n" % d for d in data)
    assert [e.data for e in events([wire])] == data


def test_data_lines_of_one_event_are_joined_and_comments_and_ids_dropped() -> None:
    wire = b": hello\n:\n\nid: 7\nevent: note\ndata: a\ndata: b\n\ndata:c\r\n\r\n"
    assert events([wire]) == [Event(b"a\nb", b"note"), Event(b"c")]
    assert events([b"data: a\ndata: b\n\n", b"data: c\n\ndata: d\nid: 7\n\n"]) == [
        Event(b"a\nb"),
        Event(b"c"),
        Event(b"d"),
    ]


def test_a_crlf_cut_in_two_is_one_line_end() -> None:
    assert events([b"data: a\r", b"\n\r", b"\ndata: b\r", b"\n", b"\r\n"]) == [Event(b"a"), Event(b"b")]


# Recorded from SGLang 0.5.23 on CPU

RECORDED = {
    "v1_completions_stream.txt": (OpenAIStream, " 400 400ll 1236628872", 8, 4, [0] * 8),
    "v1_chat_stream.txt": (OpenAIStream, " 952591460147114981459581\ufffd", 8, 19, [0] * 8),
    "generate_stream.txt": (NativeStream, " 400 400ll 1236628872", 8, 4, [1, 2, 3, 4, 5, 6, 7, 8]),
}


@pytest.mark.parametrize("name", RECORDED)
@given(cuts=st.lists(st.integers(0, 5000), max_size=12))
def test_recorded_streams_decode_right_however_they_are_cut(name: str, cuts: list[int]) -> None:
    kind, text, tokens, prompt_tokens, told = RECORDED[name]
    stream = kind()
    outputs, verdict = answer(stream, cut_at((SAMPLES / name).read_bytes(), cuts))
    assert outputs == told
    assert stream.text == text
    assert (verdict.kind, verdict.warning, verdict.finish_reason) == (None, None, "length")
    assert (verdict.output_tokens, verdict.prompt_tokens, verdict.tokens_estimated) == (tokens, prompt_tokens, False)


def test_the_native_stream_tells_cached_tokens_and_verify_steps() -> None:
    _, verdict = answer(NativeStream(), [(SAMPLES / "generate_stream.txt").read_bytes()])
    assert (verdict.cached_tokens, verdict.spec_verify_steps) == (3, None)
    meta = {"completion_tokens": 512, "spec_verify_ct": 128, "finish_reason": {"type": "length", "length": 512}}
    _, verdict = answer(NativeStream(), [event({"text": "a", "meta_info": meta}), DONE])
    assert (verdict.output_tokens, verdict.spec_verify_steps) == (512, 128)


@pytest.mark.parametrize("api", ["completion", "native"])
def test_reading_the_count_off_an_event_equals_parsing_it(api: str) -> None:
    """Spaces after the separators force the parser; the text holds what looks like a count."""
    trap = 'x","completion_tokens":99,"finish_reason":null,"text":"'
    payloads = []
    for n, tokens in enumerate([1, 4, 4, 5, 9], 1):
        finish = {"type": "stop"} if n == 5 else None
        if api == "native":
            meta = {"id": "i", "finish_reason": finish, "prompt_tokens": 3, "completion_tokens": tokens}
            payloads.append({"text": trap * n, "output_ids": [1] * tokens, "meta_info": meta})
        else:
            choice = {"index": 0, "text": trap if n != 3 else "", "finish_reason": finish and "stop"}
            usage = {"prompt_tokens": 3, "completion_tokens": tokens}
            payloads.append({"id": "i", "choices": [choice], "usage": usage})
    kind = OpenAIStream if api == "completion" else NativeStream
    compact = answer(kind(), [*map(event, payloads), DONE])
    spaced = answer(kind(), [*(b"data: " + json.dumps(p).encode() + b"\n\n" for p in payloads), DONE])
    assert compact == spaced
    assert compact[0] == [1, 4, 5, 9]
    assert compact[1].output_tokens == 9


# Frames without content

CAFE = (
    event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "usage": None})
    + b": keep-alive\n\n:\nid: 7\n"
    + b'data: {"choices":[{"index":0,"delta":{"content":"Caf\xc3\xa9"},"finish_reason":null}],"usage":null}\n\n'
    + event({"choices": [{"index": 0, "delta": {"content": " noir"}, "finish_reason": None}], "usage": None})
    + event({"choices": [{"index": 0, "delta": {"content": None}, "finish_reason": "length"}], "usage": None})
    + event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}})
    + DONE
)


@given(st.lists(st.integers(0, len(CAFE)), max_size=8))
def test_frames_without_content_are_no_output_and_characters_cut_in_two_stay_whole(cuts: list[int]) -> None:
    split_character = CAFE.index(b"\xa9")
    stream = OpenAIStream()
    outputs, verdict = answer(stream, cut_at(CAFE, [*cuts, split_character]))
    assert stream.text == "Café noir"
    assert outputs == [0, 0]
    assert (verdict.kind, verdict.output_tokens, verdict.tokens_estimated) == (None, 7, False)


def test_the_first_output_is_the_first_text_not_the_role_or_a_comment() -> None:
    stream = OpenAIStream()
    first, rest = CAFE.split(b"data: {", 2)[1:]
    assert stream.feed(b"data: {" + first) == []
    assert stream.feed(b"data: {" + rest) == [0, 0]


def test_without_usage_the_tokens_are_counted_from_the_joined_text_and_flagged() -> None:
    parts = [completion("ab"), completion("cdefgh"), completion("ij", finish="stop"), DONE]
    _, verdict = answer(OpenAIStream(count_tokens=lambda text: len(text)), parts)
    assert (verdict.kind, verdict.output_tokens, verdict.tokens_estimated) == (None, 10, True)
    _, verdict = openai(*parts)
    # Ten bytes are about three tokens, and three events hold three at least.
    assert (verdict.output_tokens, verdict.tokens_estimated) == (3, True)
    assert estimate_tokens("é" * 6) == 3


def test_tokens_without_text_are_output_when_the_server_counts_them() -> None:
    outputs, verdict = openai(completion("", 1), completion("", 2, "length"), DONE)
    assert outputs == [1, 2]
    assert (verdict.kind, verdict.output_tokens) == (None, 2)


REASONED = (
    event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "usage": None})
    + event({"choices": [{"index": 0, "delta": {"reasoning_content": "Let me"}}], "usage": {"completion_tokens": 2}})
    + event({"choices": [{"index": 0, "delta": {"reasoning_content": " see."}}], "usage": {"completion_tokens": 4}})
    + event({"choices": [{"index": 0, "delta": {"reasoning_content": None, "content": "42"}}],
             "usage": {"completion_tokens": 5}})
    + event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"completion_tokens": 6}})
)  # fmt: skip


@pytest.mark.parametrize(
    "told",
    [
        {"reasoning_tokens": 4, "completion_tokens_details": None},
        {"completion_tokens_details": {"reasoning_tokens": 4}},
    ],
)
def test_thoughts_are_output_and_the_first_of_them_is_the_first_token(told: dict[str, object]) -> None:
    usage = event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 6, **told}})
    stream = OpenAIStream()
    role, rest = REASONED.split(b"data: {", 2)[1:]
    assert stream.feed(b"data: {" + role) == []
    assert stream.feed(b"data: {" + rest)[0] == 2
    stream.feed(usage + DONE)
    _, verdict = stream.finish()
    assert (verdict.output_tokens, verdict.reasoning_tokens, verdict.kind) == (6, 4, None)


def test_a_server_that_tells_no_thoughts_had_none_that_are_known() -> None:
    assert openai(*good_answer(4))[1].reasoning_tokens is None
    meta = {"completion_tokens": 3, "reasoning_tokens": 2, "finish_reason": {"type": "length", "length": 3}}
    _, verdict = answer(NativeStream(), [event({"text": "a", "meta_info": meta}), DONE])
    assert verdict.reasoning_tokens == 2


# Failures after HTTP 200


def test_an_error_object_before_done_fails_the_request() -> None:
    error = {"error": {"message": "TimeoutError", "type": "GatewayTimeout", "code": 504}}
    _, verdict = openai(event(error), DONE)
    assert (verdict.kind, verdict.code, verdict.output_tokens) == ("stream_error", 504, None)
    assert verdict.message == "GatewayTimeout: TimeoutError"


def test_an_error_after_good_chunks_credits_nothing() -> None:
    good = good_answer(9)[:5]
    _, verdict = openai(*good, event({"error": {"message": "boom", "code": 500}}), DONE)
    assert (verdict.kind, verdict.code, verdict.message) == ("stream_error", 500, "boom")
    assert verdict.output_tokens is None


def test_a_refusal_as_the_first_event_keeps_its_code() -> None:
    refusal = {"error": {"object": "error", "type": "BadRequestError", "code": 400, "message": "too long"}}
    _, verdict = openai(event(refusal))
    assert (verdict.kind, verdict.code) == ("stream_error", 400)
    bare = {"object": "error", "type": "BadRequestError", "code": 400, "message": "too long"}
    assert openai(event(bare))[1] == verdict


def test_a_clean_end_without_finish_reason_and_done_is_a_cut() -> None:
    _, verdict = openai(*good_answer(9)[:5])
    assert (verdict.kind, verdict.output_tokens) == ("cut", None)


def test_a_broken_body_is_a_cut_and_says_how() -> None:
    _, verdict = openai(*good_answer(9)[:5], cut="ClientPayloadError: not completed")
    assert (verdict.kind, verdict.output_tokens) == ("cut", None)
    assert "not completed" in (verdict.message or "")


def test_an_unfinished_last_event_is_not_output_after_a_cut() -> None:
    outputs, _ = openai(completion(" a"), b'data: {"choices":[{"index":0,"te', cut="broken")
    assert outputs == [0]


@pytest.mark.parametrize("body", [b"", b": ping\n\n", DONE, event({"choices": [], "usage": {"completion_tokens": 4}})])
def test_an_answer_without_output_is_empty(body: bytes) -> None:
    outputs, verdict = openai(body)
    assert outputs == []
    assert (verdict.kind, verdict.output_tokens) == ("empty", None)


def test_an_answer_that_is_no_stream_shows_its_beginning() -> None:
    _, verdict = openai(b'{"detail": "not here"}')
    assert verdict.kind == "empty"
    assert "not here" in (verdict.message or "")


def test_only_done_missing_is_a_success_with_a_warning() -> None:
    _, verdict = openai(*good_answer(4)[:-1])
    assert (verdict.kind, verdict.output_tokens) == (None, 4)
    assert "[DONE]" in (verdict.warning or "")


def test_done_without_its_blank_line_counts() -> None:
    _, verdict = openai(*good_answer(4)[:-1], b"data: [DONE]")
    assert (verdict.kind, verdict.warning) == (None, None)


def test_done_without_finish_reason_needs_the_usage_to_be_whole() -> None:
    _, counted = openai(completion(" a", 1), completion(" b", 2), DONE)
    assert (counted.kind, counted.output_tokens) == (None, 2)
    assert "finish_reason" in (counted.warning or "")
    assert openai(completion(" a"), completion(" b"), DONE)[1].kind == "cut"


def test_a_break_after_done_is_a_success_with_a_warning() -> None:
    _, verdict = openai(*good_answer(4), cut="reset by peer")
    assert (verdict.kind, verdict.output_tokens) == (None, 4)
    assert "reset by peer" in (verdict.warning or "")


def test_an_error_that_is_a_mere_string_fails_the_request() -> None:
    _, verdict = openai(completion(" a", 1), event({"error": "some string"}), DONE)
    assert (verdict.kind, verdict.message, verdict.code) == ("stream_error", "some string", None)


def test_an_error_beside_good_output_fails_the_request() -> None:
    choice = {"index": 0, "text": "a", "finish_reason": None}
    payload = {"id": "i", "choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    _, verdict = openai(event({**payload, "error": {"message": "boom"}}), *good_answer(4)[1:])
    assert (verdict.kind, verdict.message) == ("stream_error", "boom")


def test_an_error_that_is_null_is_none() -> None:
    ok = {"choices": [{"index": 0, "text": "a", "finish_reason": "stop"}], "error": None}
    assert openai(event(ok), DONE)[1].kind is None


def test_an_aborted_request_is_an_error() -> None:
    reason = {"type": "abort", "message": "KV pool is full", "status_code": 503}
    meta = {"finish_reason": reason, "completion_tokens": 3}
    _, verdict = answer(NativeStream(), [event({"text": "abc", "meta_info": meta}), DONE])
    assert (verdict.kind, verdict.code, verdict.message) == ("stream_error", 503, "KV pool is full")
    assert openai(completion(" a", 1, "abort"), DONE)[1].kind == "stream_error"


@pytest.mark.parametrize("data", ["{not json", "[1]", '"text"', "17", '{"choices":[17]}', '{"choices":{"a":1}}'])
def test_an_event_of_another_form_is_an_error_not_an_exception(data: str) -> None:
    for kind in (OpenAIStream, NativeStream):
        _, verdict = answer(kind(), [f"data: {data}\n\n".encode(), DONE])
        assert verdict.kind == "stream_error"
        assert verdict.message


@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_at_all_raise(junk: bytes, as_data: bool) -> None:
    for kind in (OpenAIStream, NativeStream):
        _, verdict = answer(kind(), [b"data: " + junk + b"\n\n" if as_data else junk])
        assert verdict.kind is not None


# A chunk is not a token


def test_tokens_per_event_are_the_servers_own_where_it_tells_and_else_spread_evenly() -> None:
    assert spread([3, 5, 12], 12) == (3, 5, 12)
    assert spread([0, 0, 0, 0], 12) == (3, 6, 9, 12)
    assert spread([3, 0, 0], 12) == (4, 8, 12)
    # Tokens that no event announced came with the last one.
    assert spread([3, 5], 6) == (3, 6)
    assert spread([], 6) == ()
