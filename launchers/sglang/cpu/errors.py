"""The one error of the kit."""

from __future__ import annotations


class KitError(Exception):
    """The environment cannot be made; the message says why and what to do."""
