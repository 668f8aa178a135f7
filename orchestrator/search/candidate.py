"""One configuration of the server: what was drawn, what SGLang makes of it, and its identity. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launchers.sglang.nccl_rules import NCCL_FLAGS
from launchers.sglang.rules import FLAG_VARIABLES, Verdict, judge
from orchestrator.config import SweepConfig
from orchestrator.search.space import Params, SearchSpace

_MODEL = "model-path"


@dataclass(frozen=True)
class Candidate:
    """A configuration with its identity: two that SGLang makes the same server of have the same one."""

    params: Mapping[str, Any]
    flags: Mapping[str, Any]
    env: Mapping[str, str]
    canonical_flags: Mapping[str, Any]
    canonical_env: Mapping[str, str]
    identity: str
    #: Why SGLang or NCCL refuses it; None for a configuration that can start.
    rejected: str | None


@dataclass(frozen=True)
class _Half:
    """The flags' or the environment's part of a verdict; `text` is its share of the identity."""

    text: str
    refused: bool
    nccl_flags: Mapping[str, Any]
    nccl_key: str


class Configurations:
    """Makes candidates of a sweep's parameters."""

    def __init__(self, config: SweepConfig, *, nvlink: bool = False, architecture: str | None = None) -> None:
        """`nvlink` and `architecture`: what is known of the nodes and of the model, as for `rules.judge`."""
        self._nvlink = nvlink
        self._architecture = architecture
        self.space = SearchSpace.build(config.space)
        self._flags = dict(config.server.flags)
        self._env = {name: str(value) for name, value in config.server.env.items()}
        self._model = config.model
        self._searched_flags = [k.name for k in self.space.knobs if k.target == "flags"]
        self._searched_env = [k.name for k in self.space.knobs if k.target == "env"]
        self._flag_halves: dict[str, _Half] = {}
        self._env_halves: dict[str, _Half] = {}

    def candidate(self, params: Params) -> Candidate:
        """The server's defaults, `server:` and the drawn parameters, as one configuration."""
        flags, env = self._settings(params)
        verdict = self._judge({_MODEL: self._model, **flags}, env)
        canonical_flags = _without_model(verdict.canonical_flags)
        return Candidate(
            params=dict(params),
            flags=flags,
            env=env,
            canonical_flags=canonical_flags,
            canonical_env=dict(verdict.canonical_env),
            identity=self._identity(_text(canonical_flags), _text(verdict.canonical_env)),
            rejected=verdict.rejected,
        )

    def baseline(self) -> Candidate:
        """The server's defaults plus `server:`, nothing searched."""
        return self.candidate({})

    def identity(self, params: Params) -> str | None:
        """The identity of the server these parameters make; None where it is refused.

        The same answer as `candidate` gives, but quick over many points: flags and environment are judged
        apart, each combination of either once.
        """
        key = repr([params.get(name) for name in (*self._searched_flags, *FLAG_VARIABLES)])
        flags = self._flag_halves.get(key) or self._judge_flags(key, params)
        if flags.refused:
            return None
        key = flags.nccl_key + repr([params.get(name) for name in self._searched_env])
        env = self._env_halves.get(key) or self._judge_env(key, params, flags)
        return None if env.refused else self._identity(flags.text, env.text)

    def _judge_flags(self, key: str, params: Params) -> _Half:
        flags, env = self._settings(params)
        read_env = {name: env[name] for name in FLAG_VARIABLES if name in env}
        verdict = self._judge({_MODEL: self._model, **flags}, read_env)
        canonical = _without_model(verdict.canonical_flags)
        read = {name: canonical[name] for name in NCCL_FLAGS if name in canonical}
        half = _Half(_text(canonical), verdict.rejected is not None, read, _text(read))
        return self._flag_halves.setdefault(key, half)

    def _judge_env(self, key: str, params: Params, flags: _Half) -> _Half:
        _, env = self._settings(params)
        verdict = self._judge(flags.nccl_flags, env)
        half = _Half(_text(verdict.canonical_env), verdict.rejected is not None, {}, "")
        return self._env_halves.setdefault(key, half)

    def values(self) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Every value that each flag and each variable may get, `server:` included; the ends of a long range."""
        flags = {name: [value] for name, value in self._flags.items()}
        env: dict[str, list[Any]] = {name: [value] for name, value in self._env.items()}
        for knob in self.space.knobs:
            # Where its condition does not hold it is left out.
            values = [*([None] if knob.parameter.when and None not in knob.extent else []), *knob.extent]
            (flags if knob.target == "flags" else env)[knob.name] = values
        return flags, env

    def _judge(self, flags: Mapping[str, Any], env: Mapping[str, str]) -> Verdict:
        return judge(flags, env, nvlink=self._nvlink, architecture=self._architecture)

    def _settings(self, params: Params) -> tuple[dict[str, Any], dict[str, str]]:
        flags, env = self.space.split(params)
        return self._flags | flags, self._env | env

    def _identity(self, flags: str, env: str) -> str:
        text = f"[{json.dumps(self._model)}, {flags}, {env}]"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _without_model(flags: Mapping[str, Any]) -> dict[str, Any]:
    # The model is the study's and has a column of its own.
    return {name: value for name, value in flags.items() if name != _MODEL}


def _text(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True, default=str)
