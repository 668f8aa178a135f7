"""Whether the installed SGLang knows the flags of a search space, said before anything starts. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Flag:
    """An option of the server, without dashes in front."""

    names: tuple[str, ...]
    #: None where any value is taken.
    choices: tuple[Any, ...] | None = None
    #: Takes no value.
    bare: bool = False
    #: The name of what converts its value; None for text.
    type: str | None = None
    #: What it is deprecated for.
    instead: str | None = None


#: What became of flags of earlier versions (SGLang 0.5.23, server_args.py and arg_groups/fields).
_GONE = {
    "enable-ep-moe": "ep-size",
    "enable-deepep-moe": "moe-a2a-backend (deepep)",
    "torchao-config": "quantization",
    "enable-piecewise-cuda-graph": "cuda-graph-backend-prefill",
    "disable-piecewise-cuda-graph": "cuda-graph-backend-prefill (disabled)",
    "piecewise-cuda-graph-max-tokens": "cuda-graph-max-bs-prefill",
    "piecewise-cuda-graph-tokens": "cuda-graph-bs-prefill",
}
_RENAMED_PREFIXES = {"nsa-": "dsa-"}


def check_flags(settings: Mapping[str, Sequence[Any]], known: Iterable[Flag]) -> list[str]:
    """What the server would refuse in every trial that carries it, one sentence each; empty is fine.

    `settings` gives for each flag (no dashes in front) the values that it may get; None and False leave it out.
    """
    by_name = {name: flag for flag in known for name in flag.names}
    problems = []
    for name, values in settings.items():
        flag = by_name.get(name)
        # argparse takes a beginning that only one option has.
        longer = [] if flag else sorted(n for n in by_name if n.startswith(name))
        if len(longer) == 1:
            flag = by_name[longer[0]]
        if flag is None:
            problems.append(_unknown(name, longer, by_name))
        else:
            problems += [p for value in values if (p := _refused(name, value, flag)) is not None]
    return problems


def deprecated_flags(names: Iterable[str], known: Iterable[Flag]) -> list[str]:
    """Which of the names will go, and what stands for them."""
    by_name = {name: flag for flag in known for name in flag.names}
    return [
        f"{name} is deprecated in this SGLang: write {flag.instead.replace('--', '')}"
        for name in names
        if (flag := by_name.get(name)) is not None and flag.instead
    ]


def _unknown(name: str, longer: Sequence[str], known: Mapping[str, Flag]) -> str:
    if longer:
        return f"{name} is no flag of this SGLang, only the beginning of several: write {' or '.join(longer)}"
    renamed = [new + name.removeprefix(old) for old, new in _RENAMED_PREFIXES.items() if name.startswith(old)]
    present = [new for new in renamed if new in known]
    if present:
        return f"{name} is now called {present[0]}: write that"
    gone = _GONE.get(name)
    if gone is not None and gone.split()[0] in known:
        return f"{name} is gone from this SGLang; what comes nearest is {gone}"
    near = difflib.get_close_matches(name, known, 1, 0.6)
    hint = f"did you mean {near[0]}?" if near else "see `sglang serve --help` for those it has"
    return f"{name} is no flag of this SGLang: {hint}"


def _refused(name: str, value: Any, flag: Flag) -> str | None:
    if value is None or value is False:
        return None
    if flag.bare:
        return None if value is True else f"{name} takes no value, only true or false: not {value!r}"
    if value is True:
        return f"{name} needs a value: true is none"
    values = value if isinstance(value, list | tuple) else [value]
    for each in values:
        if flag.choices is not None and str(each) not in map(str, flag.choices):
            near = difflib.get_close_matches(str(each), map(str, flag.choices), 1, 0.6)
            hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(map(str, flag.choices))}"
            return f"{name} never takes {each!r}: {hint}"
        if flag.type == "int" and not _whole(each):
            return f"{name} takes a whole number: not {each!r}"
    return None


def _whole(value: Any) -> bool:
    try:
        int(str(value))
    except ValueError:
        return False
    return True
