"""The study's note in optuna-dashboard, written by its own interface where it is installed."""

from __future__ import annotations

import optuna


def save_note(study: optuna.Study, text: str) -> None:
    """Put it into the study; a note that a person wrote, with another first line, is left alone."""
    try:
        import optuna_dashboard
    except ImportError:
        return
    before = optuna_dashboard.get_note(study)
    if before != text and (not before or before.splitlines()[0] == text.splitlines()[0]):
        optuna_dashboard.save_note(study, text)
