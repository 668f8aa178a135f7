"""The nodes of a cluster before the first trial: each is looked at by a process of its own there."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from launchers.errors import LaunchError
from launchers.preflight import NodeReport, NodeRequest
from launchers.process import stop_leftovers
from orchestrator.plan import StudyContext, make_launcher


class NodesUnfit(RuntimeError):
    """A node would spoil the first start. The text says which, all that is wrong, and what to do."""


@dataclass(frozen=True)
class NodeFacts:
    """What the nodes have in common, for the rules."""

    #: Whether on every node every pair of GPUs is joined by NVLink.
    nvlink: bool
    #: The model's architecture; None where no node knows it.
    architecture: str | None
    #: What a person should know, one line each.
    warnings: tuple[str, ...]


def inspect_nodes(context: StudyContext, request: NodeRequest, node_ids: Iterable[str]) -> NodeFacts:
    """Look at the nodes, all at once; what an earlier run of the study left on them is stopped first.

    Raises NodesUnfit.
    """
    pending = [
        ray.remote(_look)
        .options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False))
        .remote(context, request)
        for node_id in node_ids
    ]
    return common_facts(dict(ray.get(pending)))


def common_facts(reports: dict[str, NodeReport]) -> NodeFacts:
    """The reports by host, as one. Raises NodesUnfit with every problem of every node."""
    problems = [f"{host}: {problem}" for host, report in reports.items() for problem in report.problems]
    if problems:
        raise NodesUnfit("nothing was started, since the first start would fail:\n  " + "\n  ".join(problems))
    several = len(reports) > 1
    warnings = [f"{host}: {text}" if several else text for host, r in reports.items() for text in r.warnings]
    return NodeFacts(
        nvlink=bool(reports) and all(report.nvlink for report in reports.values()),
        architecture=next((report.architecture for report in reports.values() if report.architecture), None),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _look(context: StudyContext, request: NodeRequest) -> tuple[str, NodeReport]:
    """On the node."""
    host = socket.gethostname()
    try:
        stop_leftovers(context.study_id, context.run_id)
        return host, make_launcher(context.launcher, context.logs, context.folder).check_node(request)
    except (LaunchError, RuntimeError) as error:
        return host, NodeReport(problems=(str(error),))
