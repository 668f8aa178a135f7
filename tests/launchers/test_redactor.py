"""Secrets are blotted out of a stream, wherever it is cut, and nothing else is held back."""

from __future__ import annotations

import random

import pytest

from launchers.redactor import BLOT, Redactor

KEY = b"0123456789abcdef"


def through(secrets: list[bytes], *chunks: bytes) -> bytes:
    redactor = Redactor(secrets)
    return b"".join([*map(redactor.feed, chunks), redactor.flush()])


def test_a_secret_cut_anywhere_is_blotted_out() -> None:
    text = b"'api_key': '" + KEY + b"', 'port': 30000\n"
    for cut in range(len(text) + 1):
        assert through([KEY], text[:cut], text[cut:]) == b"'api_key': '" + BLOT + b"', 'port': 30000\n"


def test_a_secret_that_comes_byte_by_byte_is_blotted_out() -> None:
    text = b"x" + KEY + KEY + b"y"
    assert through([KEY], *(bytes([byte]) for byte in text)) == b"x" + BLOT + BLOT + b"y"


@pytest.mark.parametrize(
    ("secrets", "text", "expected"),
    [
        ([b"abcdef", b"abcdefgh"], b"abcdefgh abcdef", BLOT + b" " + BLOT),
        # A beginning within a beginning.
        ([b"aab"], b"aaab aab", b"a" + BLOT + b" " + BLOT),
        ([b"cdef", b"abcdefgh"], b"abcdefgX", b"ab" + BLOT + b"gX"),
        ([b"", KEY], b"plain", b"plain"),
        ([], b"plain", b"plain"),
    ],
)
def test_of_overlapping_secrets_none_leaves_a_rest(secrets: list[bytes], text: bytes, expected: bytes) -> None:
    assert through(secrets, text) == expected
    for cut in range(len(text)):
        assert through(secrets, text[:cut], text[cut:]) == expected


def test_what_is_no_secret_passes_at_once_also_without_an_end_of_line() -> None:
    redactor = Redactor([KEY])
    bar = b"\rLoading safetensors checkpoint shards:  50% Completed | 1/2"
    assert redactor.feed(bar) == bar
    assert redactor.feed(b"token 0123") == b"token "
    # It was the beginning of another word.
    assert redactor.feed(b"!") == b"0123!"


def test_the_end_of_a_stream_is_not_lost() -> None:
    redactor = Redactor([KEY])
    assert redactor.feed(b"0123") == b""
    assert redactor.flush() == b"0123"


def test_any_cuts_of_any_text_give_the_same() -> None:
    source = random.Random(7)
    for _ in range(300):
        secrets = [bytes(source.choices(b"ab", k=source.randint(2, 5))) for _ in range(source.randint(1, 3))]
        text = bytes(source.choices(b"abc", k=60))
        cuts = sorted(source.sample(range(60), 8))
        chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, 60], strict=True)]
        cleaned = through(secrets, *chunks)
        assert cleaned == through(secrets, text)
        assert not any(secret in part for secret in secrets for part in cleaned.split(BLOT))
