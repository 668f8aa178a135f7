"""The real SGLang that tests start on the CPU: where it is, and the settings it runs with here.

Mark a test `real_sglang`: without the environment it is skipped, or fails where ORCHESTRATOR_REQUIRE_SGLANG is set.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
#: Not resolved: the interpreter of a virtual environment is a link, and its folder tells the environment.
PYTHON = Path(os.environ.get("SGLANG_PYTHON") or _ROOT / ".venv-sglang/bin/python").absolute()
MODELS = PYTHON.parents[1] / "models"
MARKOV = MODELS / "markov"
TINY_LLAMA = MODELS / "tiny-llama"

#: Every server that the tests start, speculative or not: the amx backends are the only ones that verify a draft.
FLAGS: dict[str, Any] = {
    "device": "cpu",
    "max-total-tokens": 20_000,
    "max-running-requests": 8,
    "attention-backend": "torch_native",
    "prefill-attention-backend": "intel_amx",
    "decode-attention-backend": "intel_amx",
    # Its scheduler spins when it has nothing to do, which leaves half of two cores to whatever is tested.
    "sleep-on-idle": True,
}
ENV = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "HF_HUB_OFFLINE": "1",
    # Two threads on a busy machine wait for each other at every operator: minutes for what takes seconds.
    "OMP_NUM_THREADS": "1",
}

WHY_ABSENT = (
    f"no real SGLang at {PYTHON}: make it with `python3 -m launchers.sglang.cpu`, or name an interpreter that has "
    "one in SGLANG_PYTHON"
)


def available() -> bool:
    """Whether the environment and its models are there."""
    return PYTHON.exists() and (MARKOV / "config.json").exists()


def required() -> bool:
    """Whether a missing environment is an error, as on CI, and not a reason to skip."""
    return os.environ.get("ORCHESTRATOR_REQUIRE_SGLANG", "") not in ("", "0")


def drafter(noise: float) -> Path:
    """The EAGLE drafter of `markov` with this noise."""
    return MODELS / f"markov-eagle-{noise}"


def spec_flags(noise: float = 0.1, steps: int = 3, topk: int = 1, draft_tokens: int | None = None) -> dict[str, Any]:
    """Flags that add EAGLE to FLAGS; a chain (topk 1) takes steps + 1 draft tokens."""
    return {
        "speculative-algorithm": "EAGLE",
        "speculative-draft-model-path": str(drafter(noise)),
        "speculative-num-steps": steps,
        "speculative-eagle-topk": topk,
        "speculative-num-draft-tokens": steps + 1 if draft_tokens is None else draft_tokens,
    }
