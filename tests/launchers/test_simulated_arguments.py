"""The twin's command line: SGLang's flags, refused as argparse refuses them."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchers.simulated.__main__ import main
from launchers.simulated.arguments import defaults, parse_arguments


def test_flags_are_typed_and_named_with_dashes() -> None:
    words = "--profile spec-wins --startup-speedup 50 --model-path m --tp-size 8 --mem-fraction-static 0.85"
    words += " --trust-remote-code --schedule-policy lpm --cuda-graph-bs-decode 1 2 4"
    parsed = parse_arguments(words.split())
    assert (parsed.profile, parsed.startup_speedup) == ("spec-wins", 50.0)
    assert parsed.flags == {
        "model-path": "m",
        "tp-size": 8,
        "mem-fraction-static": 0.85,
        "trust-remote-code": True,
        "schedule-policy": "lpm",
        "cuda-graph-bs-decode": [1, 2, 4],
    }


def test_unambiguous_prefixes_stand_for_their_flag() -> None:
    parsed = parse_arguments(["--model-path", "m", "--tp", "4", "--max-running", "7"])
    assert parsed.flags == {"model-path": "m", "tp-size": 4, "max-running-requests": 7}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--no-such-flag 3", "unrecognized arguments: --no-such-flag 3"),
        ("--max-running-requests abc", "argument --max-running-requests: invalid int value: 'abc'"),
        ("--mem-fraction-static x", "argument --mem-fraction-static: invalid float value: 'x'"),
        ("--attention-backend nonsense", "argument --attention-backend: invalid choice: 'nonsense' (choose from"),
        ("--cuda-graph-bs 8", "ambiguous option: --cuda-graph-bs could match"),
        ("--cuda-graph-max-bs 8", "ambiguous option: --cuda-graph-max-bs could match"),
        ("--enable-ep-moe", "unrecognized arguments: --enable-ep-moe"),
        ("--enable-deepep-moe", "unrecognized arguments: --enable-deepep-moe"),
        ("--torchao-config int4wo", "unrecognized arguments: --torchao-config int4wo"),
        ("--nsa-prefill-backend flashmla_kv", "unrecognized arguments: --nsa-prefill-backend flashmla_kv"),
        ("--enable-piecewise-cuda-graph", "unrecognized arguments: --enable-piecewise-cuda-graph"),
        ("--tp-size", "argument --tp-size/--tensor-parallel-size: expected one argument"),
    ],
)
def test_what_sglang_does_not_know_ends_with_usage_and_exit_2(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments(["--model-path", "m", *words.split()])
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith("usage: sglang serve [-h] --model-path MODEL_PATH")
    assert f"\nsglang serve: error: {message}" in printed


def test_a_model_path_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments(["--tp-size", "2"])
    assert ended.value.code == 2
    assert "the following arguments are required: --model-path" in capsys.readouterr().err


def test_a_configuration_file_stands_before_the_command_line_which_wins(tmp_path: Path) -> None:
    config = tmp_path / "server.yaml"
    config.write_text(
        "api-key: '0123'\ntp-size: 4\nenable-metrics: true\nlog-requests: false\ncuda-graph-bs-decode: [1, 2]\n"
        "json-model-override-args: {a: 1}\n"
    )
    parsed = parse_arguments(["--model-path", "m", "--config", str(config), "--tp-size", "2"])
    assert parsed.flags == {
        "model-path": "m",
        "api-key": "0123",
        "tp-size": 2,
        "enable-metrics": True,
        "cuda-graph-bs-decode": [1, 2],
        "json-model-override-args": '{"a": 1}',
    }
    # As SGLang tells its command: what the file holds, and not where it is.
    assert parsed.launch_command == (
        "--api-key 0123 --tp-size 4 --enable-metrics --cuda-graph-bs-decode 1 2 "
        '--json-model-override-args {"a": 1} --model-path m --tp-size 2'
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config", "no-such.yaml"], "not found: no-such.yaml"),
        (["--config", "key.txt"], "must be YAML format, got: .txt"),
        (["--config"], "No config file specified"),
        (["--config", "a.yaml", "--config", "b.yaml"], "Multiple config files"),
    ],
)
def test_a_configuration_file_that_cannot_be_read_ends_with_a_traceback(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--model-path", "m", *words]) == 1
    assert message in capsys.readouterr().err


def test_defaults_are_sglangs() -> None:
    values = defaults()
    assert values["schedule_policy"] == "fcfs"
    assert values["max_prefill_tokens"] == 16384
    assert values["decode_log_interval"] == 40
    assert values["max_running_requests"] is None
    assert values["enable_metrics"] is False
    assert values["dllm_fdfo"] is True
    assert len(values) > 500
