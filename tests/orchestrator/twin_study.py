"""Rows of a whole study, drawn through the twin's pure performance model: what a sweep of it would keep."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from closed_loop import closed_loop, model_of

from launchers.sglang.rules import judge
from launchers.simulated.profile import Profile
from orchestrator.analysis.rows import Row
from orchestrator.benchmark.records import Distribution

Settings = Mapping[str, Any]


def trial(
    build_row: Callable[..., Row],
    profile: Profile,
    number: int,
    flags: Settings,
    env: Settings,
    *,
    ladder: tuple[int, ...] = (1, 8, 32, 128),
    prompt_tokens: int = 512,
    output_tokens: int = 128,
    requests_per_user: int = 2,
    role: str = "candidate",
    repeats: int | None = None,
) -> list[Row]:
    """One start of a setting, restless as the profile is, measured over the ladder."""
    texts = {name: str(value) for name, value in env.items()}
    verdict = judge({"model-path": profile.model, "tp-size": profile.hardware.gpus, **flags}, texts)
    _, admits = model_of(profile, flags, texts)
    speculative = verdict.canonical_flags.get("speculative-algorithm") is not None
    rows = []
    for users in ladder:
        measured = closed_loop(
            profile,
            flags,
            texts,
            concurrency=users,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            # One user's few requests would make a drafter's luck its acceptance.
            requests_per_user=max(requests_per_user, 40 // users),
            seed=1000 * number + users,
            restless=True,
        )
        row = build_row(
            number,
            users,
            measured.output_tokens_per_s,
            role=role,
            repeats=repeats,
            admits=admits,
            accept_length=measured.accept_length if speculative else None,
            total=users * requests_per_user,
            effective={k: v for k, v in verdict.canonical_flags.items() if k.startswith("speculative-")},
        )
        assert row.level is not None
        metrics = dataclasses.replace(
            row.level.metrics,
            tpot_ms=_same(measured.tpot_ms),
            ttft_ms=_same(measured.ttft_ms),
            e2e_ms=_same(measured.e2e_ms),
            queue_time_ms=measured.queue_ms,
            prompt_tokens=prompt_tokens * users * requests_per_user,
            output_tokens=output_tokens * users * requests_per_user,
        )
        info = dataclasses.replace(
            row.trial,
            requested_flags=dict(flags),
            requested_env=dict(env),
            canonical_flags={k: v for k, v in verdict.canonical_flags.items() if k != "model-path"},
            canonical_env=dict(verdict.canonical_env),
            profile=profile.name,
        )
        start = dataclasses.replace(row.start, effective_kv_tokens=profile.engine.kv_tokens)
        rows.append(Row(info, start, row.outcome, dataclasses.replace(row.level, metrics=metrics)))
    return rows


def eagle3(drafter: str, steps: int, topk: int = 1, draft_tokens: int | None = None, **more: Any) -> dict[str, Any]:
    """Flags of an EAGLE-3 setting."""
    flags = {
        "speculative-algorithm": "EAGLE3",
        "speculative-draft-model-path": drafter,
        "speculative-num-steps": steps,
        "speculative-eagle-topk": topk,
        "speculative-num-draft-tokens": steps + 1 if draft_tokens is None else draft_tokens,
    }
    return flags | {name.replace("_", "-"): value for name, value in more.items()}


def _same(value: float) -> Distribution:
    return Distribution(value, value, value, value)
