"""What a running SGLang says of itself: what it resolved, what it admits, what it changed. Pure.

From three sources, since none has everything (0.5.23): /server_info gives each argument as resolved, and per
data-parallel rank what is in force; the log tells why a value was changed. The top-level `max_running_requests`
of /server_info is resolved, not in force: memory or the number of ranks may have lowered it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from launchers.secrets import SECRET_FLAGS
from launchers.sglang.rewrites import RESET_TO_48

#: What /server_info holds beside the arguments, or that says nothing about the server's behaviour.
_NO_SETTING = frozenset(
    {"internal_states", "startup_time", "launch_command", "status", "kv_events", "simulated_host", "random_seed"}
    | {"host", "port", "nccl_port", "served_model_name"}
)
_SECRET = frozenset(name.replace("-", "_") for name in SECRET_FLAGS) | {"hf_token"}
#: Of a rank's internal state: what the arguments do not tell.
_OF_A_RANK = ("effective_max_running_requests_per_dp", "memory_usage", "avg_spec_accept_length")

#: Time and rank in front of a line of the log: `[2026-11-30 16:46:45 DP1 TP0] `.
_PREFIX = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?P<rank>(?: [A-Z]+\d+)*)\] (?P<text>.*)$")
#: Wordings of the server for a setting that is not in force as asked.
_CHANGES = re.compile(
    r"is adjusted|are adjusted|is reset to|was reduced from the requested|is capped to|"
    r"(?:is|are) disabled because|overriding \w+=|KV cache pool is full\. Retract|Setting NCCL_"
)
#: Printed by every rank once its pools stand (managers/scheduler.py).
_IN_FORCE = re.compile(r"max_total_num_tokens=(?P<tokens>\d+),.* max_running_requests=(?P<running>\d+)")


@dataclass(frozen=True, slots=True)
class ReadBack:
    """One look at a running server."""

    #: Arguments as resolved, by flag name without dashes in front; None where the server has none.
    resolved: Mapping[str, Any] = field(default_factory=dict)
    #: Requests that run at once, all data-parallel ranks together.
    max_running_requests: int | None = None
    #: Tokens of the KV pool of one data-parallel rank, the smallest.
    kv_tokens: int | None = None
    #: Per data-parallel rank what is in force there; None for a rank that did not answer.
    ranks: tuple[Mapping[str, Any] | None, ...] = ()

    def settings(self, asked: Iterable[str]) -> dict[str, Any]:
        """What is worth keeping: each argument that has a value, those of `asked` in any case, and what ranks say."""
        wanted = set(asked)
        kept = {name: value for name, value in self.resolved.items() if value is not None or name in wanted}
        return kept | {"internal_states": [dict(rank) if rank else None for rank in self.ranks]}


def read_back(info: Mapping[str, Any], log: str = "") -> ReadBack:
    """The look, from the JSON of /server_info and the log's text; either may be empty."""
    told = {k: v for k, v in info.items() if k not in _NO_SETTING | _SECRET and not k.startswith("_")}
    states = info.get("internal_states")
    ranks = tuple(_rank(state) for state in states) if isinstance(states, list) else ()
    running, tokens = _in_force(log)
    wide = max(len(ranks), _positive(info.get("dp_size")), _positive(info.get("attn_dp_size")))
    caps = [_whole(rank, "effective_max_running_requests_per_dp") for rank in ranks]
    known = [cap for cap in caps if cap is not None]
    total: int | None = None
    # A rank that says nothing would make the sum too small.
    if known and len(known) == wide:
        total = sum(known)
    elif running and len(running) == wide:
        total = sum(running.values())
    elif RESET_TO_48 in log:
        # Divided among the ranks, at least 1 each (mem_cache/kv_cache_configurator.py).
        total = wide * max(1, 48 // wide)
    pool = info.get("max_total_num_tokens")
    return ReadBack(
        resolved={name.replace("_", "-"): value for name, value in told.items()},
        max_running_requests=total,
        kv_tokens=pool if _is_count(pool) else min(tokens.values(), default=None),
        ranks=ranks,
    )


def changes(log: str) -> tuple[str, ...]:
    """Lines in which the server says that it changed a setting or ran short, each once, without time and rank."""
    found: dict[str, str] = {}
    for line in re.split(r"[\r\n]+", log):
        match = _PREFIX.match(line)
        text = match["text"].strip() if match else ""
        # The second is of every start on a CPU, and no setting.
        if _CHANGES.search(text) and not text.startswith("init_cpu_threads_env"):
            # Requests are retracted over and over, with other numbers each time.
            found.setdefault("retracted" if "Retract" in text else text, text)
    return tuple(found.values())


def _rank(state: Any) -> Mapping[str, Any] | None:
    if not isinstance(state, Mapping):
        return None
    return {name: state[name] for name in _OF_A_RANK if state.get(name) is not None}


def _in_force(log: str) -> tuple[dict[str, int], dict[str, int]]:
    """By data-parallel rank what the log says of running requests and KV tokens; '' where there is one rank."""
    running: dict[str, int] = {}
    tokens: dict[str, int] = {}
    for line in re.split(r"[\r\n]+", log):
        told = _PREFIX.match(line)
        found = _IN_FORCE.search(told["text"]) if told else None
        if told and found:
            rank = _dp_rank(told["rank"].split())
            running[rank], tokens[rank] = int(found["running"]), int(found["tokens"])
    return running, tokens


def _dp_rank(ranks: Iterable[str]) -> str:
    return next((rank for rank in ranks if rank.startswith("DP")), "")


def _whole(rank: Mapping[str, Any] | None, name: str) -> int | None:
    value = rank.get(name) if rank else None
    return value if _is_count(value) else None


def _positive(value: Any) -> int:
    return value if _is_count(value) and value > 0 else 1


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
