"""The values of the rules: what happens to a configuration, and the draft of it while rules are applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from launchers.base import Phase

#: The server ends itself by SIGKILL when a scheduler raises, which a parent sees as this.
KILLED = -9


@dataclass(frozen=True)
class Rewrite:
    """A flag that the server sets to another value than asked. None: left out, or removed."""

    flag: str
    asked: Any
    becomes: Any
    #: What the server prints about it; None where it says nothing.
    log_line: str | None = None


@dataclass(frozen=True)
class Rejection:
    """Why a configuration is not worth starting."""

    #: What is wrong, why, and what to do.
    reason: str
    #: The line that the server ends with; None where it would start.
    error_text: str | None = None
    exit_code: int | None = None
    #: Where the server dies; SPAWNED means while it parses its arguments.
    dies_in: Phase | None = None
    #: Refused by us: the server itself would start, and do harm or measure something else.
    ours: bool = False


def at_parse(reason: str, error_text: str) -> Rejection:
    """A rejection by an exception while the server resolves its arguments: exit 1."""
    return Rejection(reason, error_text, exit_code=1, dies_in=Phase.SPAWNED)


@dataclass(frozen=True)
class Verdict:
    """The judgement. Two configurations are the same server iff canonical flags and env are equal."""

    canonical_flags: Mapping[str, Any]
    canonical_env: Mapping[str, str]
    rewrites: tuple[Rewrite, ...] = ()
    rejection: Rejection | None = None

    @property
    def rejected(self) -> str | None:
        """The reason of the rejection; None for a configuration that can be started."""
        return self.rejection.reason if self.rejection else None

    @property
    def error_text(self) -> str | None:
        """The line that the real server ends with."""
        return self.rejection.error_text if self.rejection else None

    @property
    def exit_code(self) -> int | None:
        """The real server's exit code as a parent process sees it, negative for a signal."""
        return self.rejection.exit_code if self.rejection else None

    @property
    def dies_in(self) -> Phase | None:
        """The phase of the real server's death; SPAWNED: while parsing."""
        return self.rejection.dies_in if self.rejection else None

    @property
    def ours(self) -> bool:
        """Whether only we refuse it: the real server starts."""
        return self.rejection.ours if self.rejection else False


@dataclass
class Draft:
    """A configuration on its way through the rules. Flags by canonical name, without None and False."""

    flags: dict[str, Any]
    env: dict[str, str]
    #: What is known of the node: whether every pair of its GPUs is joined by NVLink.
    nvlink: bool = False
    #: What is known of the model: the architecture that its config.json names.
    architecture: str | None = None
    rewrites: list[Rewrite] = field(default_factory=list)

    def get(self, flag: str, default: Any = None) -> Any:
        """A flag's present value."""
        return self.flags.get(flag, default)

    def rewrite(self, flag: str, becomes: Any, log_line: str | None = None) -> None:
        """Set a flag as the server does (None removes it); nothing happens if it has that value already."""
        asked = self.flags.get(flag)
        if asked == becomes:
            return
        if becomes is None:
            del self.flags[flag]
        else:
            self.flags[flag] = becomes
        self.rewrites.append(Rewrite(flag, asked, becomes, log_line))

    @property
    def algorithm(self) -> str | None:
        """The speculative algorithm, upper-case; None without speculation."""
        name = self.flags.get("speculative-algorithm")
        return None if name is None else str(name).upper()

    @property
    def attention_backends(self) -> tuple[str | None, str | None]:
        """The backends of prefill and decode as far as they are named (`attention_backends_of` in 0.5.23)."""
        both = self.flags.get("attention-backend")
        return self.flags.get("prefill-attention-backend") or both, self.flags.get("decode-attention-backend") or both

    @property
    def on_cpu(self) -> bool:
        """Whether the server is told to run without a GPU."""
        return str(self.flags.get("device", "")).startswith("cpu")

    @property
    def attention_dp(self) -> int:
        """Width of data-parallel attention; 1 is off."""
        return int(self.flags.get("attn-dp-size", 1))

    @property
    def nccl_ranks(self) -> int:
        """Ranks that talk through NCCL; 1 means that it is not used."""
        return int(self.flags.get("tp-size", 1)) * int(self.flags.get("pp-size", 1))

    @property
    def model_name(self) -> str | None:
        """The model path's last part in lower case; None where the path is not given."""
        path = self.flags.get("model-path")
        return None if path is None else str(path).rstrip("/").rsplit("/", 1)[-1].lower()
