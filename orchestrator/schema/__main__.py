"""The command line: `python -m orchestrator.schema --json`, `--markdown`, `--results` or `--write`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from orchestrator.schema.json_schema import json_schema
from orchestrator.schema.markdown import results_reference, yaml_reference

_ROOT = Path(__file__).parents[2]


def schema_text() -> str:
    """The JSON Schema as it stands in `search_spaces/schema.json`."""
    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"


#: Files of the repository that are made here, with what makes them.
FILES: dict[str, Callable[[], str]] = {
    "search_spaces/schema.json": schema_text,
    "docs/yaml.md": yaml_reference,
    "docs/results.md": results_reference,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    options = argparse.ArgumentParser(
        prog="python -m orchestrator.schema",
        description="Print what a search space file and the result files are made of.",
    )
    kinds = options.add_mutually_exclusive_group(required=True)
    kinds.add_argument("--json", action="store_true", help="the JSON Schema of a search space, for editors")
    kinds.add_argument("--markdown", action="store_true", help="the keys of a search space (docs/yaml.md)")
    kinds.add_argument("--results", action="store_true", help="the columns of the result files (docs/results.md)")
    kinds.add_argument("--write", action="store_true", help="write all three into the repository")
    chosen = options.parse_args(arguments)
    if chosen.write:
        return _write()
    make = schema_text if chosen.json else yaml_reference if chosen.markdown else results_reference
    print(make(), end="")
    return 0


def _write() -> int:
    if not (_ROOT / "docs").is_dir():
        print(f"error: {_ROOT} is no clone of the project: --write is for those who change it", file=sys.stderr)
        return 2
    for name, make in FILES.items():
        (_ROOT / name).write_text(make(), encoding="utf-8")
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
