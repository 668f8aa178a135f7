"""What the models say of their fields: the `#:` comments above them, read from the source. Pure but for that."""

from __future__ import annotations

import inspect
import re
from functools import cache

from orchestrator.fields import Frozen

_FIELD = re.compile(r"    ([a-z_][a-z0-9_]*):")
_COMMENT = re.compile(r"    #: ?(.*)")


@cache
def comments_of(model: type[Frozen]) -> dict[str, str]:
    """The text above each field, by the field's name in Python; of a field without one, nothing."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if issubclass(kind, Frozen) and kind is not Frozen:
            found |= _comments(inspect.getsource(kind))
    return found


def _comments(source: str) -> dict[str, str]:
    found, told = {}, []
    for line in source.splitlines():
        comment, field = _COMMENT.fullmatch(line), _FIELD.match(line)
        if comment:
            told.append(comment[1])
            continue
        if field and told:
            found[field[1]] = " ".join(told)
        told = []
    return found


def docstring_of(model: type[Frozen]) -> str:
    """The model's own docstring, its paragraphs on one line each."""
    paragraphs = inspect.cleandoc(model.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
