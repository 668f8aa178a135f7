"""Arrow files that appear whole or not at all, and are never read half.

The format is the Arrow IPC file (Feather V2), uncompressed: every Arrow implementation reads it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from orchestrator.results.table_schema import ForeignTable, NewerTable, TableSchema

#: Told one sentence of what was set aside and why.
OnMessage = Callable[[str], None]

SET_ASIDE = "set-aside"


class StoreError(Exception):
    """A result file could not be written or read; the message says which, why and what to do."""


class Unreadable(Exception):
    """A file that is truncated, empty or not of the schema expected."""


def partial_path(path: Path) -> Path:
    """Where a file is written before it takes its name."""
    return path.with_name(f".{path.name}.partial")


def write_table(path: Path, table: pa.Table) -> None:
    """Write the table so that `path` holds, at any instant, its old content or the new one whole.

    Raises StoreError where the system refuses (disk full, no permission); nothing partial is left then.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    write_bytes(path, sink.getvalue())


def write_bytes(path: Path, content: bytes | pa.Buffer) -> None:
    """As `write_table`, for any content."""
    partial = partial_path(path)
    try:
        make_folder(path.parent)
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise StoreError(
            f"cannot write {path}: {error.strerror or error}. What was finished before is on disk: "
            "free some space or mend the folder, then run the same command again"
        ) from error


def read_table(path: Path, schema: TableSchema) -> pa.Table | None:
    """The file's table in the schema's current version; None where there is no file.

    Raises Unreadable for a file that is no whole table of this schema, StoreError for a file of a later
    version and where the system refuses.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}. Mend it and run again") from error
    if not content:
        raise Unreadable("it is empty")
    try:
        # The footer stands last: a file that was cut has none.
        table = pa.ipc.open_file(pa.BufferReader(content)).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Unreadable(f"it is truncated or no Arrow file ({error})") from error
    try:
        return schema.upgrade(table)
    except ForeignTable as error:
        raise Unreadable(str(error)) from error
    except NewerTable as error:
        raise StoreError(f"cannot read {path}: {error}") from error


def read_or_set_aside(path: Path, schema: TableSchema, on_message: OnMessage) -> pa.Table | None:
    """The file's table; a file that cannot be read whole is moved aside, told, and None is returned.

    Raises StoreError as `read_table` does.
    """
    try:
        return read_table(path, schema)
    except Unreadable as error:
        moved = set_aside(path)
        on_message(f"{path} cannot be used: {error}. It was moved to {moved}; nothing was read from it")
        return None


def set_aside(path: Path) -> Path:
    """Move the file into the folder `set-aside` beside it, under its name and the next free number."""
    folder = path.parent / SET_ASIDE
    try:
        folder.mkdir(exist_ok=True)
        number = 1
        while (target := folder / f"{path.name}.{number}").exists():
            number += 1
        path.rename(target)
        sync_folder(path.parent)
    except OSError as error:
        raise StoreError(
            f"cannot move {path} aside: {error.strerror or error}. Move it away by hand and run again"
        ) from error
    return target


def make_folder(folder: Path) -> None:
    """Create the folder and its parents where missing, each name durable."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in the folder durable: a rename alone may be lost with the power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
