"""What is a secret, and that it is blotted out."""

from __future__ import annotations

import pytest

from launchers.base import LaunchSpec
from launchers.errors import BadArgument
from launchers.secrets import redact, refuse_secret_flags, secret_values


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


@pytest.mark.parametrize("name", ["api-key", "admin_api_key", "ssl-keyfile-password", "--api-key"])
def test_flags_that_are_secrets_are_refused(name: str) -> None:
    with pytest.raises(BadArgument, match="process list"):
        refuse_secret_flags(LaunchSpec("m", {name: "x"}))
    refuse_secret_flags(LaunchSpec("m", {name: None, "max-running-requests": 4}))
