"""Figures in a sentence. Pure."""

from __future__ import annotations


def figure(value: float) -> str:
    """About two digits after the point for small numbers, one for large."""
    return f"{value:.1f}" if value >= 3 else f"{value:.2f}"


def ms_text(value: float) -> str:
    """`93 ms`, `1.1 ms`."""
    return f"{value:.0f} ms" if value >= 20 else f"{value:.1f} ms" if value >= 1 else f"{value:.2f} ms"
