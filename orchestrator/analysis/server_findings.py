"""What to know of the servers: what they ran instead of what was asked, what they gave out, how they failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from orchestrator.analysis.agreement import lossy_thresholds
from orchestrator.analysis.effective import MAX_RUNNING, Difference, differences
from orchestrator.analysis.finding import Finding, rows_behind, rows_of, trials_text
from orchestrator.analysis.rows import MeasuredLevel, Row, by_trial


def outputs(rows: Sequence[Row]) -> list[Finding]:
    """Trials whose output is not the baseline's, and those whose output could not be compared."""
    found, unchecked = [], []
    for trial, group in by_trial(rows).items():
        start = group[-1].start
        if start.output_differs:
            found.append(_wrong_output(trial, group))
        elif start.output_differs is None and any(row.level for row in group):
            unchecked.append(trial)
    if unchecked:
        text = f"Whether the output is right was not compared with the baseline's: {trials_text(unchecked)}."
        found.append(Finding("output_unchecked", text, {"trials": unchecked}, rows_of(rows, unchecked)))
    return found


def _wrong_output(trial: int, group: Sequence[Row]) -> Finding:
    start = next(row.start for row in group if row.start.output_differs)
    share, own = start.output_agreement, start.output_self_agreement
    data = {"trial": trial, "agreement": share, "self_agreement": own}
    if lossy_thresholds(group[0].trial.canonical_flags):
        text = (
            f"Trial {trial} accepts drafted tokens that the model itself would not have drawn (its acceptance "
            "thresholds are below 1): it is not compared."
        )
    else:
        text = (
            f"The output of trial {trial} is not the baseline's: of its greedy tokens {_share(share)} are the same, "
            f"of the baseline's own in another batch {_share(own)}. However fast, it is not compared."
        )
    return Finding("output_differs", text, data, rows_behind(group))


def _share(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.0f} %"


def settings(rows: Sequence[Row]) -> list[Finding]:
    """Settings not in force as asked, one finding a difference; those that no rule knows first."""
    groups: dict[tuple[bool, str], list[tuple[int, Difference]]] = {}
    for trial, group in by_trial(rows).items():
        for difference in differences(group[-1]):
            # A cap that nobody asked for is only worth a word where it was felt, which `causes.admission` says.
            if not (difference.asked is None and difference.name == MAX_RUNNING):
                groups.setdefault((difference.known, difference.text), []).append((trial, difference))
    found = []
    for (known, text), members in sorted(groups.items(), key=lambda group: group[0]):
        trials = [trial for trial, _ in members]
        first = members[0][1]
        data = {"name": first.name, "asked": first.asked, "in_force": first.in_force, "trials": trials}
        end = "" if known else "; no rule explains it"
        kind = "setting_rewritten" if known else "setting_unexpected"
        found.append(Finding(kind, f"{text} ({trials_text(trials)}){end}.", data, rows_of(rows, trials)))
    return found


def partial_acceptance(rows: Sequence[Row]) -> list[Finding]:
    """Acceptance lengths that only some data-parallel ranks told."""
    levels = rows_behind(r for r in rows if r.level and r.level.metrics.accept_partial)
    if not levels:
        return []
    text = (
        f"The accept length of {len(levels)} level(s) is that of some data-parallel ranks only, the others told none "
        f"({trials_text({trial for trial, _ in levels})})."
    )
    return [Finding("accept_partial", text, {"levels": list(levels)}, levels)]


def disagreements(rows: Sequence[Row]) -> list[Finding]:
    """Where the rules are wrong about this version of the server."""
    first: dict[str, int] = {}
    for trial, group in by_trial(rows).items():
        for text in group[-1].start.rule_disagreements:
            first.setdefault(text, trial)
    return [
        Finding(
            "rules_disagree",
            f"Trial {trial}, a rule of ours to be mended: {text}",
            {"trial": trial},
            rows_of(rows, [trial]),
        )
        for text, trial in first.items()
    ]


def leftovers(rows: Sequence[Row]) -> list[Finding]:
    """Trials whose server left something behind."""
    trials = [trial for trial, group in by_trial(rows).items() if group[-1].start.stop_proven is False]
    if not trials:
        return []
    text = f"Of the server of {trials_text(trials)} something was left after its end: see stop_report."
    return [Finding("not_stopped", text, {"trials": trials}, rows_of(rows, trials))]


def failures(rows: Sequence[Row]) -> list[Finding]:
    """Trials that failed or cannot run, one finding a class."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for group in by_trial(rows).values():
        outcome = group[0].outcome
        if outcome.state in ("failed", "infeasible"):
            groups.setdefault((outcome.state, outcome.failure_kind or "unknown"), []).append(group[0])
    found = []
    for (state, kind), members in sorted(groups.items()):
        trials = [row.trial.trial for row in members]
        what = "failed" if state == "failed" else "cannot run"
        message = next((r.outcome.failure_message for r in members if r.outcome.failure_message), None)
        text = f"{len(trials)} trial(s) {what} ({kind}): {trials_text(trials)}."
        text += f" The first: {message}" if message else ""
        data = {"state": state, "failure": kind, "trials": trials}
        found.append(Finding("failed_trials", text, data, rows_of(rows, trials)))
    return found


def failed_requests(rows: Sequence[Row]) -> list[Finding]:
    """Levels in which requests failed."""
    found = []
    for row in rows:
        if row.level is None or not row.level.metrics.requests_failed:
            continue
        metrics = row.level.metrics
        kinds = ", ".join(f"{kind} {count}" for kind, count in Counter(metrics.errors_by_kind).most_common())
        text = (
            f"Trial {row.trial.trial} at {metrics.load.label}: {metrics.requests_failed} of "
            f"{metrics.requests_total} requests failed{f' ({kinds})' if kinds else ''}"
            f"{'' if row.level.comparable else '; its numbers are not compared'}."
        )
        text += f" The first: {metrics.first_error}" if metrics.first_error else ""
        data = {
            "trial": row.trial.trial,
            "level": metrics.load.label,
            "failed": metrics.requests_failed,
            "total": metrics.requests_total,
        }
        found.append(Finding("failed_requests", text, data, rows_behind([row])))
    return found


#: A difference between the server's counts and the load generator's is worth a word above this share.
_COUNTS_DIFFER = 0.01


def counts(rows: Sequence[Row]) -> list[Finding]:
    """Levels of which server and load generator count differently: one of them measured something else."""
    found = []
    for row in rows:
        metrics = row.level.metrics if row.level is not None else None
        if metrics is None:
            continue
        for what in ("requests", "prompt_tokens", "output_tokens"):
            server, client = getattr(metrics, f"counter_{what}"), getattr(metrics, f"client_{what}")
            if server is None or not client or abs(server - client) <= _COUNTS_DIFFER * client:
                continue
            text = (
                f"Trial {row.trial.trial} at {metrics.load.label}: the server counted {server:,} "
                f"{what.replace('_', ' ')}, the load generator {client:,} ({100 * (server / client - 1):+.1f} %)."
            )
            data = {"trial": row.trial.trial, "level": metrics.load.label, "server": server, "client": client}
            found.append(Finding("counts_differ", text, data | {"what": what}, rows_behind([row])))
    return found


def client_limits(rows: Sequence[Row]) -> list[Finding]:
    """Levels in which the load generator was measured, not the server."""
    return _of_levels(rows, "client_limited", lambda level: level.client_limited, "is not compared")


def unmeasured(rows: Sequence[Row]) -> list[Finding]:
    """Levels that ran to their end and measured nothing, for which no server is to blame."""
    return _of_levels(rows, "unmeasured", lambda level: level.unmeasured, "has no figures")


def _of_levels(
    rows: Sequence[Row], kind: str, why_of: Callable[[MeasuredLevel], str | None], says: str
) -> list[Finding]:
    found = []
    for row in rows:
        if row.level is not None and (why := why_of(row.level)) is not None:
            text = f"Trial {row.trial.trial} at {row.level.load.label} {says}: {why}."
            data = {"trial": row.trial.trial, "level": row.level.load.label}
            found.append(Finding(kind, text, data, rows_behind([row])))
    return found


def repeated_prompts(rows: Sequence[Row]) -> list[Finding]:
    """Levels that sent prompts again, which a prefix cache answers in part."""
    levels = {
        (row.trial.trial, row.level.load.label): row.level.repeated_prompts
        for row in rows
        if row.level is not None and row.level.repeated_prompts
    }
    if not levels:
        return []
    text = (
        f"The dataset had too few prompts for {len(levels)} level(s): up to {max(levels.values()):,} were sent again, "
        f"and the prefix cache may have known them ({trials_text({trial for trial, _ in levels})})."
    )
    behind = rows_behind(row for row in rows if row.level is not None and row.level.repeated_prompts)
    return [Finding("repeated_prompts", text, {"levels": list(levels)}, behind)]


def used_up_prompts(rows: Sequence[Row]) -> list[Finding]:
    """Levels that ended where their prompts did, before their throughput was known as well as asked."""
    behind = rows_behind(row for row in rows if row.level is not None and row.level.metrics.ended_by == "prompts")
    if not behind:
        return []
    text = (
        f"{len(behind)} level(s) ended where the dataset's prompts did, none of which is sent twice: their throughput "
        f"is known less well than asked ({trials_text({trial for trial, _ in behind})}). More prompts would tell, or "
        "fewer requests (workload.level)."
    )
    return [Finding("prompts_used_up", text, {"levels": list(behind)}, behind)]


def warm_levels(rows: Sequence[Row]) -> list[Finding]:
    """Levels that did not begin with a cache known to be cold."""
    found = []
    for state, text in (
        ("warm", "found prompts in the prefix cache that were there before; their numbers are not compared"),
        ("unknown", "began with a prefix cache of which nothing is known; their numbers are not compared"),
        ("unique", "began without a confirmed flush of the prefix cache, but found nothing in it"),
    ):
        levels = rows_behind(row for row in rows if row.level is not None and row.level.cache_state == state)
        if levels:
            sentence = f"{len(levels)} level(s) {text} ({trials_text({trial for trial, _ in levels})})."
            found.append(Finding(f"cache_{state}", sentence, {"levels": list(levels)}, levels))
    return found
