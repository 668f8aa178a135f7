"""Errors lead to a remedy by their kind, and arrive whole in another process."""

from __future__ import annotations

import pickle

import pytest

from launchers import errors
from launchers.base import Phase
from launchers.errors import LaunchError, OutOfMemory, Remedy, remedy_of

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, LaunchError) and kind is not LaunchError
]


def example(kind: type[LaunchError]) -> LaunchError:
    return kind(
        "token-1 did not fit",
        phase=Phase.KV_POOL,
        exit_code=-9,
        lines=("ValueError: token-1", "second"),
        hint="keep token-1 small",
        detail="raise",
        tail="a\ntoken-1\nb",
        log="abc.log",
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_an_error_travels_whole(kind: type[LaunchError]) -> None:
    error = example(kind)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert vars(copy) == vars(error)
    assert str(copy) == "token-1 did not fit: keep token-1 small (log: abc.log)"


#: The names stand in result files: they do not change.
REMEDIES = {
    Remedy.RETRY_HERE: {
        "cancelled",
        "gpu_busy_ours",
        "nccl_unknown",
        "not_ours",
        "port_conflict",
        "ready_but_no_generation",
        "server_unreachable",
        "unknown",
    },
    Remedy.RETRY_ELSEWHERE: {
        "crashed",
        "cuda_error",
        "gpu_busy",
        "killed_from_outside",
        "nccl_timeout",
        "stalled",
        "watchdog_hang",
    },
    Remedy.INFEASIBLE: {
        "invalid_combination",
        "nccl_algorithm",
        "nccl_nvls",
        "out_of_host_memory",
        "out_of_kv_cache",
        "out_of_memory",
        "start_timeout",
        "unequal_gpus",
        "unsupported",
    },
    Remedy.STOP_STUDY: {
        "bad_argument",
        "cannot_run",
        "disk_full",
        "gpu_busy_other",
        "model_unavailable",
        "not_stopped",
        "shared_memory_full",
    },
}


def test_each_kind_has_a_name_of_its_own_that_leads_to_its_remedy() -> None:
    assert {kind.kind: remedy_of(kind.kind) for kind in KINDS} == {
        name: remedy for remedy, names in REMEDIES.items() for name in names
    }
    assert len({kind.kind for kind in KINDS}) == len(KINDS)
    assert remedy_of("node_lost") is None
    assert remedy_of(None) is None


def test_the_log_of_a_start_is_named_in_the_message() -> None:
    error = OutOfMemory("it did not fit")
    assert str(error) == "it did not fit"
    assert str(error.logged_in("0a1b.log")) == "it did not fit (log: 0a1b.log)"
