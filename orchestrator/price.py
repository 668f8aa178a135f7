"""What starts and levels take, before any was seen. Pure."""

from __future__ import annotations

from orchestrator.config import SweepConfig

#: What a start of a model of hundreds of gigabytes takes on eight GPUs, minutes (reported: 5 to 10).
_START_MIN = (5.0, 10.0)
#: And of a tiny one on two CPU cores (0.3 to 0.5 seen).
_CPU_START_MIN = (0.3, 1.0)


def start_min(config: SweepConfig) -> tuple[float, float]:
    """Minutes that a start takes, from and to."""
    return _START_MIN if config.node.gpus else _CPU_START_MIN


def level_s(config: SweepConfig) -> tuple[float, float]:
    """Seconds that a level takes, from and to. The warm-up has a bound of its own, as long as the measured part's."""
    return config.workload.level.min_s, 2 * config.workload.level.max_s


def trial_s(config: SweepConfig, levels: int) -> tuple[float, float]:
    """Seconds of one start that measures so many levels, from and to."""
    (low, high), (short, long) = start_min(config), level_s(config)
    return 60 * low + levels * short, 60 * high + levels * long


def confirmation_cost(config: SweepConfig) -> float:
    """A start of the confirmation, in trials that measure the whole ladder."""
    return sum(trial_s(config, len(config.confirmation_ladder))) / sum(trial_s(config, len(config.workload.ladder)))
