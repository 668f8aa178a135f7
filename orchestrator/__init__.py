"""Find, prove and explain the best way to serve a model with SGLang: `from orchestrator import load_study`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.loaded_study import load_study as load_study

__all__ = ["load_study"]


def __getattr__(name: str) -> Any:
    # Arrow and Optuna take a second to import: not for those who only want a submodule.
    if name == "load_study":
        from orchestrator.loaded_study import load_study

        return load_study
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
