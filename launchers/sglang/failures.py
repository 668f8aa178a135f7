"""Why a server ended, from its log, its exit code and what the node shows. Pure.

The cause decides, never the generic last line; a usage text, advice, echoed settings and the source lines of
tracebacks are no causes. What no rule knows is an UnknownFailure: better no class than a wrong one.
"""

from __future__ import annotations

import re
import signal
from collections import defaultdict
from dataclasses import dataclass

from launchers.base import Phase
from launchers.errors import (
    GpuBusy,
    GpuBusyByOther,
    GpuBusyByOurs,
    InvalidCombination,
    KilledFromOutside,
    LaunchError,
    OutOfHostMemory,
    ServerCrashed,
    SharedMemoryFull,
    UnequalGpus,
    UnknownFailure,
)
from launchers.facts import UNKNOWN, NodeFacts
from launchers.sglang.signatures import COMBINATION_HINT, SIGNATURES, Signature

#: `[2026-11-30 16:00:00 DP1 TP0] `, with the ranks that print several times.
_STAMP = re.compile(r"\[(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?: DP(?P<dp>\d+))?(?P<rank>(?: \w+)*)\] ")
#: argparse repeats every option before the one line that matters; its lines are indented.
_USAGE = re.compile(r"(?m)^usage: .*\n(?:[ \t]+.*\n)*")
#: Lines in which any word may stand: settings, echoed; what could not be imported; requests; advice; retractions,
#: after which the server goes on; py-spy, which is called for once all is lost.
_NOISE = re.compile(
    r"server_args=|Ignore import error|Warning: |INFO: +\S+ - \"|^\d\. |^Possible (?:solutions|suggestions)"
    r"|#retracted_reqs:|[Pp]y-?spy"
)
#: Frames and source lines of a traceback.
_SOURCE = re.compile(r'\s+File "|\s{4,}\S')
#: An exception's own line, at the end of a traceback.
_EXCEPTION = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b")
_HIT = re.compile(r"hit an exception: ")
#: SGLang resolves and checks its arguments in these two; what is raised there is about the arguments.
_RESOLVING = re.compile(r"\b(?:resolve_once|check_server_args)\(")
_ABOUT_ARGUMENTS = ("AssertionError", "TypeError", "ValueError", "NotImplementedError")
#: The parent tells how a scheduler that did not raise went (SGLang 0.5.23, watchdog.py and engine.py).
_CHILD_END = re.compile(r"(?:crashed with exit code|died during initialization \(exit code:) (?P<code>-?\d+)")
#: The server itself ended its processes: a cause for it stands before.
_OWN_END = re.compile(r"SIGQUIT received|Received sigquit|include_parent=True|terminate called")
_INTERRUPTED = re.compile(r"^(?:SIGTERM received|KeyboardInterrupt\b)", re.MULTILINE)
_ASKED_FOR = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_MOST_LINES = 3
_LONGEST_LINE = 300


def classify(log: str, exit_code: int | None, phase: Phase, facts: NodeFacts = UNKNOWN) -> LaunchError:
    """The error for a server that ended without being asked to, whatever its exit code: 0 is a failure too.

    `phase` is where it was.
    """
    end = _End(_Log.of(log), exit_code, phase, facts)
    return end.signed() or end.of_a_child() or end.raised() or end.silent()


def retractions(log: str) -> int:
    """How often requests were put back since the KV cache was full: normal near its capacity, and slow.

    The ranks of a group each tell of the same event; data-parallel groups have events of their own.
    """
    seen: dict[str | None, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for line in _lines(log):
        if "#retracted_reqs:" in line and "Testing retraction" not in line:
            stamp = _STAMP.match(line)
            group, rank, at = (stamp["dp"], stamp["rank"], stamp["at"]) if stamp else (None, "", line)
            # Ranks that do not name themselves are told apart by nothing: what they say at once is one event.
            if rank or at not in seen[group][rank]:
                seen[group][rank].append(at)
    return sum(max(map(len, ranks.values())) for ranks in seen.values())


def _lines(log: str) -> list[str]:
    """Lines as a terminal shows them; a progress bar redraws its own with carriage returns."""
    return re.split(r"\r\n|[\r\n]", log)


@dataclass(frozen=True)
class _Log:
    """A log without what tells nothing."""

    #: The last lines, for a person.
    tail: str
    #: Lines without stamps, one a line, source lines of tracebacks left out.
    text: str
    #: What was raised first, with what it was raised from, the outcome last.
    chain: tuple[str, ...]
    resolving: bool

    @classmethod
    def of(cls, log: str) -> _Log:
        lines = [line for line in _lines(_USAGE.sub("", "\n".join(_lines(log)))) if not _NOISE.search(line)]
        told = [_STAMP.sub("", line, count=1) for line in lines if not _SOURCE.match(line)]
        return cls(
            "\n".join("\n".join(lines).rstrip("\n").split("\n")[-20:]),
            "\n".join(told),
            _chain(lines),
            any(_RESOLVING.search(line) for line in lines),
        )


def _chain(lines: list[str]) -> tuple[str, ...]:
    """The exceptions of a scheduler's first traceback; of the first one at all where no scheduler raised."""
    hits = [number for number, line in enumerate(lines) if _HIT.search(line)]
    starts = hits or [number for number, line in enumerate(lines) if "Traceback (most" in line]
    # A chain has several tracebacks, told apart by lines without a stamp; the next record of the log has one.
    block = lines
    if starts:
        after = lines[starts[0] + 1 :]
        ends = (number for number, line in enumerate(after) if _STAMP.match(line))
        block = after[: next(ends, None)]
    return tuple(line for line in block if _EXCEPTION.match(line))


@dataclass(frozen=True)
class _End:
    log: _Log
    exit_code: int | None
    phase: Phase
    facts: NodeFacts

    def error(
        self, kind: type[LaunchError], lines: tuple[str, ...], hint: str, detail: str | None = None
    ) -> LaunchError:
        lines = tuple(line.strip()[:_LONGEST_LINE] for line in lines)
        cause = lines[0] if lines else "the server ended by itself"
        return kind(
            f"{cause} (exit {self.exit_code}, {self.phase})",
            phase=self.phase,
            exit_code=self.exit_code,
            lines=lines,
            hint=hint,
            detail=detail,
            tail=self.log.tail,
        )

    def signed(self) -> LaunchError | None:
        """By a text that names the cause."""
        for signature in SIGNATURES:
            if signature.phases is None or self.phase in signature.phases:
                lines = self._matching(signature)
                if lines:
                    kind = self._holder() if signature.kind is GpuBusy else signature.kind
                    return self.error(kind, lines, _HOLDER_HINTS.get(kind, signature.hint), signature.detail)
        return None

    def _matching(self, signature: Signature) -> tuple[str, ...]:
        """The lines that it matches, each once, and what was raised in the end."""
        text = self.log.text
        found = dict.fromkeys(_line_of(text, match.end()) for match in signature.pattern.finditer(text))
        if not found:
            return ()
        return tuple(dict.fromkeys([*list(found)[: _MOST_LINES - 1], *self.log.chain[-1:]]))

    def _holder(self) -> type[LaunchError]:
        """Who holds the GPU that has less memory than the others."""
        seen = self.facts.gpu_holders
        if seen is None:
            return GpuBusy
        if not seen:
            return UnequalGpus
        # Ours first: once it is gone, the rest shows whether the GPUs do.
        known = {holder.ours for holder in seen}
        return GpuBusyByOurs if True in known else GpuBusyByOther if False in known else GpuBusy

    def of_a_child(self) -> LaunchError | None:
        """By how a scheduler went that raised nothing."""
        match = _CHILD_END.search(self.log.text)
        if match is None or _HIT.search(self.log.text):
            return None
        return self._by_signal(int(match["code"]), (_line_of(self.log.text, match.end()),))

    def raised(self) -> LaunchError | None:
        """By an exception that no signature knows."""
        chain, text = self.log.chain, self.log.text
        wordless = self.exit_code == -signal.SIGKILL and not _OWN_END.search(text)
        if not chain or wordless or (_INTERRUPTED.search(text) and not _HIT.search(text)):
            return None
        lines = tuple(dict.fromkeys([chain[-1], *chain[:1]]))
        if self.phase is Phase.SPAWNED and self.log.resolving and chain[-1].startswith(_ABOUT_ARGUMENTS):
            return self.error(InvalidCombination, lines, COMBINATION_HINT)
        if self.phase is Phase.READY:
            return self.error(ServerCrashed, lines, "")
        return self.error(UnknownFailure, lines, "")

    def silent(self) -> LaunchError:
        """By what ended it from outside, as far as that can be known."""
        asked = [line for line in self.log.text.splitlines() if _INTERRUPTED.search(line)]
        if asked:
            return self.error(KilledFromOutside, (asked[-1],), "someone else stopped it: start it again")
        if self.exit_code is not None and self.exit_code < 0 and not _OWN_END.search(self.log.text):
            error = self._by_signal(self.exit_code, ())
            if error is not None:
                return error
        return self.error(UnknownFailure, (), "the log names no cause")

    def _by_signal(self, code: int, lines: tuple[str, ...]) -> LaunchError | None:
        if code >= 0:
            return None
        number = -code
        if number == signal.SIGBUS:
            free = self.facts.shm_free_bytes
            now = "" if free is None else f", {free / 1e9:.1f} GB of it are free now"
            hint = f"SIGBUS: /dev/shm is full or too small{now}; make it larger, or remove what dead servers left in it"
            return self.error(SharedMemoryFull, lines, hint)
        if number == signal.SIGKILL and self.facts.oom_kills:
            hint = f"the kernel killed {self.facts.oom_kills} process(es) for want of memory during this start"
            return self.error(OutOfHostMemory, lines, hint)
        if number == signal.SIGKILL:
            hint = "killed without a word of its own; if nobody did it, the kernel ran out of memory: see dmesg"
            return self.error(KilledFromOutside, lines, hint)
        if number in _ASKED_FOR:
            return self.error(KilledFromOutside, lines, "someone else stopped it: start it again")
        return self.error(ServerCrashed, lines, f"ended by {_name(number)}")


_HOLDER_HINTS: dict[type[LaunchError], str] = {
    GpuBusy: "something may hold a GPU: see nvidia-smi",
    GpuBusyByOurs: "what an earlier server of this study left holds a GPU: it is to be stopped first",
    GpuBusyByOther: "a process of someone else holds a GPU, which is not ours to stop: free the GPU, then run again",
    UnequalGpus: (
        "nobody holds a GPU, so the cards differ: take equal ones, or set SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK=0"
    ),
}


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _line_of(text: str, position: int) -> str:
    """The line that holds a position."""
    start = text.rfind("\n", 0, position - 1) + 1
    end = text.find("\n", position - 1)
    return text[start : end if end >= 0 else len(text)]
