"""Speculation on a real SGLang changes when tokens come, not which: on the stand-in's attention, chains and trees."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import real_sglang
import requests

from launchers.base import LaunchSpec
from launchers.sglang.launcher import SGLangLauncher

pytestmark = [pytest.mark.real_sglang, pytest.mark.timeout(600)]

_DRAW = random.Random(0)
PROMPTS = [[_DRAW.randrange(2000) for _ in range(32)] for _ in range(8)]
TOKENS, STEPS = 64, 3
#: Fewer and shorter where another implementation answers, slowly.
FEW, FEW_TOKENS = 4, 32
#: Of the kit's default models and these prompts; load does not move it.
EXPECTED_ACCEPT_LENGTH = {0.0: 4.0, 0.1: 2.86, 0.2: 2.29, 0.3: 1.92}


@dataclass(frozen=True)
class Answers:
    """Output ids of each prompt, and tokens per verify step over all of them."""

    ids: list[list[int]]
    accept_length: float | None


def ask(
    logs: Path, model: Path, flags: Mapping[str, Any], prompts: list[list[int]] = PROMPTS, tokens: int = TOKENS
) -> Answers:
    """Start a server, let it answer all prompts at once, and stop it."""
    launcher = SGLangLauncher(logs, str(real_sglang.PYTHON))
    spec = LaunchSpec(str(model), {**real_sglang.FLAGS, **flags}, real_sglang.ENV)
    with launcher.launch(spec, lambda progress: None, lambda: False) as server:
        sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        answer = requests.post(
            f"{server.url}/generate",
            json={"input_ids": prompts, "sampling_params": sampling},
            headers={"Authorization": f"Bearer {server.api_key}"},
            timeout=300,
        )
        answer.raise_for_status()
    told = answer.json()
    verified = [one["meta_info"].get("spec_verify_ct") for one in told]
    made = sum(one["meta_info"]["completion_tokens"] for one in told)
    return Answers([one["output_ids"] for one in told], made / sum(verified) if all(verified) else None)


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    """What the models compute, by torch and transformers alone."""
    asked = {"prompts": PROMPTS, "steps": STEPS, "tokens": TOKENS, "answers": FEW, "answer_tokens": FEW_TOKENS}
    argv = [str(real_sglang.PYTHON), "-I", str(Path(__file__).with_name("model_facts.py")), str(real_sglang.MODELS)]
    done = subprocess.run(argv, input=json.dumps(asked), capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.parametrize("noise", EXPECTED_ACCEPT_LENGTH)
def test_a_drafter_has_the_acceptance_that_its_noise_stands_for(facts: dict[str, Any], noise: float) -> None:
    length = facts["accept_length"][real_sglang.drafter(noise).name]
    assert length == pytest.approx(EXPECTED_ACCEPT_LENGTH[noise], abs=0.15)


def test_greedy_output_is_the_same_with_and_without_speculation(facts: dict[str, Any], tmp_path: Path) -> None:
    plain = ask(tmp_path, real_sglang.MARKOV, {})
    speculative = ask(tmp_path, real_sglang.MARKOV, real_sglang.spec_flags(0.2, STEPS))
    assert speculative.ids == plain.ids
    assert [len(ids) for ids in plain.ids] == [TOKENS] * len(PROMPTS)
    assert plain.accept_length is None
    # The drafter is asked as the model of it says, token by token.
    assert speculative.accept_length == pytest.approx(facts["accept_length"]["markov-eagle-0.2"], abs=0.15)


def test_a_tree_over_the_whole_context_answers_as_another_implementation_does(
    facts: dict[str, Any], tmp_path: Path
) -> None:
    # The drafter is the target: a draft that sees a wrong context is rarely right, a verification that does never.
    flags = {
        **real_sglang.spec_flags(steps=STEPS, topk=2, draft_tokens=6),
        "speculative-algorithm": "STANDALONE",
        "speculative-draft-model-path": str(real_sglang.TINY_LLAMA),
        # Rounding to bfloat16 depends on how many tokens are computed at once, and turns near ties.
        "dtype": "float32",
    }
    answers = ask(tmp_path, real_sglang.TINY_LLAMA, flags, PROMPTS[:FEW], FEW_TOKENS)
    assert answers.ids == facts["tiny_llama"]
    # A tree accepts what a chain does, and sometimes more.
    assert (answers.accept_length or 0) > facts["accept_length"]["tiny-llama"] - 0.15
