"""A node before the first trial of a real SGLang: the machine, the interpreter, the flags, and the models' files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from launchers.gpus import gpu_names
from launchers.node_state import look_at_node
from launchers.preflight import NodeReport, NodeRequest, judge_node
from launchers.sglang.flag_check import Flag, check_flags, deprecated_flags
from launchers.sglang.inert import inert_knobs
from launchers.sglang.model_files import ModelFiles, NotLocal, find_model
from launchers.sglang.resolver import Resolver, ResolverFailed
from launchers.sglang.rules import ALIASES
from launchers.topology import nvlink_everywhere
from launchers.visible import visible_gpus

#: The version that our rules, failure classes and read-back were written for.
KNOWN_VERSION = "0.5.23"


def check_node(
    request: NodeRequest, inherited: Mapping[str, str], resolver: Resolver, version: str | None
) -> NodeReport:
    """Everything that would spoil the first start, and what a person should know.

    `inherited` is the environment of the node, `version` that of the interpreter's sglang, None where it has
    none. Takes seconds: SGLang is imported to ask for its flags.
    """
    settled = dict(inherited) | {name: str(values[0]) for name, values in request.env.items() if values[0] is not None}
    report = _interpreter(version)
    if version is not None:
        report += _flags(request, resolver)
    found, models = _models(request, settled)
    report += models
    try:
        visible = visible_gpus(settled.get("CUDA_VISIBLE_DEVICES"), request.gpus, gpu_names())
    except ValueError as error:
        # Which GPUs it would get is not known: they cannot be looked at.
        visible = ""
        report += NodeReport(problems=(str(error),))
    state = look_at_node(visible, request.folders)
    nvlink = nvlink_everywhere([gpu.index for gpu in state.gpus]) if len(state.gpus) > 1 else None
    report += judge_node(
        state,
        on_cpu=request.gpus == 0,
        ranks=_most(request.flags, "tp-size") * _most(request.flags, "pp-size"),
        weight_bytes=sum(model.weight_bytes or 0 for model in found) or None,
        rdma=any(name.startswith("NCCL_IB_") for name in request.env),
    )
    inert = inert_knobs(request.flags, request.env, nvlink=nvlink)
    return report + NodeReport(warnings=tuple(inert), nvlink=nvlink)


def _interpreter(version: str | None) -> NodeReport:
    if version is None:
        return NodeReport(
            problems=("the interpreter has no sglang: install it there, or name another one in launcher.python",)
        )
    if version != KNOWN_VERSION:
        text = f"sglang {version} runs here; its refusals and logs are known for {KNOWN_VERSION}, others may be unknown"
        return NodeReport(warnings=(text,))
    return NodeReport()


def _flags(request: NodeRequest, resolver: Resolver) -> NodeReport:
    try:
        known: tuple[Flag, ...] = resolver.flags()
    except ResolverFailed as error:
        return NodeReport(problems=(f"{error}",))
    return NodeReport(tuple(check_flags(request.flags, known)), tuple(deprecated_flags(request.flags, known)))


def _models(request: NodeRequest, env: Mapping[str, str]) -> tuple[list[ModelFiles], NodeReport]:
    """The target and its largest drafter, and what is missing of any of them."""
    flags = {ALIASES.get(name, name): values for name, values in request.flags.items()}
    weights = "dummy" not in flags.get("load-format", ())
    cache = _only(flags, "download-dir")
    problems: list[str] = []
    warnings: list[str] = []

    def find(name: Any, revision: Any) -> ModelFiles | None:
        try:
            model = find_model(
                str(name),
                env,
                revision=None if revision is None else str(revision),
                cache=None if cache is None else str(cache),
                folder=request.folder,
                weights=weights,
            )
        except NotLocal as error:
            problems.append(str(error))
            return None
        if model is None:
            warnings.append(f"{name} lies elsewhere: whether it is complete cannot be told before it is loaded")
        elif model.weight_bytes is not None and (model.promised_bytes or 0) > model.weight_bytes:
            warnings.append(
                f"the weights in {model.folder} are {model.weight_bytes:,} bytes, and their index promises "
                f"{model.promised_bytes:,}: one may be cut off; download or copy it again if the server cannot read it"
            )
        return model

    target = find(request.model, _only(flags, "revision"))
    drafters = [
        find(name, _only(flags, "speculative-draft-model-revision"))
        for name in dict.fromkeys(flags.get("speculative-draft-model-path", ()))
        if name is not None
    ]
    if target and target.vocab_size is not None and request.prompt_ids > target.vocab_size:
        # 0.5.23 takes the request; its scheduler ends with an IndexError at the first such id.
        problems.append(
            f"prompts would be of token ids below {request.prompt_ids:,}, and {request.model} has "
            f"{target.vocab_size:,}: set workload.dataset.vocab_size to at most that"
        )
    largest = max((d for d in drafters if d), key=lambda d: d.weight_bytes or 0, default=None)
    report = NodeReport(tuple(problems), tuple(warnings), architecture=target.architecture if target else None)
    return [model for model in (target, largest) if model], report


def _only(flags: Mapping[str, Sequence[Any]], name: str) -> Any:
    """The value of a setting that has but one; None otherwise."""
    values = flags.get(name, ())
    return values[0] if len(values) == 1 else None


def _most(flags: Mapping[str, Sequence[Any]], name: str) -> int:
    numbers = [int(v) for n, values in flags.items() if ALIASES.get(n, n) == name for v in values if str(v).isdecimal()]
    return max(numbers, default=1)
