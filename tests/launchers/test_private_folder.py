"""The private folder of a start: closed to others, and found again by its study and run only."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from launchers.private import folders_of_other_runs, ledger_of, make_folder, remove_folder


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_only_its_user_can_enter_it() -> None:
    assert make_folder("study", "run", "start").stat().st_mode & 0o777 == 0o700


def test_a_start_does_not_take_over_a_folder() -> None:
    make_folder("study", "run", "start")
    with pytest.raises(FileExistsError):
        make_folder("study", "run", "start")


def test_those_of_other_runs_of_the_same_study_are_found(temporary: Path) -> None:
    old = make_folder("study", "run-1", "a")
    make_folder("study", "run-2", "b")
    make_folder("study-1", "run-1", "c")
    make_folder("st", "udy", "d")
    (temporary / "sglang-start+study+run-1+file").write_text("")
    (temporary / "sglang-start+study+run-1+link").symlink_to(temporary)
    assert folders_of_other_runs("study", "run-2") == [old]


def test_a_socket_in_it_has_a_path_that_the_kernel_takes() -> None:
    identity = "0123456789ab"
    folder = make_folder(identity, identity, identity)
    longest = len("/tmp/") + len(folder.name) + len("/tmpabcdefgh")
    assert longest <= 107


def test_all_but_the_ledger_can_be_removed() -> None:
    folder = make_folder("study", "run", "start")
    (folder / "key").write_text("secret")
    (folder / "cache").mkdir()
    (folder / "cache" / "file").write_text("x")
    ledger_of(folder).write_text("process 1 2\n")
    remove_folder(folder, keep_ledger=True)
    assert [path.name for path in folder.iterdir()] == [ledger_of(folder).name]
    remove_folder(folder)
    assert not folder.exists()
