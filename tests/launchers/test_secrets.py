"""What is a secret, and that it is blotted out."""

from __future__ import annotations

import json

import pytest

from launchers.base import LaunchSpec
from launchers.errors import BadArgument
from launchers.secrets import (
    BLOT,
    redact,
    redact_environment,
    redact_info,
    refuse_secret_flags,
    secret_values,
)


def test_values_are_secret_by_the_name_of_their_variable() -> None:
    env = {
        "HF_TOKEN": "hf_abcdef",
        "AWS_SECRET_ACCESS_KEY": "aaaaaaaa",
        "db_password": "p4ssw0rd",
        "NCCL_PROTO": "LL128",
        "TOKENIZERS_PARALLELISM": "a long value",
        "USE_HF_TOKEN": "true",
    }
    # The last one is too short to be one.
    assert secret_values(env) == {"hf_abcdef", "aaaaaaaa", "p4ssw0rd"}


def test_a_secret_within_another_does_not_leave_its_rest() -> None:
    assert redact("abcdefgh and abcdef", ["abcdef", "abcdefgh"]) == "<redacted> and <redacted>"


@pytest.mark.parametrize(
    "name", ["api-key", "admin_api_key", "ssl-keyfile-password", "--api-key", "api", "ssl-keyfile-p"]
)
def test_flags_that_are_secrets_are_refused(name: str) -> None:
    with pytest.raises(BadArgument, match="process list"):
        refuse_secret_flags(LaunchSpec("m", {name: "x"}))
    refuse_secret_flags(LaunchSpec("m", {name: None, "max-running-requests": 4, "ssl-keyfile": "/k"}))


def test_a_secret_is_blotted_out_in_every_spelling() -> None:
    secret = 'two "words"\nand-lines'
    texts = [secret, repr(secret), json.dumps(secret), "a\nand-lines\n"]
    for text in texts:
        cleaned = redact(text, [secret])
        assert "words" not in cleaned
        assert "and-lines" not in cleaned


def test_an_environment_is_shown_without_what_is_secret_in_it() -> None:
    env = {"HF_TOKEN": "hf_abcdef", "URL": "https://hf_abcdef@host", "NCCL_PROTO": "LL", "LOG": "to k3y-of-server"}
    assert redact_environment(env, ["k3y-of-server"]) == {
        "HF_TOKEN": BLOT,
        "URL": f"https://{BLOT}@host",
        "NCCL_PROTO": "LL",
        "LOG": f"to {BLOT}",
    }


def test_keys_in_a_server_s_answer_are_blotted_out_however_deep() -> None:
    told = {
        "api_key": "k3y-of-server",
        "admin_api_key": None,
        "launch_command": "--api-key k3y-of-server --model-path m",
        "port": 30000,
        "internal_states": [{"admin_api_key": "another", "ssl_keyfile": "/k"}, {"words": ["k3y-of-server", 1.5]}],
    }
    assert redact_info(told, ["k3y-of-server"]) == {
        "api_key": BLOT,
        "admin_api_key": None,
        "launch_command": f"--api-key {BLOT} --model-path m",
        "port": 30000,
        "internal_states": [{"admin_api_key": BLOT, "ssl_keyfile": "/k"}, {"words": [BLOT, 1.5]}],
    }
