"""Why a server ended, from its log and exit code. Pure; the cause decides, never the generic last line.

Texts read or recorded in SGLang 0.5.23. What no signature knows is a ServerCrashed: better no class than a
wrong one.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from launchers.base import Phase
from launchers.errors import (
    BadArgument,
    InvalidCombination,
    LaunchError,
    OutOfMemory,
    PortTaken,
    ServerCrashed,
)

_COMBINATION = "SGLang never takes this combination: keep these values apart"


class _Signature(NamedTuple):
    pattern: re.Pattern[str]
    kind: type[LaunchError]
    #: What to do.
    hint: str


#: First match wins; the order is from the most telling text to the least.
_SIGNATURES = tuple(
    _Signature(re.compile(pattern), kind, hint)
    for pattern, kind, hint in (
        (
            r"(?m)^[^\[\n]*: error: (?:unrecognized arguments|ambiguous option|argument |the following arguments)",
            BadArgument,
            "every trial would carry it: correct the flag",
        ),
        (r"Unknown speculative algorithm name:", BadArgument, "correct speculative-algorithm"),
        # The advice in the first of these two names the opposite of what the second one wants.
        (
            r"Capture cuda graph failed: CUDA out of memory|(?:torch\.|^|\n)\w*OutOfMemoryError: ",
            OutOfMemory,
            "lower mem-fraction-static, max-running-requests or the batch sizes that are captured",
        ),
        (
            r"Not enough memory\. Please try to increase|leave no GPU memory for the KV cache",
            OutOfMemory,
            "raise mem-fraction-static",
        ),
        # Not `Decode out of memory happened`: that one tells of a retraction, and the server goes on.
        (
            r"(?:Decode|Prefill) out of memory(?! happened)|CUDA out of memory\. Tried",
            OutOfMemory,
            "lower max-running-requests or mem-fraction-static",
        ),
        (r"selected index k out of range", InvalidCombination, "fewer draft tokens, or more steps or topk"),
        (r"only supports? topk ?= ?1\b|speculative_eagle_topk\S* > 1 with page_size", InvalidCombination, _COMBINATION),
        (r"No algorithm/protocol available for function", InvalidCombination, "NCCL_ALGO and NCCL_PROTO exclude it"),
        (
            r"All entries except the first must have a prefix|Unrecognized element token",
            InvalidCombination,
            "NCCL cannot read NCCL_ALGO or NCCL_PROTO",
        ),
        (
            r"(?i)address already in use|EADDRINUSE|is used by a process already",
            PortTaken,
            "another program holds the port: another one is needed",
        ),
    )
)
#: An exception's own line, at the end of a traceback.
_EXCEPTION = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b.*")
#: SGLang resolves and checks its arguments in these two; what is raised there is about the arguments.
_RESOLVING = re.compile(r"\b(?:resolve_once|check_server_args)\(")
_ABOUT_ARGUMENTS = ("AssertionError", "TypeError", "ValueError", "NotImplementedError")
#: Lines that tell of an end without an exception.
_ENDING = re.compile(r"crashed with exit code|died during|watchdog timeout|SIGTERM received")
_STAMP = re.compile(r"\[\d{4}-\d\d-\d\d [^\]]*\] ")
#: argparse repeats every option before the one line that matters; its lines are indented.
_USAGE = re.compile(r"(?m)^usage: .*\n(?:[ \t]+.*\n)*")
#: Lines in which any word may stand: the settings, echoed, and what could not be imported.
_NOISE = re.compile(r"(?m)^.*(?:server_args=|Ignore import error|Warning: ).*\n?")
#: What an exit says where the log does not.
_SILENT = {
    -9: "killed without a word of its own; if nobody did it, the kernel ran out of memory: see dmesg",
    -7: "SIGBUS: /dev/shm is full; make it larger or remove what dead servers left there",
    -11: "a segmentation fault",
}


def classify(log: str, exit_code: int | None, phase: Phase) -> LaunchError:
    """The error for a server that ended by itself, whatever its exit code: 0 is a failure too.

    `phase` is where it was. The message holds the line that names the cause and what to do.
    """
    text = _NOISE.sub("", _USAGE.sub("", log))
    lines = text.splitlines()
    tail = "\n".join(lines[-20:])

    def error(kind: type[LaunchError], cause: str, hint: str = "") -> LaunchError:
        where = f"exit {exit_code}, {phase}"
        return kind(
            f"{_STAMP.sub('', cause).strip()[:300]} ({where}){hint and ': '}{hint}",
            phase=phase,
            exit_code=exit_code,
            tail=tail,
        )

    for signature in _SIGNATURES:
        # The last one: a traceback shows the source line that raises before it shows the message.
        *_, match = (None, *signature.pattern.finditer(text))
        if match:
            return error(signature.kind, _line_of(text, match.end()), signature.hint)
    raised = [line for line in lines if _EXCEPTION.match(line)]
    if raised:
        refused = phase is Phase.SPAWNED and _RESOLVING.search(text)
        if refused and raised[-1].startswith(_ABOUT_ARGUMENTS):
            return error(InvalidCombination, raised[-1], _COMBINATION)
        return error(ServerCrashed, raised[-1])
    told = [line for line in lines if _ENDING.search(line)]
    cause = told[-1] if told else _SILENT.get(exit_code or 0, "the log names no cause")
    return error(ServerCrashed, f"the server ended by itself: {cause.strip()}")


def _line_of(text: str, position: int) -> str:
    """The line that holds a position."""
    start = text.rfind("\n", 0, position - 1) + 1
    end = text.find("\n", position - 1)
    return text[start : end if end >= 0 else len(text)]
