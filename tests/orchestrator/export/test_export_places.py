"""Which words of a setting are paths, and from where they lead."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchers.simulated import flags as known
from orchestrator.export.places import FILES, NAMES, WRITTEN, find_places


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder from which a sweep was started, among others that hold things of the same names."""
    for name in ("cpu", "EAGLE3", "fcfs", "trivial", "chatml", "drafts/a"):
        (tmp_path / "elsewhere" / name).mkdir(parents=True)
    for name in ("models/mine", "drafts/a"):
        (tmp_path / "project" / name).mkdir(parents=True)
    (tmp_path / "project" / "x.jinja").touch()
    return tmp_path


def test_a_word_that_equals_a_name_is_no_path(project: Path) -> None:
    flags = {
        "device": "cpu",
        "speculative-algorithm": "EAGLE3",
        "schedule_policy": "fcfs",
        "init-expert-location": "trivial",
        "chat-template": "chatml",
        "deepep-config": '{"a": 1}',
        "json-model-override-args": {"cpu": 1},
        "trust-remote-code": True,
    }
    found = find_places("org/model", flags, [project / "elsewhere"])
    assert (found.folder, found.flags, found.model) == (None, flags, "org/model")
    assert (found.read, found.written, found.lost) == ((), (), ())


def test_the_folder_is_the_one_that_has_the_model(project: Path) -> None:
    flags = {"speculative_draft_model": "drafts/a", "device": "cpu"}
    found = find_places("models/mine", flags, [project / "elsewhere", project / "project"])
    home = project / "project"
    assert found.folder == home
    assert found.model == str(home / "models/mine")
    assert found.flags == {"speculative_draft_model": str(home / "drafts/a"), "device": "cpu"}
    assert found.read == (home / "models/mine", home / "drafts/a")


def test_without_the_model_it_is_the_one_that_has_the_most(project: Path) -> None:
    flags = {"speculative-draft-model-path": "drafts/a", "chat-template": "x.jinja"}
    folders = [project / "elsewhere", project / "project"]
    assert find_places("org/model", flags, folders).folder == folders[1]
    flags["chat-template"] = "other.jinja"
    found = find_places("org/model", flags, folders)
    assert (found.folder, found.lost, found.unknown) == (folders[0], ("other.jinja",), False)
    assert [*found.told] == [
        f"other.jinja was not found in {folders[0]}: it leads from the folder where the sweep was started."
    ]


@pytest.mark.parametrize(
    ("flags", "lost"),
    [
        ({"chat-template": "./x"}, ("./x",)),
        ({"speculative-draft-model-path": "a/b/c"}, ("a/b/c",)),
        ({"speculative-draft-model-path": "a/b"}, ()),
        ({"speculative-token-map": "a/b/c.pt"}, ()),
        ({"ssl-keyfile": "key"}, ("key",)),
        ({"hicache-storage-backend-extra-config": "@a.json"}, ("a.json",)),
        ({"hicache-storage-backend-extra-config": "{}"}, ()),
        ({"crash-dump-folder": "./dumps"}, ()),
        ({"tokenizer-path": "\0" * 3}, ()),
        ({"lora-paths": ["a=./x", "b=org/y", "./z"]}, ("./x", "./z")),
    ],
)
def test_what_can_only_be_a_path_and_is_not_there_is_lost(
    tmp_path: Path, flags: dict[str, object], lost: tuple[str, ...]
) -> None:
    found = find_places("org/model", flags, [tmp_path])
    assert (found.lost, found.unknown, found.folder) == (lost, bool(lost), None)
    assert found.flags == flags


def test_absolute_paths_are_as_they_are_and_what_is_written_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/x")
    flags = {"lora-paths": ["a=/l"], "download-dir": "~/cache", "hicache-storage-backend-extra-config": "@/h.json"}
    found = find_places("/m", flags, [tmp_path])
    assert found.flags == {**flags, "download-dir": "/home/x/cache"}
    assert found.read == (Path("/m"), Path("/l"), Path("/h.json"))
    assert found.written == (Path("/home/x/cache"),)


def test_every_flag_of_a_path_is_one_of_sglangs() -> None:
    texts = {word.partition("=")[0] for word in f"{known.TEXTS} {known.ANY_NUMBER} {known.AT_MOST_ONE}".split()}
    assert texts >= FILES | NAMES | WRITTEN
    ends = ("-path", "-paths", "-file", "-dir", "-folder", "-template")
    named = {name for name in texts if name.endswith(ends)}
    # The way of an HTTP address.
    assert named - {"fastapi-root-path"} <= FILES | NAMES | WRITTEN
