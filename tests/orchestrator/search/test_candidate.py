"""Identity: the same server is the same configuration, and the quick way to it agrees with the judgement."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launchers.sglang.nccl_rules import NCCL_FLAGS, NCCL_REJECTIONS, canonical_nccl
from launchers.sglang.rules import judge
from launchers.sglang.verdict import Draft
from orchestrator.config import SweepConfig
from orchestrator.search.candidate import Configurations
from orchestrator.yaml_source import load_sweep

SPACES = Path(__file__).parents[3] / "search_spaces"

#: Flags and variables that the rules look at, with values that some rule accepts, rewrites or refuses.
FLAGS: dict[str, list[Any]] = {
    "tp-size": [1, 2, 8],
    "pp-size": [1, 2],
    "device": [None, "cpu"],
    "enable-symm-mem": [True, False],
    "enable-nccl-nvls": [True, False],
    "enable-deterministic-inference": [True, False],
    "speculative-algorithm": [None, "EAGLE", "EAGLE3", "eagle3", "NGRAM", "WRONG"],
    "speculative-draft-model-path": [None, "d"],
    "speculative-num-steps": [None, 2, 5],
    "speculative-eagle-topk": [None, 1, 4],
    "speculative-num-draft-tokens": [None, 4, 6, 64],
    "max-running-requests": [None, 48],
    "attention-backend": [None, "flashinfer", "trtllm_mha"],
}
ENV: dict[str, list[Any]] = {
    "NCCL_PROTO": [None, "LL", "ll", "Simple", "LL128", "nonsense"],
    "NCCL_ALGO": [None, "Ring", "Tree", "allreduce:tree", "ring,tree", "NVLS"],
    "NCCL_NVLS_ENABLE": [None, 0, 1],
    "NCCL_CUMEM_ENABLE": [None, 0],
    "NCCL_MIN_NCHANNELS": [None, 4],
    "NCCL_MIN_CTAS": [None, 4],
    "SGLANG_ENABLE_PP_SPEC": [None, "1"],
}


def _config(server: dict[str, Any], space: dict[str, Any], model: str = "m") -> SweepConfig:
    return SweepConfig.model_validate(
        {
            "study": "s",
            "model": model,
            "server": server,
            "space": space,
            "score": {"metric": "output_tokens_per_s", "concurrency": 8},
        }
    )


EVERYTHING = {
    "flags": {name: {"choices": values} for name, values in FLAGS.items()},
    "env": {name: {"choices": values} for name, values in ENV.items()},
}
PARAMS = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in {**FLAGS, **ENV}.items()})
MODELS = {m: Configurations(_config({}, EVERYTHING, m)) for m in ("m", "meta-llama/Llama-3-8B", "x/DeepSeek-V3")}


@settings(max_examples=400)
@given(PARAMS, st.sampled_from(sorted(MODELS)))
def test_the_quick_identity_is_the_judged_one(params: dict[str, Any], model: str) -> None:
    configurations = MODELS[model]
    candidate = configurations.candidate(params)
    assert configurations.identity(params) == (None if candidate.rejected else candidate.identity)


class _Recording(dict[str, Any]):
    """Remembers which keys were looked at."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.read.add(str(name))
        return super().__contains__(name)

    def __iter__(self) -> Any:
        raise AssertionError("a rule on the environment looks at all flags")


@settings(max_examples=200)
@given(PARAMS)
def test_the_rules_on_the_environment_look_at_no_other_flags(params: dict[str, Any]) -> None:
    flags = _Recording({n: params[n] for n in FLAGS if params[n] not in (None, False)})
    draft = Draft(flags, {n: str(params[n]) for n in ENV if params[n] is not None})
    assert draft.nccl_ranks >= 1
    # As `judge` does: the first refusal ends it.
    any(rule(draft) is not None for rule in NCCL_REJECTIONS)
    canonical_nccl(draft)
    assert flags.read <= set(NCCL_FLAGS)


def test_settings_that_sglang_makes_the_same_server_of_have_one_identity() -> None:
    configurations = MODELS["m"]
    spec = {
        "speculative-algorithm": "EAGLE3",
        "speculative-draft-model-path": "d",
        "speculative-num-steps": 5,
        "speculative-eagle-topk": 1,
    }
    four, eight, six = (configurations.candidate({**spec, "speculative-num-draft-tokens": n}) for n in (4, 64, 6))
    assert four.identity == eight.identity == six.identity
    assert four.canonical_flags["speculative-num-draft-tokens"] == 6
    assert four.flags["speculative-num-draft-tokens"] == 4
    other = configurations.candidate({**spec, "speculative-num-steps": 2})
    assert other.identity != four.identity
    # Without an algorithm the knobs are inert.
    assert configurations.candidate({"speculative-num-steps": 5}).identity == configurations.baseline().identity


def test_what_is_known_of_the_nodes_and_the_model_decides() -> None:
    space = {"flags": {"x": {"choices": [1, 2]}}, "env": {"NCCL_PROTO": {"choices": [None, "LL128"]}}}
    config = _config({"flags": {"tp-size": 8, "speculative-algorithm": "EAGLE"}}, space)
    point = {"x": 1, "NCCL_PROTO": "LL128"}
    for nvlink in (False, True):
        configurations = Configurations(config, nvlink=nvlink, architecture="LlamaForCausalLM")
        candidate = configurations.candidate(point)
        assert (candidate.rejected is None) is nvlink
        assert (configurations.identity(point) is not None) is nvlink
        assert candidate.canonical_flags["speculative-eagle-topk"] == 4
    assert Configurations(config).candidate(point).canonical_flags["speculative-eagle-topk"] == 1


def test_every_value_that_a_setting_may_get() -> None:
    server = {"flags": {"tp-size": 8}, "env": {"NCCL_DEBUG": "WARN"}}
    space = {
        "flags": {
            "page-size": {"choices": [16, 64]},
            "algorithm": {"choices": [None, "EAGLE"]},
            "steps": {"int": [1, 10], "when": {"algorithm": "EAGLE"}},
            "fraction": {"float": [0.5, 0.9], "when": {"algorithm": "EAGLE"}},
        },
        "env": {"NCCL_PROTO": {"choices": [None, "LL"]}},
    }
    flags, env = Configurations(_config(server, space)).values()
    assert flags["tp-size"] == [8]
    assert sorted(flags["page-size"]) == [16, 64]
    # Both ends of a range, and left out where its condition does not hold.
    assert flags["steps"] == [None, 1, 10]
    assert flags["fraction"] == [None, 0.5, 0.9]
    assert set(flags["algorithm"]) == {None, "EAGLE"}
    assert env["NCCL_DEBUG"] == ["WARN"]
    assert set(env["NCCL_PROTO"]) == {None, "LL"}


def test_the_identity_knows_the_model_and_the_fixed_settings() -> None:
    space = {"flags": {"x": {"choices": [1, 2]}}}
    identities = {
        Configurations(_config(server, space, model)).candidate({"x": 1}).identity
        for server in ({}, {"flags": {"y": 1}}, {"env": {"A": 1}})
        for model in ("m", "n")
    }
    assert len(identities) == 6


def test_the_models_family_decides_what_sglang_fills_in() -> None:
    spec = {"speculative-algorithm": "EAGLE3", "speculative-draft-model-path": "d"}
    llama = MODELS["meta-llama/Llama-3-8B"].candidate(spec)
    assert llama.canonical_flags["speculative-eagle-topk"] == 4
    assert "model-path" not in llama.canonical_flags
    assert MODELS["m"].candidate(spec).canonical_flags["speculative-eagle-topk"] == 1


@pytest.mark.parametrize("path", sorted(SPACES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_shipped_space_is_counted_whole_with_each_half_judged_once(path: Path) -> None:
    configurations = Configurations(load_sweep(path)[1])
    points = list(configurations.space.points())
    with mock.patch("orchestrator.search.candidate.judge", wraps=judge) as judged:
        counted = configurations.space.count(configurations.identity)
    targets = {
        target: [k.name for k in configurations.space.knobs if k.target == target] for target in ("flags", "env")
    }
    halves = [len({repr([point.get(name) for name in names]) for point in points}) for names in targets.values()]
    # tp-size is fixed in each: one verdict on the environment holds for all flags.
    assert judged.call_count <= sum(halves)
    assert counted[0] == len(points)
    assert counted[2]
    assert 1 < counted[1] <= len(points)
    for point in points[::97]:
        candidate = configurations.candidate(point)
        assert configurations.identity(point) == (None if candidate.rejected else candidate.identity)
