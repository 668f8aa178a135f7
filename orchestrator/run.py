"""One run of a study: lock, folder, cluster, conductor and display wired together."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import logging
import os
import shlex
import signal
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import ray

from launchers.base import shell_command
from launchers.preflight import NodeRequest
from launchers.process import stop_leftovers
from orchestrator import lock
from orchestrator.analysis.finding import settings_text
from orchestrator.analysis.journal import lost_text
from orchestrator.attributes import note_text, study_attributes
from orchestrator.benchmark.datasets.prompts import Prompts
from orchestrator.board import Stop, start_board
from orchestrator.cluster import Bridge, Cluster, ClusterError, cluster, nodes_for, run_trials, whole_node
from orchestrator.conductor import Conductor, Finished, Identification
from orchestrator.inspection import inspect_nodes
from orchestrator.live_file import LiveFile, State, live_path
from orchestrator.plan import Reservation, StudyContext, TrialPlan, make_launcher
from orchestrator.prompts import load_prompts, prompt_warnings, sent_ids
from orchestrator.report.console import own_terminal
from orchestrator.report.ending import keep_report
from orchestrator.report.progress import Display, make_display, trial_line
from orchestrator.report.summary import REASONS, fixed_settings, print_summary
from orchestrator.reporter import Reporter
from orchestrator.resolve import Resolved
from orchestrator.results.store import ResultStore
from orchestrator.search.storage import open_storage, shown_url
from orchestrator.search.study import Study
from orchestrator.study_folder import move_aside, open_folder

logger = logging.getLogger(__name__)

_TICK_S = 0.4
_RENEW_S = 15.0
#: How long no node may be there before the study gives up waiting for one.
_NO_NODE_S = 120.0
#: A paste-ready command has a port of its own.
_PORT = 30_000


def run_sweep(resolved: Resolved, options: argparse.Namespace) -> int:
    """Run or continue the study; the exit code. Raises the errors that `orchestrator.sweep` translates."""
    config = resolved.config
    prompts = load_prompts(config, Path.cwd())
    root = options.results.resolve() / config.study
    run_id = uuid.uuid4().hex[:12]
    owner = lock.owner_of_this_process(run_id)
    lock_file = ResultStore(root).lock
    with lock.study_lock(lock_file, owner):
        if options.fresh:
            moved = move_aside(root, lock_file)
            if moved:
                print(f"The old study was moved to {moved}")
        with own_terminal(root / "logs" / "ray.log") as console:
            display = make_display(console)
            store = ResultStore(root, on_message=display.say)
            live = LiveFile(live_path(root), owner, command_again(options), display.say)
            try:
                study_id = open_folder(store, config, str(options.space), prompts.digest)
                storage = open_storage(options.storage or f"sqlite:///{store.study_db}")
                study = Study(storage, f"{config.study}-{study_id}", config)
                run = _Run(resolved, study, store, study_id, run_id, owner, display, prompts, live)
                ended = run.execute(options.address)
                run.conclude(ended)
            except KeyboardInterrupt:
                live.end("interrupted", "interrupted at once")
                raise
            except Exception as error:
                live.end("failed", str(error))
                raise
            finally:
                display.close()
            results = store.rebuild(config.objectives, config.limits)
            run.conductor.write_journal(results.rows, alive=False)
            print_summary(console, config, store, results, ended)
            keep_report(console, root, options.storage)
            return 130 if ended == "stopped" else 0


class _Run:
    """The moving parts of one run."""

    def __init__(
        self,
        resolved: Resolved,
        study: Study,
        store: ResultStore,
        study_id: str,
        run_id: str,
        owner: dict[str, Any],
        display: Display,
        prompts: Prompts,
        live: LiveFile,
    ) -> None:
        config = resolved.config
        self._live = live
        self._prompts = prompts
        self._resolved = resolved
        self._config = config
        self._owner = owner
        self._display = display
        self._signals = 0
        self._asked = Stop.NO
        self._searching = False
        self._node_seen = time.monotonic()
        self._fatal: ClusterError | None = None
        self._board: Any = None
        self._fixed = fixed_settings(config)
        self._context = StudyContext(
            study=config.study,
            study_id=study_id,
            run_id=run_id,
            launcher=resolved.launcher,
            workload=config.workload,
            model=config.model,
            logs=store.logs,
            gpus=config.node.gpus,
            reservation=Reservation("GPU", config.node.gpus),
            folder=Path.cwd(),
        )
        launcher = make_launcher(resolved.launcher, store.logs, Path.cwd())

        def command(plan: TrialPlan) -> str:
            return shell_command(*launcher.command(self._context.spec(plan), _PORT))

        profile = getattr(resolved.launcher, "profile", None)
        self.conductor = Conductor(
            config,
            study,
            store,
            Identification(study_id, resolved.simulated, profile, command),
            nodes=lambda: len(nodes_for(self._context.reservation)),
            fetch=lambda ordinal, c: ray.get(self._board.take.remote(ordinal, c)),
            keep=lambda ordinal, kept: ray.get(self._board.keep.remote(ordinal, kept)),
            on_end=self._ended,
        )
        self._reporter = Reporter(config, resolved.simulated, self.conductor, display)

    def conclude(self, ended: str) -> None:
        """The last word on the run, for whoever looks from outside."""
        state: State = "interrupted" if ended == "stopped" else "finished"
        snapshot = self._reporter.snapshot(over=True)
        self._live.end(state, REASONS.get(ended, ended), snapshot)
        self._describe([finding.text for finding in snapshot.results.findings])

    def _attributes(self) -> dict[str, str]:
        return study_attributes(self._config, str(self.conductor.store.root), self._resolved.simulated)

    def _describe(self, found: Sequence[str] = ()) -> None:
        """What optuna-dashboard shows of the study."""
        attributes = self._attributes()
        self.conductor.study.describe(attributes, note_text(self._config, attributes, found))

    def execute(self, address: str | None) -> str:
        """Run trials until the search ends; why it ended."""
        conductor = self.conductor
        self._claim()
        self._live.begin()
        left = stop_leftovers(self._context.study_id, self._context.run_id)
        if left:
            self._display.say(f"stopped {len(left)} processes that an earlier run of this study left")
        again = conductor.resume()
        self._reporter.resumed()
        self._describe()
        self._live.begin(self._reporter.snapshot(over=True))
        if again:
            self._display.say(f"continuing: interrupted trials run again: {', '.join(map(str, again))}")
        if conductor.lost:
            self._display.say(f"warning: {lost_text(conductor.lost)} measured again")
        if conductor.nothing_left():
            return conductor.ended or "budget"
        flags, _ = conductor.study.configurations.values()
        for line in (*prompt_warnings(self._config.workload, flags), *self._prompts.warnings):
            self._display.say(f"warning: {line}")
        logical = self._config.node.gpus if self._resolved.simulated else None
        self._display.say(f"joining the Ray cluster at {address}" if address else "starting a local Ray cluster")
        with (
            handlers(self._count_signal),
            cluster(address, self._config.study, logical, self._about()) as joined,
            handlers(
                self._count_signal  # Ray has set its own
            ),
        ):
            for line in joined.warnings:
                self._display.say(f"warning: {line}")
            token = f"; token: {joined.token_command}" if joined.token_command else ""
            self._display.say(f"Ray dashboard: {joined.dashboard_url}{token}")
            self._context = dataclasses.replace(self._context, reservation=whole_node(self._config.node.gpus))
            self._inspect_nodes()
            self._board = start_board(self._config.study, self._prompts, simulated=self._resolved.simulated)
            bridge = Bridge(conductor, give_up=lambda: self._board.stop.remote(Stop.NOW))
            self._node_seen = time.monotonic()
            try:
                with self._ticking(joined):
                    run_trials(bridge, self._context, self._board)
            finally:
                # The cause, whatever Tune makes of it.
                cause = self._fatal or bridge.error
                if cause is not None:
                    logger.error("the study failed", exc_info=cause)
                    raise cause
        return conductor.ended or "budget"

    def _about(self) -> dict[str, str]:
        """What Ray's dashboard shows of the job."""
        kind = "SIMULATED " if self._resolved.simulated else ""
        return {
            "job_name": f"{kind}sweep {self._config.study}",
            "study_id": self._context.study_id,
            "trials": str(self._config.budget.trials),
            **self._attributes(),
        }

    def _claim(self) -> None:
        """Refuse a study that lives elsewhere: the same storage under another folder or host."""
        study = self.conductor.study
        before = study.owner()
        if before and before["run"] != self._owner["run"] and lock.alive(before, time.time()):
            raise lock.StudyBusy(f"another sweep runs this study: {lock.describe(before)}")
        study.claim(self._owner)

    def _inspect_nodes(self) -> None:
        """Look at every node before the first trial. Raises NodesUnfit."""
        self._display.say("looking at the nodes")
        flags, env = self.conductor.study.configurations.values()
        context = self._context
        folders = (context.logs, self.conductor.store.root)
        prompt_ids = sent_ids(context.workload)
        request = NodeRequest(context.model, flags, env, context.gpus, folders, context.folder, prompt_ids)
        facts = inspect_nodes(context, request, nodes_for(context.reservation))
        for line in facts.warnings:
            self._display.say(f"warning: {line}")
        self.conductor.study.know_nodes(nvlink=facts.nvlink, architecture=facts.architecture)

    def _ended(self, done: Finished) -> None:
        self._keep_logs()
        self._reporter.trial_ended()
        levels = [(r.level.load, r.output_tokens_per_s) for r in done.rows if r.level]
        note = done.outcome.failure_message or ""
        text = trial_line(
            done.trial.ordinal,
            done.trial.role,
            done.how,
            note[:400],
            levels,
            settings_text(done.rows[0], self._fixed),
        )
        self._display.say(text)

    def _keep_logs(self) -> None:
        """Of starts on nodes that do not see the study's folder."""
        for name, text in ray.get(self._board.take_logs.remote()).items():
            try:
                (self._context.logs / Path(name).name).write_bytes(text)
            except OSError as error:
                self._display.say(f"warning: the log {name} is lost, since it cannot be written: {error}")

    # ---- signals and the tick --------------------------------------------------------------------------

    def _count_signal(self, number: int, frame: FrameType | None) -> None:
        """Once: finish the level, then stop. Twice: stop now. Once more, or with nothing to stop: leave as it is.

        What leaves is safe as well: guards stop the servers, and the next run puts the rest in order.
        """
        self._signals += 1
        if self._signals > Stop.NOW or self._fatal or not self._searching:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def _ticking(self, joined: Cluster) -> Iterator[None]:
        """A thread beside Tune: shows the state, passes signals on, renews the claim."""
        over = threading.Event()

        def tick() -> None:
            renewed = time.monotonic()
            while not over.wait(_TICK_S):
                try:
                    self._pass_signals_on()
                    self._watch_nodes()
                    if time.monotonic() - renewed > _RENEW_S:
                        renewed = time.monotonic()
                        joined.renew()
                        self.conductor.study.claim(self._owner | {"renewed": time.time()})
                    self._reporter.tell(self._board, self._live, min(self._signals, Stop.NOW))
                except Exception:
                    logger.warning("tick: %s", traceback.format_exc())

        thread = threading.Thread(target=tick, name="tick", daemon=True)
        thread.start()
        self._searching = True
        try:
            yield
        finally:
            self._searching = False
            over.set()
            thread.join()

    def _pass_signals_on(self) -> None:
        wanted = Stop(min(self._signals, Stop.NOW))
        if wanted > self._asked:
            self._asked = wanted
            self.conductor.finish("stopped")
            ray.get(self._board.stop.remote(wanted))
            self._display.say("stopping after this level" if wanted is Stop.AFTER_LEVEL else "stopping now")

    def _watch_nodes(self) -> None:
        """Tune waits for ever for a node that does not come (back); the study does not."""
        now = time.monotonic()
        wanted = self._context.reservation
        if nodes_for(wanted):
            self._node_seen = now
        elif now - self._node_seen > _NO_NODE_S and self._fatal is None:
            self._fatal = ClusterError(
                f"no node with {wanted.amount} {wanted.resource}s has been there for {_NO_NODE_S:.0f} s. Bring one "
                "back and run the same command again: what was measured is kept"
            )
            os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def handlers(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """INT and TERM go to the handler."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def command_again(options: argparse.Namespace) -> str:
    """The command that continues the study; a password in the storage's URL is left out."""
    words = ["python", "-m", "orchestrator.sweep", str(options.space)]
    given = {
        "--trials": options.trials,
        "--time-budget": options.time_budget,
        "--results": None if options.results == Path("results") else options.results,
        "--storage": shown_url(options.storage) if options.storage else None,
        "--address": options.address,
        "--launcher": options.launcher,
    }
    for name, value in given.items():
        words += [] if value is None else [name, str(value)]
    return shlex.join(words)
