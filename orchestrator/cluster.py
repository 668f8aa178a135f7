"""Ray: starting or joining a cluster, and letting Tune run the conductor's trials on its nodes."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

# Read by Ray when it is imported: Tune's own tables, loggers and SIGINT handler are off, and a GPU-less
# driver keeps its environment.
os.environ.update(
    RAY_AIR_NEW_OUTPUT="0",
    TUNE_DISABLE_AUTO_CALLBACK_LOGGERS="1",
    TUNE_DISABLE_SIGINT_HANDLER="1",
    TUNE_WARN_SLOW_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S="1e9",
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
)

import ray
from ray import tune
from ray.job_config import JobConfig
from ray.tune.search import Searcher

from launchers.process import Reaper
from orchestrator.conductor import Conductor
from orchestrator.node import NodeTrial
from orchestrator.plan import Report, Reservation, StudyContext

#: The sweep's objects are levels' requests, a few megabytes each. Ray refuses less than 75 MiB.
OBJECT_STORE_BYTES = 128 * 2**20
#: Below this NCCL's own shared-memory segments do not fit either.
_NCCL_SHM_BYTES = 2**30
_MAX_NODE_LOSSES = 2
_CONNECT_S = 10.0


class ClusterError(RuntimeError):
    """Ray cannot be started or joined, or has no node for a trial. The text says what to do."""


@dataclass(frozen=True)
class Cluster:
    """A joined cluster."""

    dashboard_url: str
    #: How to get the dashboard's token; None where it asks for none.
    token_command: str | None
    warnings: tuple[str, ...]
    #: To be called now and then: takes in the processes that Ray has started since.
    renew: Callable[[], None]


def shm_warnings(shm_bytes: int) -> tuple[str, ...]:
    """What a small /dev/shm means, one readable line each. It is a warning, never a reason to stop.

    Ray then keeps its objects in /tmp by itself (seen in Ray 2.60).
    """
    found = []
    size = f"/dev/shm holds {shm_bytes / 2**20:.0f} MiB"
    if shm_bytes < OBJECT_STORE_BYTES:
        found.append(f"{size}: Ray keeps its objects in /tmp instead, which is slower but works")
    if shm_bytes < _NCCL_SHM_BYTES:
        found.append(f"{size}: NCCL needs shared memory too; start the container with --shm-size=16g")
    return tuple(found)


@contextlib.contextmanager
def cluster(
    address: str | None, study: str, logical_gpus: int | None, about: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """Join the cluster at `address`, or start one on this machine, and leave it at the end.

    `logical_gpus` are declared to a cluster that is started here (for the simulated launcher). `about` is what the
    dashboard shows of the job beside its name. Raises ClusterError.
    """
    notes = shm_warnings(shutil.disk_usage("/dev/shm").total) if Path("/dev/shm").is_dir() else ()
    # "local" and never nothing: a bare init follows the address file of a dead cluster for a minute.
    own: dict[str, Any] = {
        "address": "local",
        "object_store_memory": OBJECT_STORE_BYTES,
        "include_dashboard": True,
    }
    if logical_gpus is not None:
        own["num_gpus"] = logical_gpus
    if address is not None:
        _answers(address)
    # When the driver is killed, Ray's agents live on for a minute or more (seen in Ray 2.60).
    reaper = Reaper()
    try:
        info = ray.init(
            **(own if address is None else {"address": address}),
            job_config=JobConfig(metadata={"job_name": f"sweep {study}", "study": study, **(about or {})}),
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=True,
        )
    except BaseException as error:
        reaper.watch()
        ray.shutdown()
        reaper.close()
        if isinstance(error, SystemExit):  # Ray's own handler of TERM, until ours is set again
            raise KeyboardInterrupt from error
        if not isinstance(error, ConnectionError | RuntimeError | ValueError):
            raise
        where = f"joined at {address}" if address else "started here"
        raise ClusterError(f"a Ray cluster cannot be {where}: {error}") from error
    try:
        # Ray 2.60 turns token authentication on for clusters that ray.init starts.
        needs_token = os.environ.get("RAY_AUTH_MODE") == "token"
        reaper.watch()
        yield Cluster(
            dashboard_url=f"http://{info.dashboard_url}" if info.dashboard_url else "not available",
            token_command=f"{_beside_python('ray')} get-auth-token" if needs_token else None,
            warnings=notes,
            renew=reaper.watch,
        )
    finally:
        ray.shutdown()
        reaper.close()


def _beside_python(program: str) -> str:
    """A program of this environment, as a person can call it from here."""
    path = Path(sys.executable).with_name(program)
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def _answers(address: str) -> None:
    """Raise ClusterError where nothing listens: Ray 2.60 itself waits for five minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdecimal():
        return  # "auto" and the like are Ray's own names
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
    except OSError as error:
        raise ClusterError(
            f"a Ray cluster cannot be joined at {address}: {error}. `ray status` on the head node shows its address"
        ) from error


def nodes_for(reservation: Reservation) -> list[str]:
    """Ray's ids of the living nodes that can run a trial."""
    return [node for node, have in _by_node(reservation.resource).items() if have >= reservation.amount]


def whole_node(gpus: int) -> Reservation:
    """All that the largest kind of node has; its CPUs for a server without GPUs.

    Raises ClusterError where no node has that many GPUs.
    """
    resource: Literal["GPU", "CPU"] = "GPU" if gpus else "CPU"
    largest = max(_by_node(resource).values(), default=0)
    if largest < max(gpus, 1):
        raise ClusterError(
            f"a trial needs a node with {max(gpus, 1)} {resource}s; the largest of the cluster has {largest}. Set "
            "node.gpus, or join another cluster with --address"
        )
    return Reservation(resource, largest)


def _by_node(resource: str) -> dict[str, int]:
    """What each living node has of it, by Ray's id."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return {node["NodeID"]: int(node["Resources"].get(resource, 0)) for node in nodes if node["Alive"]}


class Bridge(Searcher):
    """Tune's view of the conductor. Errors are kept, not raised: raised, Tune would end without teardown."""

    def __init__(self, conductor: Conductor, give_up: Any) -> None:
        """`give_up()` asks every node to tear down."""
        super().__init__(metric=None, mode=None)
        self._conductor = conductor
        self._give_up = give_up
        self.error: Exception | None = None

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """The next trial's config; None for not now, FINISHED for the end of the search."""
        with self._keeping():
            plan = self._conductor.next(trial_id)
            if plan is not None:
                return {"plan": plan}
        done = self._conductor.ended or self.error
        return cast("dict[str, Any]", Searcher.FINISHED) if done else None

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """A stage that is not the last."""
        with self._keeping():
            self._conductor.report(trial_id, result["report"])

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """The last stage, or a trial that Tune has given up."""
        report: Report | None = None if error or not result else result.get("report")
        with self._keeping():
            self._conductor.end(trial_id, report)

    @contextlib.contextmanager
    def _keeping(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if self.error is None:
                self.error = error
            self._give_up()

    def __getstate__(self) -> dict[str, Any]:
        # Tune pickles its searcher for Tuner.restore, which is not used.
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Nothing: Optuna's storage is the durable state of the search."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: see `save`."""


def run_trials(bridge: Bridge, context: StudyContext, board: Any) -> None:
    """Let Tune run trials until the conductor ends the search and the last trial is over."""
    prefix = f"sweep-tune-{context.study_id}-"
    # Those of killed runs: the study's lock is held, so none of them is in use.
    for old in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        shutil.rmtree(old, ignore_errors=True)
    scratch = tempfile.mkdtemp(prefix=prefix)
    try:
        tune.Tuner(
            # As it is: what Tune's wrappers make of it has another name in the dashboard.
            NodeTrial,
            param_space={"context": context, "board": board},
            tune_config=tune.TuneConfig(search_alg=bridge, num_samples=-1, reuse_actors=True),
            run_config=tune.RunConfig(
                name=uuid.uuid4().hex[:8],
                storage_path=scratch,
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=_MAX_NODE_LOSSES),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        ).fit()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
