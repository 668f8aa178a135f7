"""The command line of the twin: its own two options, then SGLang's flags, refused as SGLang refuses them."""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from launchers.simulated import flags as known

#: Other spellings that SGLang takes; its usage text shows the first name only.
_SECOND_NAMES = {
    "model-path": ("model",),
    "tp-size": ("tensor-parallel-size",),
    "pp-size": ("pipeline-parallel-size",),
    "dp-size": ("data-parallel-size",),
    "attn-dp-size": ("attention-data-parallel-size",),
    "ep-size": ("expert-parallel-size", "ep"),
    "speculative-draft-model-path": ("speculative-draft-model",),
}
#: Flags with several words that are numbers.
_NUMBERS = frozenset({"cuda-graph-bs-decode", "cuda-graph-bs-prefill"})


@dataclass(frozen=True)
class Arguments:
    """A parsed command line. Flag names are without leading dashes."""

    profile: str
    #: The start takes its simulated length divided by this.
    startup_speedup: float
    #: Flags as given, typed; what was left out is absent.
    flags: dict[str, Any] = field(hash=False)
    #: SGLang's part of the command line, what `--config` stands for included, and so its secrets, as SGLang has it.
    launch_command: str = ""


def parse_arguments(argv: Sequence[str]) -> Arguments:
    """Parse a command line. Refusals print usage and reason on stderr and raise SystemExit(2).

    Raises ValueError or OSError for a configuration file that SGLang would not read.
    """
    own = argparse.ArgumentParser(prog="python -m launchers.simulated", allow_abbrev=False, add_help=False)
    own.add_argument("--profile", default="tiny")
    own.add_argument("--startup-speedup", type=float, default=100.0)
    mine, rest = own.parse_known_args(argv)
    if mine.startup_speedup <= 0:
        own.error("--startup-speedup is above 0")
    words = _with_config(rest)
    given = {name.replace("_", "-"): value for name, value in vars(build_parser().parse_args(words)).items()}
    return Arguments(mine.profile, mine.startup_speedup, given, " ".join(words))


@functools.cache
def build_parser() -> argparse.ArgumentParser:
    """SGLang's flags as an argparse parser; what is not given is absent from the namespace."""
    parser = argparse.ArgumentParser(prog="sglang serve", argument_default=argparse.SUPPRESS)
    # first, as in SGLang's usage text
    parser.add_argument(*_spellings("model-path"), required=True)
    for name in known.SWITCHES.split():
        parser.add_argument(f"--{name}", action="store_true", default=argparse.SUPPRESS)
    for item in known.OPTIONAL_SWITCHES.split():
        parser.add_argument(
            f"--{item.partition('=')[0]}", action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS
        )
    for kind, items in ((int, known.INTEGERS), (float, known.FLOATS), (str, known.TEXTS)):
        for item in items.split():
            name = item.partition("=")[0]
            if name != "model-path":
                parser.add_argument(*_spellings(name), type=kind)
    for words, items in known.CHOICES.items():
        for item in items.split():
            choices: list[Any] = words.split()
            whole = all(c.isdigit() for c in choices)
            kind = int if whole else str
            parser.add_argument(f"--{item.partition('=')[0]}", type=kind, choices=[kind(c) for c in choices])
    for nargs, names in (("+", known.ONE_OR_MORE), ("*", known.ANY_NUMBER), ("?", known.AT_MOST_ONE)):
        for word in names.split():
            parser.add_argument(f"--{word}", nargs=nargs, type=int if word in _NUMBERS else str)
    return parser


def defaults() -> dict[str, Any]:
    """Every flag's default under its name with underscores, as /server_info shows it; None where absent."""
    values: dict[str, Any] = dict.fromkeys((_key(n) for n in known.SWITCHES.split()), False)
    for name, default in _items(known.OPTIONAL_SWITCHES):
        values[_key(name)] = None if default is None else default == "true"
    for name, default in _items(known.INTEGERS):
        values[_key(name)] = None if default is None else int(default)
    for name, default in _items(known.FLOATS):
        values[_key(name)] = None if default is None else float(default)
    for name, default in _items(known.TEXTS):
        values[_key(name)] = default
    for words, items in known.CHOICES.items():
        whole = all(c.isdigit() for c in words.split())
        for name, default in _items(items):
            values[_key(name)] = int(default) if whole and default else default
    for items in (known.ONE_OR_MORE, known.ANY_NUMBER, known.AT_MOST_ONE):
        values |= {_key(name): None for name in items.split()}
    return values


def _spellings(name: str) -> list[str]:
    return [f"--{word}" for word in (name, *_SECOND_NAMES.get(name, ()))]


def _key(name: str) -> str:
    return name.replace("-", "_")


def _items(words: str) -> Iterator[tuple[str, str | None]]:
    for word in words.split():
        name, equals, default = word.partition("=")
        yield name, default if equals else None


def _with_config(argv: Sequence[str]) -> list[str]:
    """The words with the file behind `--config` put before them, so that the command line wins.

    As server_args_config_parser.py of 0.5.23 has it, which knows no `--config=FILE`.
    """
    words = list(argv)
    if "--config" not in words:
        return words
    if words.count("--config") > 1:
        raise ValueError("Multiple config files specified! Only one allowed.")
    index = words.index("--config")
    if index == len(words) - 1:
        raise ValueError("No config file specified after --config flag!")
    path = Path(words[index + 1])
    if path.suffix.lower() not in (".yaml", ".yml"):
        raise ValueError(f"Config file must be YAML format, got: {path.suffix}")
    if not path.exists():
        raise ValueError(f"Config file not found: {path}")
    told = yaml.safe_load(path.read_text()) or {}
    if not isinstance(told, dict):
        raise ValueError("Config file must contain a dictionary at root level")
    return [*_config_words(told), *words[:index], *words[index + 2 :]]


def _config_words(told: dict[str, Any]) -> list[str]:
    switches = {_key(name) for name in known.SWITCHES.split()}
    words: list[str] = []
    for name, value in told.items():
        if isinstance(value, bool) and _key(name) in switches:
            words += [f"--{name}"] if value else []
        elif isinstance(value, bool):
            words += [f"--{name}", str(value).lower()]
        elif isinstance(value, list):
            words += [f"--{name}", *map(str, value)] if value else []
        else:
            words += [f"--{name}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return words
