"""Our rules against SGLang's own resolver, over drawn configurations: they refuse and rewrite the same.

What only a GPU reaches is listed in `OUT_OF_REACH` and not counted: the resolver of a machine without one cannot
tell it.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import real_sglang

from launchers.base import LaunchSpec, Phase, to_argv
from launchers.errors import BadArgument, InvalidCombination
from launchers.sglang.flag_check import check_flags
from launchers.sglang.preflight import Preflight, disagreements
from launchers.sglang.resolver import Resolver
from launchers.sglang.rules import judge

pytestmark = pytest.mark.real_sglang

DRAWS = 300
MODEL, DRAFTER = str(real_sglang.MARKOV), str(real_sglang.drafter(0.1))
#: Of the tiny model.
ARCHITECTURE = "LlamaForCausalLM"
#: Rules that no resolver without a GPU can confirm, each with a configuration that the rule judges.
OUT_OF_REACH: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "D4: more draft tokens than the tree has dies when it first drafts": (
        {"speculative-num-steps": 1, "speculative-eagle-topk": 2, "speculative-num-draft-tokens": 30},
        {},
    ),
    "D7: a tree with latent attention on flashinfer dies in graph capture": (
        {
            "model-path": "moonshotai/Kimi-K2.5",
            "attention-backend": "flashinfer",
            "speculative-num-steps": 3,
            "speculative-eagle-topk": 2,
            "speculative-num-draft-tokens": 4,
        },
        {},
    ),
    "D8: EAGLE3 without a drafter starts and drafts from the target": (
        {"speculative-algorithm": "EAGLE3", "speculative-draft-model-path": None},
        {},
    ),
    "a tree without its size dies somewhere later": ({"speculative-num-steps": 3, "speculative-eagle-topk": 2}, {}),
    "NCCL without an algorithm fails at the first such call": ({"tp-size": 8}, {"NCCL_ALGO": "Tree"}),
    "LL128 off NVLink corrupts data": ({"tp-size": 8}, {"NCCL_PROTO": "LL128"}),
}


@pytest.fixture(scope="module")
def resolver() -> Iterator[Resolver]:
    with Resolver(str(real_sglang.PYTHON), {**os.environ, **real_sglang.ENV}) as made:
        yield made


#: Each flag with its values; the more often one stands there the likelier it is. None leaves the flag out.
CHOICES: dict[str, Sequence[Any]] = {
    "speculative-algorithm": [
        *["EAGLE"] * 6,
        *["EAGLE3"] * 3,
        *["STANDALONE"] * 2,
        *["NGRAM"] * 2,
        *["eagle", "NEXTN", None, "FROZEN_KV_MTP", "DFLASH", "DSPARK", "UNO", "MEDUSA"],
    ],
    "speculative-draft-model-path": [DRAFTER, DRAFTER, None],
    "speculative-num-steps": [None, 1, 2, 3, 5, 7, 10],
    "speculative-eagle-topk": [None, 1, 1, 1, 2, 4, 8],
    "speculative-num-draft-tokens": [None, 2, 4, 6, 8, 16],
    "max-running-requests": [None, 8, 64],
    "page-size": [*[None] * 5, 1, 16, 64],
    "attention-backend": [*[None] * 2, *["torch_native"] * 4, *["triton"] * 4, "flashinfer", "flex_attention"],
    "prefill-attention-backend": [*[None] * 4, "intel_amx", "triton"],
    "decode-attention-backend": [*[None] * 4, "intel_amx", "triton"],
    "chunked-prefill-size": [*[None] * 6, -1, 512, 1000],
    "speculative-use-rejection-sampling": [*[None] * 7, True],
    "speculative-use-block-verification": [*[None] * 20, True],
    "speculative-accept-threshold-single": [*[None] * 4, 1.0, 0.9],
    "speculative-adaptive": [*[None] * 5, True],
    "speculative-draft-window-size": [*[None] * 20, 64, -1],
    "speculative-draft-sink-size": [*[None] * 20, 4],
    "enable-mixed-chunk": [None, None, True],
    "tp-size": [*[None] * 4, 2, 4],
    "attn-dp-size": [*[None] * 10, 2, 3],
    "dp-size": [*[None] * 10, 2],
    "enable-dp-attention": [*[None] * 8, True],
    "pp-size": [*[None] * 12, 2],
    "weight-cache-mode": [*[None] * 12, "off", "client"],
    "speculative-ngram-max-bfs-breadth": [None, None, 1, 4],
    "enable-deterministic-inference": [*[None] * 12, True],
    "schedule-conservativeness": [*[None] * 6, 0.5],
    "tensor-parallel-size": [*[None] * 12, "2"],
}


def drawn(rng: random.Random) -> dict[str, Any]:
    """Flags of a speculative server on the CPU; steps, topk and draft tokens often belong together."""
    flags: dict[str, Any] = {"model-path": MODEL, "device": "cpu"}
    flags |= {name: value for name, values in CHOICES.items() if (value := rng.choice(values)) is not None}
    if "tp-size" in flags:
        flags.pop("tensor-parallel-size", None)
    if rng.random() < 0.5:
        steps, topk = rng.randint(1, 6), rng.choice([1, 1, 2, 4])
        flags |= {"speculative-num-steps": steps, "speculative-eagle-topk": topk}
        flags["speculative-num-draft-tokens"] = rng.randint(2, topk + (steps - 1) * topk**2 + 1)
    return flags


def test_rules_and_resolver_agree_on_drawn_configurations(
    resolver: Resolver, record_property: pytest.RecordProperty
) -> None:
    rng = random.Random(23)
    outcomes: Counter[str] = Counter()
    rewritten = 0
    exceptions = []
    for _ in range(DRAWS):
        flags = drawn(rng)
        verdict = judge(flags, {}, architecture=ARCHITECTURE)
        resolved = resolver.resolve(to_argv(flags), {})
        exceptions += disagreements(verdict, resolved, flags)
        outcomes["accepted" if resolved.ok else "refused"] += 1
        rewritten += bool(resolved.ok and verdict.rewrites)
    agreement = 1 - len(exceptions) / DRAWS
    print(f"{DRAWS} configurations, {dict(outcomes)}, {rewritten} rewritten: agreement {agreement:.1%}")
    for exception in exceptions:
        print(f"  {exception}")
    record_property("agreement", agreement)
    assert exceptions == []
    # Neither side of the comparison is empty.
    assert min(outcomes["accepted"], outcomes["refused"], rewritten) > DRAWS // 5


@pytest.mark.parametrize("rule", OUT_OF_REACH)
def test_what_only_a_start_can_show_is_refused_by_the_rules_and_passes_the_resolver(
    resolver: Resolver, rule: str
) -> None:
    flags, env = OUT_OF_REACH[rule]
    full = {
        "model-path": MODEL,
        "device": "cpu",
        "attention-backend": "triton",
        "speculative-algorithm": "EAGLE",
        "speculative-draft-model-path": DRAFTER,
        **flags,
    }
    latent = full["model-path"] != MODEL
    verdict = judge(full, env, architecture=None if latent else ARCHITECTURE)
    assert verdict.rejected
    assert verdict.dies_in is not Phase.SPAWNED
    told = resolver.resolve(to_argv({**full, "model-path": MODEL}), env)
    assert told.ok
    compared = disagreements(verdict, told, full)
    assert [text for text in compared if not text.startswith("SGLang makes model-path")] == []


def test_deterministic_inference_sets_the_variables_that_the_rules_drop(resolver: Resolver) -> None:
    flags = {"model-path": MODEL, "device": "cpu", "tp-size": 2, "enable-deterministic-inference": True}
    flags["attention-backend"] = "triton"
    env = {"NCCL_ALGO": "Ring", "NCCL_MIN_NCHANNELS": "4", "NCCL_PROTO": "LL"}
    told = resolver.resolve(to_argv(flags), env)
    assert told.ok
    overwritten = set(env) - set(judge(flags, env).canonical_env)
    assert overwritten == {name for name in env if name in told.env}


def test_a_refused_configuration_is_told_before_its_start(resolver: Resolver) -> None:
    preflight = Preflight(resolver, real_sglang.ENV)
    flags = {**real_sglang.FLAGS, **real_sglang.spec_flags()}
    preflight.check(LaunchSpec(MODEL, flags))
    with pytest.raises(InvalidCombination, match="NoneType"):
        preflight.check(LaunchSpec(MODEL, {**flags, "speculative-eagle-topk": None}))
    with pytest.raises(BadArgument, match="unrecognized arguments: --no-such-flag"):
        preflight.check(LaunchSpec(MODEL, {**flags, "no-such-flag": 1}))
    # A model that is not there says nothing about the settings.
    preflight.check(LaunchSpec("/no/such/model", flags))
    assert preflight.findings == []


def test_what_sglang_refuses_and_no_rule_knows_is_a_finding(resolver: Resolver) -> None:
    preflight = Preflight(resolver, real_sglang.ENV)
    with pytest.raises(InvalidCombination):
        preflight.check(LaunchSpec(MODEL, {"device": "cpu", "enable-watermark": True}))
    assert len(preflight.findings) == 1
    assert "SGLang refuses what the rules accept" in preflight.findings[0]


def test_the_flags_of_this_version_are_known_and_earlier_names_lead_to_them(resolver: Resolver) -> None:
    known = resolver.flags()
    fine = {"tp-size": [1, 8], "tp": [8], "schedule-policy": ["fcfs", "lpm"], "enable-mixed-chunk": [True, False]}
    assert check_flags(fine, known) == []
    wrong = {
        "cuda-graph-max-bs": "cuda-graph-max-bs-decode",
        "cuda-graph-bs": "cuda-graph-bs-decode",
        "nsa-prefill-backend": "dsa-prefill-backend",
        "enable-ep-moe": "ep-size",
        "enable-deepep-moe": "moe-a2a-backend",
        "torchao-config": "quantization",
        "enable-piecewise-cuda-graph": "cuda-graph-backend-prefill",
        "max-runing-requests": "max-running-requests",
    }
    problems = check_flags({name: [1] for name in wrong}, known)
    assert len(problems) == len(wrong)
    for problem, (name, suggested) in zip(problems, wrong.items(), strict=True):
        assert problem.startswith(f"{name} is ")
        assert suggested in problem
