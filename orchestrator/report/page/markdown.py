"""The summary for a pull request: the answer, the pictures, the figures at each load, the findings, the command."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from orchestrator.analysis.comparisons import percent
from orchestrator.analysis.finding import Finding
from orchestrator.report.page.chart import numeral
from orchestrator.report.page.contents import Contents

#: Of a group of findings so many are told.
_MOST = 6
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


def summary(contents: Contents, pictures: Sequence[tuple[PurePosixPath, str]]) -> str:
    """The report as Markdown; `pictures` with their text, paths from the summary's own folder."""
    view = contents.view
    lines = [f"# {escaped(view.config.study)}: {escaped(view.answer.headline)}", ""]
    if view.simulated:
        lines += ["> **Simulated.** Every figure here comes from the simulated server, none from a GPU.", ""]
    lines += [*(escaped(sentence) for sentence in view.answer.sentences), ""]
    # Each sentence a paragraph of its own would be many; a line break is enough.
    lines += [f"![{escaped(text)}]({path})" for path, text in pictures]
    if pictures:
        lines.append("")
    lines += _ladder(contents)
    for name, found in contents.findings:
        lines += [f"## {escaped(name)}", "", *(_finding(finding) for finding in found[:_MOST])]
        if len(found) > _MOST:
            lines.append(f"- … and {len(found) - _MOST} more in report.html")
        lines.append("")
    if contents.commands:
        lines += ["## Launch it" + (" (the baseline)" if view.answer.best == 0 else ""), ""]
        for what, command in contents.commands:
            lines += [f"{escaped(what)}:", "", *_fenced(command), ""]
    lines += ["## Where the figures come from", "", "| | |", "|---|---|"]
    lines += [f"| {escaped(name)} | {escaped(value)} |" for name, value in contents.provenance]
    return "\n".join(lines) + "\n"


def _ladder(contents: Contents) -> list[str]:
    ladder = contents.ladders.get("throughput")
    if ladder is None:
        return []
    loads = sorted({point.load for line in ladder.lines for point in line.points})
    lines = [
        f"| {escaped(ladder.y_title)} | {' | '.join(load.label for load in loads)} | settings |",
        f"|---|{'---:|' * len(loads)}---|",
    ]
    # Fresh starts stand beside the baseline's of their rounds.
    base = {(line.afresh, p.load): p.value for line in ladder.lines if line.trial == 0 for p in line.points}
    for line in ladder.lines:
        own = {point.load: point.value for point in line.points}
        cells = []
        for load in loads:
            value = own.get(load)
            beside = base.get((line.afresh, load)) if line.trial else None
            gain = f" ({percent(value / beside)} %)" if value and beside else ""
            cells.append(f"{numeral(value)}{gain}")
        lines.append(f"| {escaped(line.label)} | {' | '.join(cells)} | {escaped(line.settings)} |")
    return [*lines, ""]


def _finding(finding: Finding) -> str:
    return f"- {escaped(finding.text)} ({escaped(finding.rows_text)})"


def escaped(text: str) -> str:
    """Text from outside as text, whatever it holds, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split())).replace("\\<", "&lt;").replace("\\>", "&gt;")


def _fenced(command: str) -> list[str]:
    ticks = max((len(run) for run in re.findall(r"`+", command)), default=0)
    fence = "`" * max(3, ticks + 1)
    return [f"{fence}bash", command, fence]
