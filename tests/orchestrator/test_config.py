"""The values of a sweep: frozen, strict, with derived ones right."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.config import Server, SweepConfig, merge, parse_duration_s
from orchestrator.fields import value_key
from orchestrator.offered_load import Load

MINIMAL: dict[str, Any] = {
    "study": "s",
    "model": "m",
    "space": {},
    "score": {"metric": "output_tokens_per_s", "concurrency": 8},
}


def test_a_minimal_sweep_has_the_documented_defaults() -> None:
    config = SweepConfig.model_validate(MINIMAL)
    assert config.launcher.kind == "auto"
    assert config.node.gpus == 8
    assert config.workload.concurrency == (1, 8, 32, 128)
    assert config.budget.trials == 24
    assert config.sampler.kind == "tpe"
    assert [str(o) for o in config.objectives] == ["maximize output_tokens_per_s@8"]


def test_a_config_cannot_be_changed() -> None:
    config = SweepConfig.model_validate(MINIMAL)
    with pytest.raises(ValidationError):
        config.model = "other"  # type: ignore[misc]
    with pytest.raises(ValidationError):
        config.budget.trials = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("node", {"gpus": "8"}),
        ("node", {"gpus": True}),
        ("node", {"gpus": 8.0}),
        ("workload", {"level": {"min_s": "5"}}),
        ("workload", {"sampling": {"ignore_eos": 1}}),
        ("workload", {"sampling": {"ignore_eos": "yes"}}),
        ("workload", {"concurrency": ["8"]}),
        ("sampler", {"kind": "tpe", "seed": "0"}),
        ("model", 5),
        ("study", 5),
        ("budget", {"time": 7200}),
        ("score", {"metric": "output_tokens_per_s", "concurrency": "8"}),
        ("server", {"flags": {1: "a"}}),
    ],
)
def test_no_value_turns_into_one_of_another_type(key: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        SweepConfig.model_validate({**MINIMAL, key: value})


def test_the_direction_of_the_score_is_the_metrics_own() -> None:
    latency = {**MINIMAL, "score": {"metric": "ttft_ms.p99", "concurrency": 8}}
    assert SweepConfig.model_validate(latency).score.objective.direction == "minimize"
    assert SweepConfig.model_validate(MINIMAL).score.objective.direction == "maximize"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1d", 86400),
        ("1d2h3m4s", 93784),
        (" 5s ", 5),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds
    budget = {**MINIMAL, "budget": {"time": text}}
    assert SweepConfig.model_validate(budget).budget.time_s == seconds


@pytest.mark.parametrize("text", ["", "5", "h", "1.5h", "-1h", "30m1h", "2 h", "2H", "1e3s", "0s", "0h0m", "٣s x"])
def test_what_is_no_duration_is_refused_with_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match="90s"):
        parse_duration_s(text)


def test_merging_goes_to_any_depth_and_changes_neither_side() -> None:
    base = {"a": {"b": {"c": 1, "d": 2}, "e": [1, 2]}, "f": 3}
    over = {"a": {"b": {"c": 9}, "e": [3]}, "g": {"h": 1}}
    assert merge(base, over) == {"a": {"b": {"c": 9, "d": 2}, "e": [3]}, "f": 3, "g": {"h": 1}}
    assert base == {"a": {"b": {"c": 1, "d": 2}, "e": [1, 2]}, "f": 3}
    assert merge({"a": {"b": 1}}, {"a": None}) == {"a": None}


def test_values_are_one_setting_or_not() -> None:
    assert value_key(1) == value_key(1.0)
    assert value_key([1, {"b": 2, "a": 1}]) == value_key([1.0, {"a": 1, "b": 2}])
    different = [1, True, "1", "true", None, "null", [1], ["1"], 0, False, "", 1.5]
    assert len({value_key(value) for value in different}) == len(different)


@pytest.mark.parametrize("flag", ["api-key", "admin-api-key", "api", "host", "port", "nccl-port", "model-path"])
def test_flags_that_are_secret_or_the_sweeps_own_are_refused(flag: str) -> None:
    with pytest.raises(ValidationError, match="leave it out"):
        Server(flags={flag: "x"})


@pytest.mark.parametrize("name", ["HF_TOKEN", "MY_API_KEY"])
def test_a_secret_of_the_environment_is_not_written_into_a_file_that_is_kept(name: str) -> None:
    with pytest.raises(ValidationError, match=r"set it in the shell"):
        Server(env={name: "hf_planted"})


def test_a_score_may_be_that_of_an_open_loop() -> None:
    workload = {"request_rate": (2, 8.5), "concurrency": (), "slo": {"ttft_ms": 500}}
    score = {"metric": "goodput_requests_per_s", "request_rate": 8.5}
    config = SweepConfig.model_validate({**MINIMAL, "workload": workload, "score": score})
    assert str(config.score.objective.metric) == "goodput_requests_per_s@8.5rps"
    assert config.workload.ladder == (Load(request_rate=2.0), Load(request_rate=8.5))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"workload": {"concurrency": ()}}, "there is no level"),
        ({"workload": {"request_rate": (2, 1)}}, "the ladder goes up"),
        ({"workload": {"request_rate": (0.0001,)}}, "at most 3 decimals"),
        ({"workload": {"slo": {}}}, "there is no bound"),
        ({"workload": {"level": {"requests_per_user": 9, "max_requests_per_user": 8}}}, "max_requests_per_user 8"),
        ({"score": {"metric": "requests_per_s"}}, "one of them"),
        ({"score": {"metric": "requests_per_s", "concurrency": 8, "request_rate": 1.0}}, "one of them"),
        ({"score": {"metric": "requests_per_s", "request_rate": 3}}, "requests_per_s@3rps is not measured"),
        ({"score": {"metric": "goodput_requests_per_s", "concurrency": 8}}, "give workload.slo"),
        (
            {"workload": {"request_rate": (2,)}, "constraints": ("output_tokens_per_s_per_user@2rps >= 9",)},
            "an open loop has no users",
        ),
    ],
)
def test_levels_and_metrics_that_do_not_go_together_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as error:
        SweepConfig.model_validate({**MINIMAL, **changes})
    assert says in str(error.value)
