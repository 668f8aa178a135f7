"""Seeds and samplers: each draw of each ordinal has its own seed, the same in every run and process."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import optuna
import pytest
from study_bench import make_config

from orchestrator.search.candidate import Configurations
from orchestrator.search.remaining import Remaining
from orchestrator.search.sampling import generator, sampler, seed_of
from orchestrator.search.space import Knob
from orchestrator.search.study import Outcome, Study, Told

pytestmark = pytest.mark.filterwarnings("error")


def test_each_draw_of_each_ordinal_and_seed_has_a_seed_of_its_own() -> None:
    configs = [make_config(sampler={"kind": "random", "seed": seed}) for seed in (0, 1, 2)]
    seeds = {seed_of(c, ordinal, draw) for c in configs for ordinal in range(50) for draw in range(25)}
    assert len(seeds) == 3 * 50 * 25
    # Of no process, hash seed or version: it is what a resume on another day must find.
    assert seed_of(configs[0], 1, 0) == _crc(b"0:1:0")
    assert generator(configs[0], 3, 4).random() == random.Random(seed_of(configs[0], 3, 4)).random()


def _crc(data: bytes) -> int:
    """CRC-32 (IEEE 802.3), bit by bit."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0xEDB88320 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_the_seed_of_the_file_decides_the_search(kind: str) -> None:
    def asked(seed: int) -> list[Any]:
        config = make_config(
            {"flags": {"a": {"int": [1, 1000]}, "b": {"float": [0.1, 0.9], "log": True}}},
            sampler={"kind": kind, "seed": seed},
        )
        study = Study(optuna.storages.InMemoryStorage(), "s", config)
        study.ask_baseline()
        study.tell(0, Told(Outcome.COMPLETE, 1.0))
        found = []
        for ordinal in range(1, 15):
            trial = study.ask()
            assert trial is not None
            found.append(dict(trial.candidate.params))
            study.tell(ordinal, Told(Outcome.COMPLETE, float(trial.candidate.params["a"])))
        return found

    assert asked(0) == asked(0)
    assert asked(0) != asked(1)
    assert len({repr(point) for point in asked(0)}) == 14


def test_tpe_samples_jointly_although_the_baseline_has_no_parameters() -> None:
    """Multivariate TPE without groups finds no parameter that all trials share, and draws each alone."""
    config = make_config(
        {"flags": {"a": {"int": [1, 10_000]}, "b": {"int": [1, 9]}}},
        sampler={"kind": "tpe", "seed": 0, "startup_trials": 8},
    )
    study = Study(optuna.storages.InMemoryStorage(), "s", config)
    study.ask_baseline()
    study.tell(0, Told(Outcome.COMPLETE, 1.0))
    drawn = []
    for ordinal in range(1, 41):
        trial = study.ask()
        assert trial is not None
        value = trial.candidate.params["a"]
        drawn.append(value)
        study.tell(ordinal, Told(Outcome.COMPLETE, 1.0 + value))
    joint = sampler(config, 41, 0).infer_relative_search_space(study._study, study._study.trials[-1])
    assert set(joint) == {"a", "b"}
    # It learns: uniform draws lie above 8,000 once in five.
    assert sum(value > 8_000 for value in drawn[20:]) >= 12


# ---- points beside the sampler -----------------------------------------------------------------------------


def test_each_remaining_configuration_is_picked_alike_and_none_that_is_taken() -> None:
    configurations = Configurations(make_config())
    remaining = Remaining(configurations)
    identities = {configurations.identity(p) for p in configurations.space.points()} - {None}
    taken = set(sorted(map(str, identities))[:6])
    rng = random.Random(0)
    picked: Counter[str] = Counter()
    for _ in range(600):
        point = remaining.pick(rng, taken)
        assert point is not None
        picked[str(configurations.identity(point))] += 1
    assert picked.keys() == identities - taken
    mean = 600 / len(picked)
    assert all(mean / 2 < number < mean * 2 for number in picked.values())
    assert remaining.pick(rng, identities) is None


@pytest.mark.parametrize("large", [False, True])
def test_a_space_too_large_to_walk_is_drawn_from(large: bool, caplog: pytest.LogCaptureFixture) -> None:
    entry: dict[str, Any] = {"int": [1, 10**12]} if large else {"float": [0.001, 1.0], "log": True}
    space = {"flags": {"s": {"choices": ["p", "q"]}, "x": {**entry, "when": {"s": "p"}}}}
    configurations = Configurations(make_config(space))
    (x,) = (k for k in configurations.space.knobs if k.name == "x")
    remaining = Remaining(configurations)
    only_q = {configurations.identity({"s": "q"})}
    seen = set()
    for seed in range(20):
        point = remaining.pick(random.Random(seed), {str(i) for i in only_q})
        assert point is not None
        assert point["s"] == "p"
        assert isinstance(x, Knob)
        assert x.contains(point["x"])
        seen.add(point["x"])
    assert len(seen) == 20
    assert not caplog.records

    class Everything:
        def __contains__(self, identity: object) -> bool:
            return True

    assert remaining.pick(random.Random(0), Everything()) is None
    assert "counts as exhausted" in caplog.text
