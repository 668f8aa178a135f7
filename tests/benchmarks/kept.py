"""The figures of a benchmark as an Arrow file, like everything that is measured here."""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from orchestrator.results.files import write_table


def environment() -> dict[str, Any]:
    """When, where and with what command it was measured."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB",
        "kernel": platform.release(),
        "load_before": os.getloadavg(),
        "python": platform.python_version(),
        # Where things lie is the machine's own affair.
        "command": " ".join(["python", *(Path(word).name if word.startswith("/") else word for word in sys.argv)]),
    }


def keep(rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any], path: Path) -> None:
    """Write the rows as Arrow IPC, nested ones as columns with a dot in their name; `about` is in the metadata."""
    table = pa.Table.from_pylist([_flat(row) for row in rows])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(path, table.replace_schema_metadata({"about": json.dumps(about)}))
    print(path)


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat
