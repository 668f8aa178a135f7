"""A result file is whole or it is not there; what cannot be read whole is moved aside and told."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from orchestrator.results import files
from orchestrator.results.table_schema import TableSchema, column

SCHEMA = TableSchema(
    "test.table", 1, (column("trial", pa.int32(), "t", required=True), column("text", pa.string(), "x"))
)
TABLE = SCHEMA.table({"trial": [1, 2, 3], "text": ["a", None, "ccc"]})
OTHER = SCHEMA.table({"trial": [4], "text": [None]})


def visible(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_file_is_read_back_and_a_missing_one_is_none(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "a.arrow"
    assert files.read_table(path, SCHEMA) is None
    files.write_table(path, TABLE)
    files.write_table(path, OTHER)
    assert files.read_table(path, SCHEMA) == OTHER
    assert visible(tmp_path) == ["deep/er/a.arrow"]


def test_a_file_cut_anywhere_is_never_half_read(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    files.write_table(path, TABLE)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(files.Unreadable):
            files.read_table(path, SCHEMA)
    path.write_bytes(content)
    assert files.read_table(path, SCHEMA) == TABLE


def test_each_file_set_aside_is_kept_under_a_number_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    messages: list[str] = []
    for content in (b"first", b"second"):
        path.write_bytes(content)
        assert files.read_or_set_aside(path, SCHEMA, messages.append) is None
        assert not path.exists()
    kept = [tmp_path / files.SET_ASIDE / f"a.arrow.{number}" for number in (1, 2)]
    assert [p.read_bytes() for p in kept] == [b"first", b"second"]
    assert all(str(p) in message for p, message in zip(kept, messages, strict=True))


@pytest.mark.parametrize("content", [b"", b"PAR1 something else", b"ARROW1\0\0" + b"\0" * 200 + b"ARROW1"])
def test_an_empty_or_strange_file_is_set_aside(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.arrow"
    path.write_bytes(content)
    messages: list[str] = []
    assert files.read_or_set_aside(path, SCHEMA, messages.append) is None
    assert visible(tmp_path) == ["set-aside/a.arrow.1"]
    assert "nothing was read from it" in messages[0]


def test_an_arrow_file_of_another_program_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    files.write_table(path, pa.table({"trial": pa.array([1], pa.int32()), "text": ["a"]}))
    messages: list[str] = []
    assert files.read_or_set_aside(path, SCHEMA, messages.append) is None
    assert "a table of another program" in messages[0]


def test_a_file_of_a_later_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    later = TableSchema("test.table", 2, (*SCHEMA.fields, column("new", pa.int8(), "n")))
    files.write_table(path, later.table({"trial": [1], "text": ["a"], "new": [1]}))
    with pytest.raises(files.StoreError, match=r"version 2 of test\.table.*reads up to 1"):
        files.read_or_set_aside(path, SCHEMA, pytest.fail)
    assert path.exists()


def test_a_full_disk_leaves_the_old_file_and_nothing_partial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.arrow"
    files.write_table(path, TABLE)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(files.StoreError, match=r"cannot write .*a\.arrow: No space left on device") as error:
        files.write_table(path, OTHER)
    monkeypatch.undo()
    assert files.read_table(path, SCHEMA) == TABLE
    assert visible(tmp_path) == ["a.arrow"]
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


@contextlib.contextmanager
def small_file_limit() -> Iterator[None]:
    """The system cuts every write of this process short at 64 bytes of a file: no longer than one call."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, old)


def test_a_write_the_system_cuts_short_leaves_nothing(tmp_path: Path) -> None:
    with small_file_limit(), pytest.raises(files.StoreError, match="cannot write"):
        files.write_table(tmp_path / "a.arrow", TABLE)
    assert visible(tmp_path) == []


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "trials").write_text("mine")
    with pytest.raises(files.StoreError, match=r"cannot write .*trials/a\.arrow"):
        files.write_table(tmp_path / "trials" / "a.arrow", TABLE)
    assert (tmp_path / "trials").read_text() == "mine"
