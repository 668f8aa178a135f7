"""What proposes the next configuration: Optuna's samplers, seeded so that a resume asks the same."""

from __future__ import annotations

import random
import warnings
import zlib

import optuna
from optuna.samplers import BaseSampler

from orchestrator.config import RandomSampler, SweepConfig


def seed_of(config: SweepConfig, ordinal: int, draw: int) -> int:
    """The seed of one draw. It depends on the ordinal, not on Optuna's numbers, which shift with re-runs."""
    return zlib.crc32(f"{config.sampler.seed}:{ordinal}:{draw}".encode())


def generator(config: SweepConfig, ordinal: int, draw: int) -> random.Random:
    """Python's generator for the same draw."""
    return random.Random(seed_of(config, ordinal, draw))


def sampler(config: SweepConfig, ordinal: int, draw: int) -> BaseSampler:
    """The sampler of one draw."""
    seed = seed_of(config, ordinal, draw)
    if isinstance(config.sampler, RandomSampler):
        return optuna.samplers.RandomSampler(seed=seed)
    # group: the baseline has no parameters, which empties the joint space of plain multivariate TPE.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.samplers.TPESampler(
            seed=seed,
            n_startup_trials=config.sampler.startup_trials,
            multivariate=True,
            group=True,
        )
