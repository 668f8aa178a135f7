"""One error type per remedy. All survive pickling, since Ray carries them between processes."""

from __future__ import annotations

from launchers.base import Phase


class LaunchError(Exception):
    """A start that did not become a ready server. `kind` names the remedy's class in results."""

    kind = "unknown"

    def __init__(
        self, message: str, *, phase: Phase = Phase.SPAWNED, exit_code: int | None = None, tail: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.phase = phase
        self.exit_code = exit_code
        #: The last lines the server printed.
        self.tail = tail

    def __reduce__(self) -> tuple[object, ...]:
        state = {"phase": self.phase, "exit_code": self.exit_code, "tail": self.tail}
        return (_rebuild, (type(self), self.message, state))


def _rebuild(kind: type[LaunchError], message: str, state: dict[str, object]) -> LaunchError:
    error = kind(message)
    error.__dict__.update(state)
    return error


class CannotRun(LaunchError):
    """The command or its log cannot even be opened: every trial would meet it. Stop the study."""

    kind = "cannot_run"


class BadArgument(LaunchError):
    """The server does not know a flag or a value: every trial would carry it. Stop the study."""

    kind = "bad_argument"


class InvalidCombination(LaunchError):
    """The server refuses this combination of known settings. Permanent for this configuration only."""

    kind = "invalid_combination"


class OutOfMemory(LaunchError):
    """The configuration does not fit into memory. Permanent for this configuration."""

    kind = "out_of_memory"


class StartTimeout(LaunchError):
    """The deadline passed before the server was ready."""

    kind = "start_timeout"


class ServerCrashed(LaunchError):
    """The server ended by itself, for a reason its log does not class."""

    kind = "crashed"


class StartCancelled(LaunchError):
    """The start was given up because the sweep is stopping. Says nothing about the configuration."""

    kind = "cancelled"


class PortTaken(LaunchError):
    """Another program holds the port. Nothing about the configuration: try again on another one."""

    kind = "port_conflict"


class NotStopped(LaunchError):
    """Processes of a failed start are still there: the node is not fit for another start."""

    kind = "not_stopped"
