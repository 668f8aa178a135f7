"""The answers of /server_info, /model_info and /v1/models. Every one of them says that it is simulated."""

from __future__ import annotations

from typing import Any

from launchers.simulated.engine import Engine
from launchers.simulated.settings import VERSION, Settings
from launchers.simulated.startup import StartupTime


def label(settings: Settings) -> dict[str, Any]:
    """What no real server answers: told in every info so that rows can never be mixed up."""
    return {"simulated": True, "simulated_profile": settings.profile.name}


def server_info(
    settings: Settings, startup: StartupTime, engine: Engine, ready: bool, host: dict[str, float]
) -> dict[str, Any]:
    """/server_info. `host` is what the twin tells of itself: lateness of its steps."""
    arguments = settings.server_arguments()
    return {
        **arguments,
        "launch_command": settings.arguments.launch_command,
        "status": "ready" if ready else "starting",
        "max_total_num_tokens": engine.config.kv_tokens // settings.dp_ranks,
        "max_req_input_len": settings.limits.max_input,
        "startup_time": startup.as_info(),
        "kv_events": None,
        "internal_states": [_state(settings, startup, engine) | arguments] * settings.dp_ranks,
        "version": VERSION,
        "frontend": "python",
        **label(settings),
        "simulated_host": host,
    }


def _state(settings: Settings, startup: StartupTime, engine: Engine) -> dict[str, Any]:
    statistics = engine.statistics
    state: dict[str, Any] = {
        "world_size": int(settings.flags.get("tp-size", 1)),
        "startup_time": startup.as_info(),
        "effective_max_running_requests_per_dp": settings.max_running_per_dp,
        "last_gen_throughput": statistics.gen_throughput,
        "memory_usage": {"token_capacity": engine.config.kv_tokens // settings.dp_ranks},
    }
    if statistics.avg_spec_accept_length is not None:
        state["avg_spec_accept_length"] = statistics.avg_spec_accept_length
    return state


def model_info(settings: Settings) -> dict[str, Any]:
    """/model_info."""
    return {
        "model_path": settings.model_path,
        "served_model_name": settings.served_model_name,
        "tokenizer_path": settings.flags.get("tokenizer-path", settings.model_path),
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": settings.flags.get("weight-version", "default"),
        "load_format": settings.flags.get("load-format", "auto"),
        "reasoning_parser": settings.flags.get("reasoning-parser"),
        "tool_call_parser": settings.flags.get("tool-call-parser"),
        "disaggregation_mode": "null",
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": "simulated",
        "architectures": ["SimulatedForCausalLM"],
        "cache": {
            "kv_cache_disabled": False,
            "radix_cache_disabled": not settings.engine.radix_cache,
            "chunked_prefill_disabled": settings.engine.chunked_prefill_size is None,
        },
        **label(settings),
    }


def models(settings: Settings, created_s: float) -> dict[str, Any]:
    """/v1/models."""
    entry = {
        "id": settings.served_model_name,
        "object": "model",
        "created": int(created_s),
        "owned_by": "sglang",
        "root": settings.served_model_name,
        "parent": None,
        "max_model_len": settings.limits.context_length,
    }
    return {"object": "list", "data": [entry]}
