"""A configuration before its start is spent: asked of SGLang's own resolver, and the rules held against it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launchers.base import LaunchSpec, Phase, to_argv
from launchers.errors import BadArgument, InvalidCombination
from launchers.sglang.failures import classify
from launchers.sglang.model_files import NotLocal, find_model
from launchers.sglang.resolver import Resolved, Resolver, ResolverFailed
from launchers.sglang.rules import judge
from launchers.sglang.verdict import Verdict

logger = logging.getLogger(__name__)

#: Verdicts on the arguments; anything else that the resolver ends with is left to the start, which shows it whole.
_ABOUT_ARGUMENTS = (BadArgument, InvalidCombination)
#: A resolver that fails this often in a row is not asked again: each failure costs minutes.
_MOST_FAILURES = 2


class Preflight:
    """Checks one configuration after the other on a node that has sglang."""

    def __init__(self, resolver: Resolver, inherited: Mapping[str, str], folder: Path | None = None) -> None:
        """`inherited` is the environment of every server, `folder` where they run."""
        self._resolver = resolver
        self._inherited = inherited
        self._folder = folder
        self._failures = 0
        #: Where the rules and the resolver differed, one sentence each; a fault of the rules, not of the study.
        self.findings: list[str] = []

    def check(self, spec: LaunchSpec) -> None:
        """Raises BadArgument or InvalidCombination for what SGLang would refuse while it parses its arguments.

        A resolver that cannot be asked says nothing about the configuration: the start will tell.
        """
        if self._failures >= _MOST_FAILURES:
            return
        flags = {"model-path": spec.model, **spec.flags}
        try:
            resolved = self._resolver.resolve(to_argv(flags), spec.env)
        except ResolverFailed as error:
            self._failures += 1
            self._note(f"{error}. The start itself will tell")
            return
        self._failures = 0
        verdict = judge(flags, spec.env, architecture=self._architecture(spec))
        for finding in disagreements(verdict, resolved, flags):
            self._note(finding)
        if resolved.ok:
            return
        refusal = classify(resolved.log, resolved.exit_code, Phase.SPAWNED)
        if isinstance(refusal, _ABOUT_ARGUMENTS):
            raise refusal

    def _architecture(self, spec: LaunchSpec) -> str | None:
        """As the model's config.json names it, where that is here."""
        with contextlib.suppress(NotLocal):
            model = find_model(spec.model, {**self._inherited, **spec.env}, folder=self._folder, weights=False)
            return model.architecture if model else None
        return None

    def close(self) -> None:
        """End the resolver's process."""
        self._resolver.close()

    def _note(self, finding: str) -> None:
        if finding not in self.findings:
            self.findings.append(finding)
            logger.warning("%s", finding)


def disagreements(verdict: Verdict, resolved: Resolved, flags: Mapping[str, Any]) -> list[str]:
    """Where our rules and SGLang's own resolver differ about these flags; empty where they agree.

    Compared are refusals while parsing, and the values of all flags that were asked or that the rules rewrote.
    Refusals of ours alone and deaths after parsing are out of the resolver's reach.
    """
    shown = " ".join(to_argv({name: value for name, value in flags.items() if name.startswith("speculative")}))
    asked = f"({shown})" if shown else "(no speculation)"
    refused = verdict.dies_in is Phase.SPAWNED
    if refused and resolved.ok:
        return [f"the rules refuse what SGLang accepts {asked}: {verdict.rejected}"]
    if not resolved.ok:
        if refused:
            return []
        # Names of flags and models are no matter of the rules.
        if not isinstance(classify(resolved.log, resolved.exit_code, Phase.SPAWNED), InvalidCombination):
            return []
        return [f"SGLang refuses what the rules accept {asked}: {resolved.error}"]
    told = {name.replace("_", "-"): value for name, value in resolved.values.items()}
    return [
        f"SGLang makes {name} {told[name]!r} where the rules say {value!r} {asked}"
        for name, value in _expected(verdict).items()
        if name in told and not _same(value, told[name])
    ]


def _expected(verdict: Verdict) -> dict[str, Any]:
    """The values that SGLang reports for a configuration, as far as the rules know; None is left out."""
    flags = {rewrite.flag: None for rewrite in verdict.rewrites} | dict(verdict.canonical_flags)
    # Reports the width that is configured, not the deprecated flag (`resolved_dict`).
    flags.pop("enable-dp-attention", None)
    ranks = int(flags.get("attn-dp-size") or 1)
    if ranks > 1:
        # What it makes of these for one group (parallel_hook.py) it does not take as a flag again.
        if flags.get("chunked-prefill-size") is not None:
            flags["chunked-prefill-size"] //= ranks
        if flags.get("schedule-conservativeness") is not None:
            flags["schedule-conservativeness"] *= 0.3
    if str(flags.get("device", "")).startswith("cpu"):
        # Whether this CPU has the matrix unit that intel_amx needs decides the server (overrides.py).
        flags.pop("attention-backend", None)
    return flags


def _same(expected: Any, told: Any) -> bool:
    """Equal as a command line would say it; nested values are not compared.

    What is left out (None) has its default, of which we know that of a bare flag only.
    """
    if isinstance(expected, Mapping | list | tuple) or isinstance(told, Mapping | list | tuple):
        return True
    if expected is None:
        return told is not True
    if told is None:
        return False
    if isinstance(told, bool) or isinstance(expected, bool):
        return bool(expected) is bool(told)
    if isinstance(told, int | float):
        try:
            return float(expected) == float(told)
        except (TypeError, ValueError):
            return False
    return str(expected) == str(told)
