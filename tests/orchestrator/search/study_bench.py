"""Studies on a real SQLite file, and drivers that fall dead in the middle."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.config import SweepConfig
from orchestrator.search.storage import Patience, open_storage
from orchestrator.search.study import Study

#: 2 x (1 + 12) points; (5, 1, 4) and (5, 1, 8) are one server, topk 4 with 2 steps of 64 tokens is refused.
CONDITIONAL: dict[str, Any] = {
    "flags": {
        "schedule-policy": {"choices": ["fcfs", "lpm"]},
        "speculative-algorithm": {"choices": [None, "EAGLE3"]},
        "speculative-num-steps": {"choices": [2, 5], "when": {"speculative-algorithm": "EAGLE3"}},
        "speculative-eagle-topk": {"choices": [1, 4], "when": {"speculative-algorithm": "EAGLE3"}},
        "speculative-num-draft-tokens": {"choices": [4, 8, 64], "when": {"speculative-algorithm": "EAGLE3"}},
    }
}


def make_config(space: dict[str, Any] | None = None, **over: Any) -> SweepConfig:
    """A small sweep over `CONDITIONAL` or another space."""
    return SweepConfig.model_validate(
        {
            "study": "s",
            "model": "m",
            "server": {"flags": {"speculative-draft-model-path": "d"}},
            "space": space or CONDITIONAL,
            "score": {"metric": "output_tokens_per_s", "concurrency": 8},
            "sampler": {"kind": "random", "seed": 3},
            **over,
        }
    )


class Bench:
    """One database of one test, opened as often as there are drivers."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "study.db"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.file}"

    def study(self, config: SweepConfig | None = None, name: str = "s", patience: Patience | None = None) -> Study:
        return Study(open_storage(self.url, patience), name, config or make_config())

    def dies(
        self,
        body: Callable[[Study], None],
        config: SweepConfig | None = None,
        write: int | None = None,
        first: Callable[[Study], None] = lambda study: None,
    ) -> bool:
        """Run `body` in a process of its own that is killed with KILL before its `write`-th write, or at its end.

        `first` comes before it, with writes that do not count. Whether it was killed.
        """
        pid = os.fork()
        if pid == 0:
            code = 3
            try:
                warnings.simplefilter("error")
                study = self.study(config)
                first(study)
                if write is not None:
                    _deadly(study, write)
                body(study)
                code = 0
            except BaseException as error:
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
            finally:
                if code == 0 and write is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the driver failed: see its stderr"
        return os.WIFSIGNALED(status)


_WRITES = (
    "create_new_trial",
    "set_trial_param",
    "set_trial_user_attr",
    "set_trial_system_attr",
    "set_trial_state_values",
)


def _deadly(study: Study, write: int) -> None:
    """Kill this process before its write of that number (0: the first), then make no other."""
    storage, left = study._study._storage, [write]

    def guard(inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return inner(*arguments, **named)

        return call

    for name in _WRITES:
        setattr(storage, name, guard(getattr(storage, name)))
