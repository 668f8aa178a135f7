"""What one simulated server runs with: command line, profile and SGLang's rules resolved into numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launchers.sglang.rules import Verdict, judge
from launchers.simulated.arguments import Arguments, defaults
from launchers.simulated.bodies import Limits
from launchers.simulated.engine import EngineConfig
from launchers.simulated.faults import FaultConfig, active_fault
from launchers.simulated.performance import PerformanceModel
from launchers.simulated.profile import Profile

VERSION = "0.5.23"
#: Chance of each token to end the text, where EOS is not ignored: answers of 200 tokens in the mean.
END_CHANCE = 1 / 200


@dataclass(frozen=True)
class Settings:
    """Everything resolved. `flags` are those that SGLang would run with, dashed, defaults left out."""

    arguments: Arguments
    profile: Profile
    verdict: Verdict
    flags: Mapping[str, Any]
    env: Mapping[str, str]
    engine: EngineConfig
    times: PerformanceModel
    limits: Limits
    fault: FaultConfig | None
    #: Replicas or attention ranks: internal_states has one entry each.
    dp_ranks: int
    seed: int

    @property
    def model_path(self) -> str:
        """The model's path, as given."""
        return str(self.flags["model-path"])

    @property
    def served_model_name(self) -> str:
        """The name that answers carry where a request names no model."""
        return str(self.flags.get("served-model-name", self.model_path))

    @property
    def host(self) -> str:
        """Address to listen on."""
        return str(self.flags.get("host", "127.0.0.1"))

    @property
    def port(self) -> int:
        """Port to listen on."""
        return int(self.flags.get("port", 30000))

    @property
    def speedup(self) -> float:
        """What every simulated second of the start is divided by."""
        return self.arguments.startup_speedup

    @property
    def graphs(self) -> bool:
        """Whether decode steps run in CUDA graphs."""
        off = ("disable-cuda-graph", "disable-decode-cuda-graph")
        return not any(map(self.flags.get, off)) and self.flags.get("cuda-graph-backend-decode") != "disabled"

    @property
    def max_running_per_dp(self) -> int:
        """effective_max_running_requests_per_dp."""
        return self.engine.max_running_requests // self.dp_ranks

    def ranks(self) -> tuple[str, ...]:
        """Log prefixes of the schedulers, as recorded: DP and TP only where there are several."""
        tp, dp = int(self.flags.get("tp-size", 1)), self.dp_ranks
        names = []
        for index in range(tp * dp):
            parts = [f"DP{index // tp}"] * (dp > 1) + [f"TP{index % tp}"] * (tp > 1)
            names.append(" ".join(parts))
        return tuple(names)

    def server_arguments(self) -> dict[str, Any]:
        """Every argument under its name with underscores, resolved. SGLang blots out no secret here."""
        engine, profile = self.engine, self.profile.engine
        values = defaults()
        values |= {
            "host": self.host,
            "port": self.port,
            "device": "cuda",
            "tokenizer_path": self.model_path,
            "served_model_name": self.served_model_name,
            "random_seed": self.seed,
            "chunked_prefill_size": engine.chunked_prefill_size or -1,
            "max_prefill_tokens": engine.max_prefill_tokens,
            "page_size": engine.page_size,
        }
        values |= {name.replace("-", "_"): value for name, value in self.flags.items()}
        values["max_running_requests"] = self.flags.get("max-running-requests")
        values["context_length"] = self.flags.get("context-length", profile.context_length)
        return values


def resolve(arguments: Arguments, profile: Profile, env: Mapping[str, str]) -> Settings:
    """Apply SGLang's rules and the profile. Pure; a rejected configuration is resolved as far as it goes.

    Raises ValueError for a bad fault in the environment.
    """
    nccl = {name: value for name, value in env.items() if name.startswith("NCCL_")}
    verdict = judge(arguments.flags, nccl)
    flags = verdict.canonical_flags
    times = PerformanceModel(profile, flags, verdict.canonical_env)
    facts = profile.engine
    attention_dp, replicas = int(flags.get("attn-dp-size", 1)), int(flags.get("dp-size", 1))
    kv_tokens = min(facts.kv_tokens, flags.get("max-total-tokens", facts.kv_tokens))
    requested = int(flags.get("max-running-requests", facts.default_max_running_requests))
    # effective_max_running_requests_per_dp of 0.5.23: the pool bounds it too.
    per_rank = min(max(1, requested // attention_dp), kv_tokens // 2)
    ranks = attention_dp * replicas
    chunk = int(flags.get("chunked-prefill-size", facts.chunked_prefill_size))
    tree = times.tree
    per_step = tree.draft_tokens if tree else 1
    engine = EngineConfig(
        kv_tokens=kv_tokens * ranks,
        max_running_requests=per_rank * ranks,
        chunked_prefill_size=chunk if chunk > 0 else None,
        max_prefill_tokens=int(flags.get("max-prefill-tokens", facts.max_prefill_tokens)),
        page_size=int(flags.get("page-size", facts.page_size)),
        radix_cache=not flags.get("disable-radix-cache"),
        mixed_chunk=bool(flags.get("enable-mixed-chunk")),
        schedule_conservativeness=float(flags.get("schedule-conservativeness", 1.0)),
        schedule_policy=str(flags.get("schedule-policy", "fcfs")),
        decode_log_interval=int(flags.get("decode-log-interval", 40)),
        tokens_per_step=per_step,
        draft_steps=tree.steps if tree else None,
    )
    context = int(flags.get("context-length", facts.context_length))
    return Settings(
        arguments=arguments,
        profile=profile,
        verdict=verdict,
        flags=flags,
        env=verdict.canonical_env,
        engine=engine,
        times=times,
        limits=Limits(context, kv_tokens - per_step + 1, facts.vocab_size),
        fault=active_fault(profile.fault, arguments.flags, env),
        dp_ranks=ranks,
        seed=int(flags.get("random-seed", facts.random_seed)),
    )
