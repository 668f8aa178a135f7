"""A YAML text as plain values that mean what they look like, with the line of each key. Pure.

YAML 1.1 (PyYAML) and 1.2 disagree on plain scalars such as `no`, `1:30` and `010`. Where the two readings
differ, the text is refused and the way to write it is said; nothing turns into something else silently.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

KeyPath = tuple[str | int, ...]

#: Values that one file may hold, aliases expanded: far above any search space, far below a "billion laughs".
MAX_VALUES = 20_000

# YAML 1.2 core schema (spec 1.2.2, section 10.3.2); infinity and NaN left out on purpose.
_CORE = (
    (re.compile(r"|~|null|Null|NULL"), "null"),
    (re.compile(r"true|True|TRUE|false|False|FALSE"), "bool"),
    (re.compile(r"[-+]?(0|[1-9][0-9]*)"), "int"),
    (re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), "float"),
)
# A number in one version and another number, or text, in the other.
_TRAP_NUMBER = re.compile(r"[-+]?(0[0-9_]+|0o[0-7]+|0x[0-9a-fA-F_]+|0b[01_]+|[0-9][0-9_]*_[0-9_.]*)")
# Booleans of YAML 1.1 (type/bool.html); PyYAML itself leaves the single letters alone.
_OLD_BOOL = re.compile(r"y|Y|n|N|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_STANDARD = "tag:yaml.org,2002:"


class ConfigError(ValueError):
    """The file cannot be used. The text names file, line, key and the way out."""


@dataclass(frozen=True)
class Document:
    """A file's values with the line of each key path."""

    name: str
    data: Any
    lines: dict[KeyPath, int]

    def line(self, path: KeyPath) -> int:
        """The line of the path's longest part that stands in the file."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return 1


def read_document(text: str, name: str) -> Document:
    """The text's values; `name` stands for the file in errors. Raises ConfigError."""
    try:
        reader = _Reader(name)
        node = _Loader(text).get_single_node()
        data = None if node is None else reader.value(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ConfigError(f"{name}:{mark.line + 1 if mark else 1}: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        shown = f"U+{error.character:04X}" if isinstance(error.character, int) else repr(error.character)
        raise ConfigError(f"{name}:{line}: the character {shown} cannot stand in a YAML file") from None
    except RecursionError:
        raise ConfigError(f"{name}:1: the values are nested too deeply") from None
    return Document(name, data, reader.lines)


class _Loader(yaml.SafeLoader):
    """Refuses tags: they turn a value into another than it looks like (`!!str 5`, `! 5`)."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        peek: Callable[[], Any] = self.peek_event
        event = peek()
        tag = getattr(event, "tag", None)
        if tag is not None:
            shown = tag.replace(_STANDARD, "!!")
            raise yaml.MarkedYAMLError(
                problem=f"the tag {shown} is not supported: write plain values", problem_mark=event.start_mark
            )
        return super().compose_node(parent, index)


class _Reader:
    """Nodes to values: core-schema scalars, duplicate keys refused; remembers each key's line."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: list[yaml.Node] = []
        self._count = 0
        self.lines: dict[KeyPath, int] = {}

    def _error(self, node: yaml.Node, path: KeyPath, message: str) -> ConfigError:
        where = f"{'.'.join(map(str, path))}: " if path else ""
        return ConfigError(f"{self._name}:{node.start_mark.line + 1}: {where}{message}")

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        self._count += 1
        if self._count > MAX_VALUES:
            raise self._error(node, path, f"the file holds more than {MAX_VALUES} values, aliases expanded")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if any(node is outer for outer in self._open):
            raise self._error(node, path, "an alias stands inside its own anchor")
        self._open.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
        finally:
            self._open.pop()

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._error(key_node, path, "a key is plain text")
            if key_node.tag == f"{_STANDARD}merge":
                raise self._error(key_node, path, "the merge key << is not part of YAML 1.2: write the keys out")
            key = self._scalar(key_node, path)
            if not isinstance(key, str):
                raise self._error(key_node, path, f"the key {key_node.value!r} is read as {key!r}; quote it")
            if key in mapping:
                first = self.lines[(*path, key)]
                raise self._error(key_node, (*path, key), f"duplicate key: it stands in line {first} already")
            self.lines[(*path, key)] = key_node.start_mark.line + 1
            mapping[key] = self.value(value_node, (*path, key))
        return mapping

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        text: str = node.value
        if node.style is not None:  # quoted or block: text, whatever it looks like
            return text
        if _TRAP_NUMBER.fullmatch(text):
            raise self._error(
                node, path, f"{text!r} is read differently by YAML 1.1 and 1.2: quote it, or write it decimal"
            )
        if _OLD_BOOL.fullmatch(text):
            raise self._error(
                node,
                path,
                f"{text!r} is a boolean in YAML 1.1 and text in 1.2: write true, false or '{text}'",
            )
        if _NOT_FINITE.fullmatch(text):
            raise self._error(node, path, f"{text!r} is no value here: numbers are finite")
        kind = next((kind for pattern, kind in _CORE if pattern.fullmatch(text)), "str")
        old = node.tag.removeprefix(_STANDARD)
        if kind == "str" and old != "str":
            raise self._error(node, path, f"{text!r} is a {old} in YAML 1.1 and text in 1.2: quote it to mean the text")
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        return text if kind == "str" else self._number(node, path, kind)

    def _number(self, node: yaml.ScalarNode, path: KeyPath, kind: str) -> int | float:
        # A float holds no more; Python refuses to convert thousands of digits.
        number = float(node.value)
        if not math.isfinite(number):
            raise self._error(node, path, "the number is too large")
        return int(node.value) if kind == "int" else number
