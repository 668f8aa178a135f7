"""The JSON Schema of a search space: it takes what ships, refuses slips, and never what the reader takes."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from orchestrator.schema.__main__ import FILES, main
from orchestrator.schema.json_schema import json_schema
from orchestrator.yaml_source import ConfigError, parse_sweep
from orchestrator.yaml_values import read_document

ROOT = Path(__file__).parents[3]
SPACES = sorted((ROOT / "search_spaces").glob("*.yaml"))
VALIDATOR = jsonschema.Draft202012Validator(json_schema())
WORDS = (None, -1, 1.5, "text", ["a"], {"x": 1})


def taken(data: Any) -> bool:
    return VALIDATOR.is_valid(data)


def read(data: Any) -> bool:
    """Whether the reader of the file takes it."""
    try:
        parse_sweep(yaml.safe_dump(data), "space.yaml")
    except ConfigError:
        return False
    return True


def small() -> dict[str, Any]:
    return {
        "study": "s",
        "model": "m",
        "space": {"flags": {"max-running-requests": {"choices": [1, None]}}, "env": {"A": {"int": [1, 2]}}},
        "workload": {"concurrency": [1], "dataset": {"input_tokens": 8}},
        "score": {"metric": "output_tokens_per_s", "concurrency": 1},
    }


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from paths(part, (*path, key))


def with_value(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(data)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return changed


def test_the_schema_itself_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("space", SPACES, ids=lambda path: path.name)
def test_shipped_spaces_keep_to_the_schema_that_they_name(space: Path) -> None:
    first = space.read_text().splitlines()[0]
    named = first.removeprefix("# yaml-language-server: $schema=")
    assert json.loads((space.parent / named).read_text()) == json_schema()
    data = read_document(space.read_text(), space.name).data
    assert [error.message for error in VALIDATOR.iter_errors(data)] == []


def test_what_it_refuses_the_reader_refuses_too() -> None:
    """Every value of a file replaced by others, and a key too many in every mapping."""
    data = read_document((ROOT / "search_spaces" / "eagle3.yaml").read_text(), "eagle3.yaml").data
    refused = 0
    for path in paths(data):
        at = data
        for key in path:
            at = at[key]
        changes = [with_value(data, path, word) for word in WORDS] if path else []
        if isinstance(at, dict):
            changes.append(with_value(data, (*path, "no_such_key"), 1))
        for changed in changes:
            if not taken(changed):
                refused += 1
                assert not read(changed), (path, changed)
    assert refused > 100


SLIPS: list[tuple[tuple[Any, ...], Any]] = [
    (("modle",), "m"),
    (("study",), "a/b"),
    (("launcher",), {"profile": "tiny"}),
    (("launcher",), {"kind": "simulatd"}),
    (("launcher",), {"kind": "sglang", "stall_s_by_phase": {"loading": 3}}),
    (("server",), {"flags": {"tp_size": 8}}),
    (("server",), {"flags": {"api-key": "x"}}),
    (("server",), {"flags": {"port": 1}}),
    (("server",), {"env": {"A": True}}),
    (("space", "flags", "max-running-requests"), {"choices": [1], "int": [1, 2]}),
    (("space", "flags", "max-running-requests"), {"int": [1]}),
    (("space", "flags", "max-running-requests"), {}),
    (("space", "env", "A"), {"choices": [True]}),
    (("workload", "concurrency"), [0]),
    (("workload", "concurrency"), [1025]),
    (("workload", "dataset"), {"kind": "texts"}),
    (("workload", "dataset"), {"kind": "jsonl"}),
    (("workload", "dataset", "input_tokens"), 0),
    (("workload", "dataset", "input_tokens"), {"uniform": [1]}),
    (("score",), {"metric": "output_tokens_per_s"}),
    (("score", "metric"), "ttft_ms"),
    (("pareto",), ["maximise output_tokens_per_s@1"]),
    (("constraints",), ["ttft_ms.p99@1 < 4"]),
    (("budget",), {"time": "2"}),
    (("simulated",), {"space": {}}),
    (("simulated",), {"workload": {"level": {"min": 1}}}),
    (("simulated",), {"launcher": {"kind": "sglang"}}),
]


@pytest.mark.parametrize(("path", "value"), SLIPS, ids=lambda part: json.dumps(part)[:60])
def test_slips_are_seen_in_the_editor(path: tuple[Any, ...], value: Any) -> None:
    assert taken(small())
    assert read(small())
    assert not taken(with_value(small(), path, value))


def test_the_block_holds_any_part_of_what_it_may_replace() -> None:
    block = {
        "launcher": {"startup_speedup": 10},
        "workload": {"dataset": {"input_tokens": {"normal": {"mean": 8, "std": 1}}}, "level": {"half_width": None}},
        "score": {"concurrency": 1},
        "budget": {"trials": 3},
    }
    space = {**small(), "simulated": block}
    assert taken(space)
    assert read(space)


@pytest.mark.parametrize("name", FILES)
def test_generated_files_are_current(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert text == FILES[name](), "run `python -m orchestrator.schema --write`"


@pytest.mark.parametrize(
    ("option", "name"),
    [("--json", "search_spaces/schema.json"), ("--markdown", "docs/yaml.md"), ("--results", "docs/results.md")],
)
def test_the_command_prints_them(option: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([option]) == 0
    assert capsys.readouterr().out == (ROOT / name).read_text(encoding="utf-8")


def test_every_key_says_what_it_is() -> None:
    silent = [
        f"{where}.{name}"
        for where, part in [("", json_schema()), *json_schema()["$defs"].items()]
        for name, field in part.get("properties", {}).items()
        if "description" not in field and name != "kind" and not where.startswith("Simulated")
    ]
    assert silent == []
