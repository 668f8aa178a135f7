"""The page: one file with everything in it, which asks the network for nothing."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from orchestrator.report.page.contents import Contents

#: Of a group of findings so many stand open.
_MOST_OPEN = 6
#: The only marks of plotly's that its texts may hold; whatever else comes from settings and messages is text.
_OURS = re.compile(r"(<br>|</?b>|<extra></extra>)")


def page(contents: Contents) -> str:
    """The report as HTML."""
    view = contents.view
    sections = contents.sections
    charts = {chart.key: chart.figure for part in sections for chart in (*part.charts, *part.small)}
    begun = len({line.trial for line in contents.journal} - {None})
    tried = sum(group[0].trial.role == "candidate" for group in view.trials.values())
    when = dict(contents.provenance).get("When")
    rendered: str = _template().render(
        study=view.config.study,
        model=view.config.model,
        simulated=view.simulated,
        meta=f"{begun} trials, {tried} of them settings to compare" + (f" · {when}" if when else ""),
        notes=view.kept.notes,
        answer=view.answer,
        commands=contents.commands,
        sections=sections,
        links=[
            ("answer", "Answer"),
            *((part.key, part.title) for part in sections),
            ("findings", "Findings"),
            ("journal", "Journal"),
            ("origin", "Origin"),
        ],
        legend_of_small=_small_legend(contents),
        findings=contents.findings,
        most=_MOST_OPEN,
        journal=contents.journal,
        score=str(view.objective.metric),
        provenance=contents.provenance,
        charts=Markup(script_json(_plain(charts))),
        css=Markup(_asset("report.css")),
        js=Markup(_asset("report.js")),
        plotly=Markup(_plotly()),
    )
    return rendered


def _small_legend(contents: Contents) -> str:
    parts = []
    if contents.view.score.value(0, contents.view.objective.metric.load) is not None:
        parts.append("The dashed line is the baseline")
    parts.append("a bar is the median of a value")
    if contents.view.answer.best:
        parts.append("the star is the best setting")
    text = ", ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _plain(value: Any) -> Any:
    """The figures with every text made safe: plotly reads marks in titles, names and hover texts."""
    if isinstance(value, str):
        return _safe(value)
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


@functools.lru_cache(maxsize=4096)
def _safe(text: str) -> str:
    # Every second piece of the split is one of our marks.
    return "".join(part if place % 2 else _escaped(part) for place, part in enumerate(_OURS.split(text)))


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def script_json(value: Any) -> str:
    """JSON that no text in it can end the script element of."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@functools.cache
def _template() -> Any:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_asset("report.html.j2"))


@functools.cache
def _asset(name: str) -> str:
    return (files("orchestrator.report.page") / "templates" / name).read_text(encoding="utf-8")


@functools.cache
def _plotly() -> str:
    # As the package ships it; not imported, which takes longer than all the rest.
    return (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
