"""Reading the search space file: errors name file, line, key path and the nearest valid key."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import ValidationError

from orchestrator.config import SweepConfig, merge
from orchestrator.fields import Frozen
from orchestrator.search.space import SearchSpace, SpaceError
from orchestrator.yaml_values import ConfigError, Document, KeyPath, read_document

__all__ = ["ConfigError", "load_sweep", "parse_sweep"]

_BLOCK = "simulated"
#: What the block cannot replace: it would be another study.
NOT_IN_BLOCK = ("study", "model", "space", _BLOCK)
#: What a simulated launcher takes over from the file's own.
_SIMULATED_KEYS = ("profile", "startup_speedup")

_PLAINER = {
    "model_type": "here stands a mapping of keys and values",
    "model_attributes_type": "here stands a mapping of keys and values",
    "dict_type": "here stands a mapping of keys and values",
    "list_type": "here stands a list",
    "tuple_type": "here stands a list",
    "string_type": "here stands text; quote it",
    "int_type": "here stands a whole number",
    "float_type": "here stands a number",
    "bool_type": "here stands true or false",
}


def load_sweep(path: Path) -> tuple[SweepConfig, SweepConfig]:
    """The file as written, and as it applies when the launcher resolves to simulated.

    The second has the `simulated:` block merged in. Raises ConfigError.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is no text in UTF-8 (byte {error.start}): a search space is a YAML file") from None
    return parse_sweep(text, str(path))


def parse_sweep(text: str, name: str) -> tuple[SweepConfig, SweepConfig]:
    """As `load_sweep`, from text; `name` stands for the file in errors."""
    document = read_document(text, name)
    data = document.data
    if not isinstance(data, dict):
        empty = "the file is empty" if data is None else "the file is no mapping"
        raise ConfigError(f"{name}:1: {empty}: a search space begins with `study: NAME`")
    written = _validate(data, document, ())
    block = data.get(_BLOCK, {})
    for key in NOT_IN_BLOCK:
        if key in block:
            raise _error(document, (_BLOCK, key), f"the block resizes a study; it cannot change {key}")
    kind = block["launcher"].get("kind", _BLOCK) if isinstance(block.get("launcher"), dict) else _BLOCK
    if kind != _BLOCK:
        raise _error(document, (_BLOCK, "launcher", "kind"), f"the block is for the simulated launcher, not {kind!r}")
    # Keys of the block stand where they were written.
    lines = document.lines | {path[1:]: line for path, line in document.lines.items() if path[:1] == (_BLOCK,)}
    lines[()] = document.line(())
    applied = Document(name, _applied(data, block), lines)
    return written, _validate(applied.data, applied, _paths(block))


def _applied(data: Mapping[str, Any], block: Mapping[str, Any]) -> dict[str, Any]:
    """The file with the block over it. Its launcher is a simulated one, whatever the file's own is."""
    own = data.get("launcher", {})
    taken = {key: own[key] for key in _SIMULATED_KEYS if key in own}
    return merge({**data, "launcher": {"kind": _BLOCK, **taken}}, block)


def _paths(block: Any, path: KeyPath = ()) -> tuple[KeyPath, ...]:
    found: list[KeyPath] = []
    for key, value in block.items():
        found.append((*path, key))
        if isinstance(value, Mapping):
            found += _paths(value, (*path, key))
    return tuple(found)


def _validate(data: Mapping[str, Any], document: Document, block: tuple[KeyPath, ...]) -> SweepConfig:
    """The model. `block`: key paths that stand in the `simulated:` block and are named so."""
    try:
        config = SweepConfig.model_validate(data)
    except ValidationError as error:
        lines = [_explain(detail, document, block) for detail in error.errors(include_url=False)]
        raise ConfigError("\n".join(dict.fromkeys(lines))) from None
    try:
        SearchSpace.build(config.space)
    except SpaceError as error:
        raise _error(document, error.path, str(error)) from None
    return config


def _error(document: Document, path: KeyPath, message: str) -> ConfigError:
    return ConfigError(_line(document, path, message))


def _line(document: Document, path: KeyPath, message: str, prefix: str = "") -> str:
    return f"{document.name}:{document.line(path)}: {prefix}{'.'.join(map(str, path)) or 'file'}: {message}"


def _explain(detail: Any, document: Document, block: tuple[KeyPath, ...]) -> str:
    """One pydantic error as `file:line: key: what is wrong`."""
    loc, kind, context = detail["loc"], detail["type"], detail.get("ctx", {})
    path: KeyPath = tuple(context["path"]) if kind == "located" else _key_path(loc, document)
    message = str(detail["msg"]).removeprefix("Value error, ")
    if kind == "extra_forbidden":
        message = f"unknown key; {_nearest(str(loc[-1]), _keys_at(loc[:-1]))}"
    elif kind == "missing":
        path, message = (*path, loc[-1]), "this key is required"
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        path = (*path, "kind")
        given, kinds = context.get("tag"), list(_kinds_at(loc))
        hint = _nearest(given or "", kinds)
        message = f"unknown kind {given!r}; {hint}" if given else f"this key is required; {hint}"
    else:
        given = detail.get("input")
        message = _PLAINER.get(kind, message)
        if kind != "located" and isinstance(given, str | int | float) and repr(given) not in message:
            message = f"{message} (given: {given!r})"
    inside = any(path[: len(part)] == part for part in block if len(part) > 1 or path == part)
    return _line(document, path, message, f"{_BLOCK}." if inside else "")


def _key_path(loc: Sequence[str | int], document: Document) -> KeyPath:
    """The parts of an error's location that are keys of the file; pydantic's names of union members are not."""
    path: KeyPath = ()
    for part in loc:
        if (*path, part) in document.lines:
            path = (*path, part)
    return path


def _nearest(word: str, valid: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, valid, 1, 0.5)
    return f"did you mean {near[0]!r}?" if near else f"valid here: {', '.join(valid)}"


def _keys_at(loc: Sequence[str | int]) -> list[str]:
    """The keys that are valid where an error's location points to."""
    models = [model for model in _at(SweepConfig, list(loc)) if issubclass(model, Frozen)]
    return sorted({field.alias or name for model in models for name, field in model.model_fields.items()})


def _kinds_at(loc: Sequence[str | int]) -> Iterator[str]:
    """The kinds of a tagged union."""
    for model in _at(SweepConfig, list(loc)):
        yield from get_args(model.model_fields["kind"].annotation)


def _at(annotation: Any, loc: list[str | int]) -> Iterator[type[Frozen]]:
    """The models that may stand at a location below an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, Frozen):
        if not loc:
            yield annotation
        for name, field in annotation.model_fields.items():
            if loc and loc[0] == (field.alias or name):
                yield from _at(field.annotation, loc[1:])
        return
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _at(arguments[0], loc)
    elif origin is dict:
        yield from _at(arguments[1], loc[1:])
    elif origin not in (None, Literal, list, tuple):
        tagged = [a for a in arguments if loc and loc[0] in _kinds(a)]
        for argument in tagged or arguments:
            yield from _at(argument, loc[1:] if tagged else loc)


def _kinds(model: Any) -> tuple[str, ...]:
    field = getattr(model, "model_fields", {}).get("kind")
    return get_args(field.annotation) if field is not None else ()
