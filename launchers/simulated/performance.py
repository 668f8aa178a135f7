"""How long the simulated engine's steps take: a pure model of compute, communication and drafting.

All results are simulated seconds. The constants are the profile's, with their sources.
NCCL variables other than those of `Communicator` have no effect here.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from launchers.base import Phase
from launchers.simulated.acceptance import (
    DraftTree,
    draw_accept_tokens,
    expected_accept_length,
    position_chances,
)
from launchers.simulated.communication import Communicator
from launchers.simulated.profile import Profile

#: SGLang's choice where nothing is given, Llama and Grok apart (0.5.23, speculative_hook.py).
DEFAULT_TREE = DraftTree(steps=3, topk=1, draft_tokens=4)
#: Drafts by table look-up: no draft model to run or load.
_WITHOUT_DRAFTER = frozenset({"NGRAM"})


class PerformanceModel:
    """Step times of one configuration: `flags` and `env` as `launchers.sglang.rules` makes them canonical."""

    def __init__(self, profile: Profile, flags: Mapping[str, Any], env: Mapping[str, str]) -> None:
        self.profile = profile
        self._comm = Communicator(profile.communication, profile.hardware.gpus, flags, env)
        algorithm = flags.get("speculative-algorithm")
        self.tree: DraftTree | None = _tree(flags) if algorithm else None
        self._drafts = bool(algorithm) and str(algorithm).upper() not in _WITHOUT_DRAFTER
        self._chances: tuple[float, ...] = ()
        if self.tree is not None:
            drafter = profile.drafter(flags.get("speculative-draft-model-path"))
            self._chances = position_chances(drafter, self.tree)

    @property
    def speculative(self) -> bool:
        """Whether a decode step drafts and verifies."""
        return self.tree is not None

    def prefill_s(self, new_tokens: int, requests: int) -> float:
        """One prefill batch: `new_tokens` uncached tokens of `requests` requests; each yields a token."""
        compute, comm = self.profile.compute, self.profile.communication
        seconds = (
            compute.step_s
            + compute.all_experts_s * compute.experts_share(new_tokens)
            + compute.prefill_token_s * new_tokens
            + compute.token_s * requests
            + comm.prefill_exposed * comm.allreduces_per_step * self._comm.allreduce_s(new_tokens)
        )
        if self.speculative:
            seconds += self.profile.drafting.prefill_token_s * new_tokens
        return seconds

    def decode_s(self, batch: int, context_tokens: int) -> float:
        """One step of `batch` running requests with `context_tokens` tokens of context in all.

        With speculation: all draft steps, the verify pass and the drafter's catching up.
        """
        return sum(self.breakdown(batch, context_tokens).values())

    def breakdown(self, batch: int, context_tokens: int) -> dict[str, float]:
        """`decode_s` by part: draft, verify (or plain compute), communication, overhead. Seconds."""
        compute, comm, tree = self.profile.compute, self.profile.communication, self.tree
        tokens = batch * (tree.draft_tokens if tree else 1)
        forward_s = (
            compute.all_experts_s * compute.experts_share(tokens)
            + compute.token_s * tokens
            + compute.kv_read_s_per_token * context_tokens
        )
        communication_s = comm.allreduces_per_step * self._comm.allreduce_s(tokens)
        if tree is None:
            return {
                "draft": 0.0,
                "verify": forward_s,
                "communication": communication_s,
                "overhead": compute.step_s,
            }
        drafting = self.profile.drafting
        draft_s = 0.0
        if self._drafts:
            branches = batch * tree.topk
            draft_s = tree.steps * (drafting.draft_s + drafting.draft_branch_s * branches)
            # the drafter also passes over the verified tokens once, to catch up
            communication_s += comm.allreduces_per_draft * (
                tree.steps * self._comm.allreduce_s(branches) + self._comm.allreduce_s(tokens)
            )
        return {
            "draft": draft_s,
            "verify": forward_s + drafting.verify_token_s * tokens,
            "communication": communication_s,
            "overhead": compute.step_s + drafting.step_s,
        }

    def accept_tokens(self, rng: random.Random) -> int:
        """Tokens one request gains in one step, drawn: 1 without speculation, else 1 to steps + 1."""
        return draw_accept_tokens(self._chances, rng)

    def expected_accept_length(self) -> float:
        """Mean of `accept_tokens`, the bonus token included."""
        return expected_accept_length(self._chances)

    def startup_phases(self) -> tuple[tuple[str, float], ...]:
        """Phases of a start in order, with their lengths. Drafter phases only where one is loaded."""
        startup = self.profile.startup
        phases: list[tuple[str, float]] = [
            (Phase.DISTRIBUTED_INIT.value, startup.distributed_init_s),
            (Phase.LOADING_WEIGHTS.value, startup.load_weights_s),
        ]
        if self._drafts:
            phases.append(("loading draft weights", startup.draft_load_s))
        phases += [
            (Phase.KV_POOL.value, startup.kv_pool_s),
            (Phase.GRAPH_CAPTURE.value, startup.graph_capture_s),
        ]
        if self._drafts:
            phases.append(("draft graph capture", startup.draft_capture_s))
        phases.append((Phase.WARMUP.value, startup.warmup_s))
        return tuple(phases)


def _tree(flags: Mapping[str, Any]) -> DraftTree:
    steps, topk, draft_tokens = (
        flags.get(f"speculative-{name}") for name in ("num-steps", "eagle-topk", "num-draft-tokens")
    )
    if steps is None and topk is None and draft_tokens is None:
        return DEFAULT_TREE
    steps = int(steps) if steps is not None else DEFAULT_TREE.steps
    topk = int(topk) if topk is not None else DEFAULT_TREE.topk
    return DraftTree(steps, topk, int(draft_tokens) if draft_tokens is not None else steps + 1)
