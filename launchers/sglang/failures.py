"""Why a start failed, from its log and exit code. Pure; the cause decides, never the generic last line."""

from __future__ import annotations

import re

from launchers.base import Phase
from launchers.errors import (
    BadArgument,
    InvalidCombination,
    LaunchError,
    OutOfMemory,
    PortTaken,
    ServerCrashed,
)

#: First match wins; the order is from the most telling text to the least (SGLang 0.5.23).
_SIGNATURES: tuple[tuple[re.Pattern[str], type[LaunchError]], ...] = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (
            r"error: (?:unrecognized arguments|ambiguous option|argument [^\n]*(?:invalid|expected))",
            BadArgument,
        ),
        (r"Unknown speculative algorithm name:", BadArgument),
        (r"selected index k out of range", InvalidCombination),
        (r"only supports? topk ?= ?1|speculative_eagle_topk > 1 with page_size", InvalidCombination),
        (r"must be divisible by page_size|is not supported together with", InvalidCombination),
        (r"No algorithm/protocol available for function", InvalidCombination),
        (r"CUDA out of memory|OutOfMemoryError|Not enough memory|leave no GPU memory", OutOfMemory),
        (r"[Aa]ddress already in use|EADDRINUSE", PortTaken),
        (r"(?m)^(?:AssertionError|TypeError|ValueError)", InvalidCombination),
    )
)
#: A line that names the cause, for the message.
_DECISIVE = re.compile(r"(?:error|Error|Exception|out of range|out of memory|died|crashed)")
#: argparse repeats every option before the one line that matters.
_USAGE = re.compile(r"(?ms)^usage: .*?(?=^[^\n\s][^\n]*: error: )")


def classify(log: str, exit_code: int | None, phase: Phase) -> LaunchError:
    """The error for a server that ended by itself while starting, whatever its exit code."""
    text = _USAGE.sub("", log)
    tail = "\n".join(text.splitlines()[-20:])
    for pattern, kind in _SIGNATURES:
        match = pattern.search(text)
        if match:
            line = _line_at(text, match.start())
            return kind(f"{line} (exit {exit_code})", phase=phase, exit_code=exit_code, tail=tail)
    decisive = [line for line in text.splitlines() if _DECISIVE.search(line)]
    cause = decisive[-1].strip() if decisive else "its log names no cause"
    message = f"the server ended with exit {exit_code} in phase {phase}: {cause[:300]}"
    return ServerCrashed(message, phase=phase, exit_code=exit_code, tail=tail)


def _line_at(text: str, position: int) -> str:
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    return text[start : end if end >= 0 else len(text)].strip()[:300]
