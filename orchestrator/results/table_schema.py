"""A named, versioned Arrow schema: what a file of it must hold, and how an older one is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

_NAME = b"schema"
_VERSION = b"schema_version"


class ForeignTable(ValueError):
    """A table that is not of the schema expected."""


class NewerTable(ValueError):
    """A table written by a later version of this program."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A named, versioned schema."""

    name: str
    version: int
    fields: tuple[pa.Field, ...]

    @property
    def arrow(self) -> pa.Schema:
        """The schema as it stands in files, name and version in its metadata."""
        return pa.schema(self.fields, metadata={_NAME: self.name, _VERSION: str(self.version)})

    def table(self, columns: Mapping[str, Any]) -> pa.Table:
        """A table of this schema from arrays or lists of one length, every column given.

        Raises ValueError for a missing, unknown or mistyped column, and for a null where none may be.
        """
        schema = self.arrow
        wrong = set(columns) ^ set(schema.names)
        if wrong:
            raise ValueError(f"{self.name}: columns missing or unknown: {', '.join(sorted(wrong))}")
        arrays = []
        for field in schema:
            try:
                arrays.append(pa.array(columns[field.name], type=field.type))
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                raise ValueError(f"{self.name}.{field.name} is {field.type}: {error}") from error
        return self._checked(pa.Table.from_arrays(arrays, schema=schema))

    def upgrade(self, table: pa.Table) -> pa.Table:
        """A table read from a file, in this version: columns an older version lacked are null.

        Raises ForeignTable when it is of another schema or breaks its own, NewerTable for a later version.
        """
        metadata = table.schema.metadata or {}
        name = metadata.get(_NAME, b"").decode(errors="replace")
        if name != self.name:
            raise ForeignTable(f"it holds {name or 'a table of another program'}, not {self.name}")
        try:
            version = int(metadata.get(_VERSION, b""))
        except ValueError:
            raise ForeignTable("it says no schema version") from None
        if version > self.version:
            raise NewerTable(
                f"it is of version {version} of {self.name}; this program reads up to {self.version}: "
                "use the version of the program that wrote it, or a later one"
            )
        arrays = []
        places = {name: place for place, name in enumerate(table.schema.names)}
        for field in self.fields:
            place = places.get(field.name)
            if place is None:
                if version == self.version:
                    raise ForeignTable(f"the column {field.name} is missing")
                arrays.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
                continue
            column = table.column(place)
            if column.type != field.type:
                raise ForeignTable(f"the column {field.name} is {column.type}, not {field.type}")
            arrays.append(column)
        try:
            return self._checked(pa.Table.from_arrays(arrays, schema=self.arrow))
        except ValueError as error:
            raise ForeignTable(str(error)) from error

    def _checked(self, table: pa.Table) -> pa.Table:
        # Arrow itself does not hold a column to `nullable=False`.
        for field in self.fields:
            if not field.nullable and table[field.name].null_count:
                raise ValueError(f"{self.name}.{field.name} may not be null")
        return table


def column(
    name: str, kind: pa.DataType, meaning: str, *, unit: str = "", json: bool = False, required: bool = False
) -> pa.Field:
    """A field with its meaning, unit and format in the metadata."""
    metadata = {"meaning": meaning}
    if unit:
        metadata["unit"] = unit
    if json:
        metadata["format"] = "json"
    return pa.field(name, kind, nullable=not required, metadata=metadata)
