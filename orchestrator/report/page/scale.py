"""Values on an axis: their order, their names, and notes beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.report.page.drawn import Drawn
from orchestrator.search.space import Knob


def values_of(knob: Knob, trials: Sequence[Drawn]) -> list[Any]:
    """The values that were drawn, in the parameter's own order."""
    seen = {key_of(one.params[knob.name]): one.params[knob.name] for one in trials}
    if knob.parameter.choices is not None:
        return sorted((choice for choice in knob.extent if key_of(choice) in seen), key=_in_order)
    return sorted(seen.values())


def _in_order(value: Any) -> tuple[int, float, str]:
    """Unset first, numbers by their size, texts as they are spelled."""
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 1, float(value), ""
    return 2, 0.0, str(value)


def key_of(value: Any) -> str:
    return f"{type(value).__name__} {value}"


def short(text: str) -> str:
    """The end of a path says more than its beginning."""
    text = text.rsplit("/", 1)[-1]
    return text if len(text) <= 18 else f"{text[:17]}…"


def note(x: float, y: float, text: str, *, yshift: int, xanchor: str = "center", bold: bool = False) -> dict[str, Any]:
    return {
        "x": x,
        "y": y,
        "text": f"<b>{text}</b>" if bold else text,
        "showarrow": False,
        "xanchor": xanchor,
        "yshift": yshift,
        "bgcolor": "@paper",
        "borderpad": 0,
        "font": {"size": 12 if bold else 11, "color": "@ink" if bold else "@soft"},
    }
