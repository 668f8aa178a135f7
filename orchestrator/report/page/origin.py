"""Where the figures come from: the study, the node, the versions, what was asked of the servers, and how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC

from orchestrator.report.page.view import View


def provenance(view: View) -> list[tuple[str, str]]:
    """Names and values, for a list of definitions and for Markdown alike."""
    config = view.config
    starts = [row.start for row in view.rows]
    stamps = sorted(s.started_at for s in starts if s.started_at is not None)
    ends = sorted(row.level.measured_at for row in view.rows if row.level is not None)
    found: list[tuple[str, str]] = [("Study", f"{config.study}, id {view.kept.study_id}"), ("Model", config.model)]
    if view.simulated:
        profiles = {row.trial.profile for row in view.rows if row.trial.profile}
        found.append(("Server", f"simulated, profile {_several(profiles) or 'not told'}: no figure is a GPU's"))
    else:
        found.append(("Server", "SGLang"))
    if stamps:
        last = max([*stamps[-1:], *ends[-1:]]).astimezone(UTC)
        found.append(("When", f"{stamps[0].astimezone(UTC):%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"))
    hosts = _several(s.host for s in starts if s.host)
    if hosts:
        found.append(("Node", hosts))
    cards = {s.gpu_names for s in starts if s.gpu_names}
    if cards:
        note = " (as the profile has it)" if view.simulated else ""
        found.append(("GPUs", "; ".join(_counted(names) for names in sorted(cards)) + note))
    elif starts:
        found.append(("GPUs", "none"))
    versions: dict[str, set[str]] = {}
    for start in starts:
        for package, version in start.versions.items():
            versions.setdefault(package, set()).add(version)
    if versions:
        found.append(("Versions", ", ".join(f"{package} {_several(v)}" for package, v in sorted(versions.items()))))
    workload = config.workload
    dataset = workload.dataset.model_dump(by_alias=True, exclude_none=True)
    found.append(("Prompts", f"{workload.api} API, {_pairs(_flat(dataset))}"))
    found.append(("Loads", ", ".join(load.label for load in workload.ladder)))
    level = workload.level
    until = f", until the 95 % interval is within ±{100 * level.half_width:g} %" if level.half_width else ""
    found.append(
        (
            "A level",
            f"{level.requests_per_user} requests a user and {level.min_s:g} s at least{until}, {level.max_s:g} s at "
            f"most; {level.warmup_requests_per_user} request(s) a user before that are not counted",
        )
    )
    sampling = workload.sampling
    found.append(("Sampling", f"temperature {sampling.temperature:g}, ignore_eos {str(sampling.ignore_eos).lower()}"))
    found.append(("Score", str(config.score.objective)))
    if config.constraints:
        found.append(("Constraints", ", ".join(map(str, config.limits))))
    found.append(("Search", f"{config.sampler.kind}, seed {config.sampler.seed}, budget {config.budget.trials} trials"))
    fixed = {**config.server.flags, **config.server.env}
    if fixed:
        found.append(("Every server", _pairs(fixed)))
    return found


def _flat(data: Mapping[str, object]) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in data.items():
        if isinstance(value, Mapping):
            inner = {k: v for k, v in value.items() if v is not None}
            flat[name] = next(iter(inner.values())) if len(inner) == 1 else _pairs(inner)
        else:
            flat[name] = value
    return flat


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _several(values: Iterable[str]) -> str:
    return ", ".join(sorted(set(values)))


def _counted(names: tuple[str, ...]) -> str:
    kinds = dict.fromkeys(names)
    return ", ".join(f"{names.count(kind)}× {kind}" for kind in kinds)
