"""The study's folder: continued only as the same study, moved aside whole, never deleted."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.config import SweepConfig
from orchestrator.lock import StudyBusy, owner_of_this_process, study_lock
from orchestrator.results.store import ResultStore
from orchestrator.study_folder import StudyChanged, as_data, dump, move_aside, open_folder
from orchestrator.yaml_source import parse_sweep

BASE: dict[str, Any] = {
    "study": "s",
    "model": "m",
    "launcher": {"kind": "simulated", "profile": "tiny"},
    "server": {"flags": {"tp-size": 8}, "env": {"NCCL_DEBUG": "WARN"}},
    "space": {
        "flags": {
            "topk": {"choices": [1, 2, 4]},
            "steps": {"int": [1, 5], "when": {"topk": [1, 2]}},
            "frac": {"float": [0.5, 0.9]},
        },
        "env": {"NCCL_PROTO": {"choices": [None, "LL", "Simple"]}},
    },
    "score": {"metric": "output_tokens_per_s", "concurrency": 128},
    "pareto": ["maximize output_tokens_per_s@128", "maximize output_tokens_per_s@1"],
    "constraints": ["ttft_ms.p99@32 <= 4000"],
    "budget": {"trials": 24},
    "sampler": {"kind": "tpe", "seed": 0},
}


def config(change: Callable[[dict[str, Any]], None] = lambda data: None) -> SweepConfig:
    data = SweepConfig.model_validate(BASE).model_dump(by_alias=True)
    change(data)
    return SweepConfig.model_validate(data)


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path / "results" / "s")


# ---- the file reads back -----------------------------------------------------------------------------------

TRICKY = st.one_of(
    st.sampled_from(
        ["no", "NO", "y", "Off", "true", "1e3", "0x10", "0o7", "010", "1_000", "1:30", "2026-01-01", "", " x", "x ",
         "null", "~", "a: b", "#x", "a #b", "a:b", "- a", "{a}", "[a]", "*a", "&a", "!a", "%a", "@a", "`a", "|", ">",
         "'", '"', "é", "日本", "😀", "two\nlines", "tail\n", "\n", "tab\there", ".inf", ".nan", "=", "<<", "?", "-",
         "a,b", "\x85", "\u2028", "\ufeff", "\x00", "\x1b", "x" * 300, "word " * 60, "1.", ".5", "+1", "-0", "e5"]
    ),
    st.text(max_size=8).filter(lambda t: not any(0xD800 <= ord(c) <= 0xDFFF for c in t)),
)  # fmt: skip
NUMBERS = st.one_of(st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False))
SCALARS = st.one_of(TRICKY, NUMBERS, st.booleans())
JSON = st.recursive(
    st.one_of(SCALARS, st.none()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TRICKY, inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(["step", "time", "python", "float", "choices", "a", "no", "y", "1", "0x10", "null", "on-off"])
FLAGS = st.one_of(SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(TRICKY, JSON, max_size=2))


@st.composite
def configs(draw: st.DrawFn) -> SweepConfig:
    names = draw(st.lists(NAMES, max_size=4, unique=True))
    parameters: dict[str, Any] = {}
    for name in names:
        choices = draw(st.lists(st.one_of(st.none(), TRICKY), min_size=1, max_size=3, unique=True))
        parameters[name] = {"choices": choices}
        if len(parameters) > 1:
            values = parameters[names[0]]["choices"]
            parameters[name]["when"] = {names[0]: draw(st.sampled_from([values[0], values]))}
    return SweepConfig.model_validate(
        {
            **BASE,
            "model": draw(TRICKY.filter(bool)),
            "launcher": draw(
                st.sampled_from([{"kind": "sglang"}, {"kind": "sglang", "python": "no"}, BASE["launcher"]])
            ),
            "server": {
                "flags": {f"f-{k}": v for k, v in draw(st.dictionaries(NAMES, FLAGS, max_size=3)).items()},
                "env": draw(st.dictionaries(st.sampled_from(["Y", "NO", "A"]), st.one_of(TRICKY, NUMBERS), max_size=3)),
            },
            "space": {
                "flags": parameters,
                "env": {
                    "E": {"choices": draw(st.lists(TRICKY, min_size=1, max_size=3, unique=True))},
                    "R": {"float": sorted(draw(st.lists(NUMBERS, min_size=2, max_size=2)))},
                    "I": {"int": [1, 2**70], "log": draw(st.booleans())},
                },
            },
            "budget": {"trials": 3, "time": draw(st.sampled_from([None, "2h"]))},
            "sampler": draw(st.sampled_from([{"kind": "random", "seed": 1}, BASE["sampler"]])),
        }
    )  # fmt: skip


@settings(max_examples=100)
@given(configs())
def test_what_is_written_reads_back_as_the_same_config(written: SweepConfig) -> None:
    read, _ = parse_sweep(dump(written), "study.yaml")
    assert read == written
    # Equality takes 1 for 1.0 and for true; the text tells them apart.
    assert repr(read) == repr(written)
    assert dump(read) == dump(written)


def test_what_is_written_is_read_alike_by_every_version_of_yaml(store: ResultStore) -> None:
    open_folder(store, config(), "a.yaml")
    text = store.study_yaml.read_text()
    assert text.startswith("# As run by a.yaml: ")
    assert "simulated:" not in "\n".join(text.splitlines()[1:])
    assert "None" not in text


# ---- the same study, or not --------------------------------------------------------------------------------


def test_the_same_config_continues_with_the_same_id(store: ResultStore) -> None:
    first = open_folder(store, config(), "a.yaml")
    assert open_folder(store, config(), "b\n.yaml") == first
    assert open_folder(ResultStore(store.root), config(), "a.yaml") == first


def test_two_studies_have_different_ids(tmp_path: Path) -> None:
    ids = {open_folder(ResultStore(tmp_path / name / "s"), config(), "a.yaml") for name in "abc"}
    assert len(ids) == 3


def _set(*path: Any) -> Callable[[dict[str, Any]], None]:
    *keys, last, value = path

    def change(data: Any) -> None:
        for key in keys:
            data = data[key]
        data[last] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("budget", "trials", 48),
        _set("budget", "time", "2h"),
        _set("pareto", ("maximize output_tokens_per_s@1", "maximize output_tokens_per_s@128")),
        _set("pareto", ()),
        _set("simulated", {"budget": {"trials": 3}}),
        _set("space", "flags", "topk", "choices", [4, 1, 2]),
        _set("space", "env", "NCCL_PROTO", "choices", ["Simple", None, "LL"]),
    ],
)
def test_more_trials_other_objectives_and_other_order_continue(
    store: ResultStore, change: Callable[[dict[str, Any]], None]
) -> None:
    first = open_folder(store, config(), "a.yaml")
    assert open_folder(store, config(change), "a.yaml") == first
    # The file shows what ran last, and that is what the next run is compared with.
    assert parse_sweep(store.study_yaml.read_text(), "x")[0] == config(change).model_copy(update={"simulated": {}})


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (_set("space", "flags", "topk", "choices", [1, 2, 4, 8]),
         "space.flags.topk.choices: was [1, 2, 4], now [1, 2, 4, 8]"),
        (_set("space", "flags", "topk", "choices", [1, 2]), "space.flags.topk.choices: was [1, 2, 4], now [1, 2]"),
        (_set("space", "flags", "topk", "choices", [1, 2, "4"]),
         "space.flags.topk.choices: was [1, 2, 4], now ['4', 1, 2]"),
        (_set("space", "flags", "steps", "int", (1, 8)), "space.flags.steps.int: was [1, 5], now [1, 8]"),
        (_set("space", "flags", "steps", "when", {"topk": 1}), "space.flags.steps.when.topk: was [1, 2], now 1"),
        (_set("space", "flags", "frac", "log", True), "space.flags.frac.log: was False, now True"),
        (_set("space", "flags", "frac", "step", 0.1), "space.flags.frac.step: was absent, now 0.1"),
        (_set("space", "flags", "new", {"choices": [1]}), "space.flags.new: was absent, now "
         "{'choices': [1], 'log': False, 'when': {}}"),
        (_set("server", "flags", "tp-size", 4), "server.flags.tp-size: was 8, now 4"),
        (_set("server", "flags", "tp-size", True), "server.flags.tp-size: was 8, now True"),
        (_set("server", "env", {}), "server.env.NCCL_DEBUG: was 'WARN', now absent"),
        (_set("workload", "level", "min_s", 1.0), "workload.level.min_s: was 5.0, now 1.0"),
        (_set("workload", "concurrency", (1, 32, 128)),
         "workload.concurrency: was [1, 8, 32, 128], now [1, 32, 128]"),
        (_set("launcher", "profile", "spec-wins"), "launcher.profile: was 'tiny', now 'spec-wins'"),
        (_set("launcher", {"kind": "sglang"}), "launcher.kind: was 'simulated', now 'sglang'"),
        (_set("node", "gpus", 4), "node.gpus: was 8, now 4"),
        (_set("score", "concurrency", 1), "score.concurrency: was 128, now 1"),
        (_set("constraints", ()), "constraints: was ['ttft_ms.p99@32 <= 4000'], now []"),
        (_set("sampler", "seed", 1), "sampler.seed: was 0, now 1"),
        (_set("model", "other"), "model: was 'm', now 'other'"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_both_values_and_the_way_out(
    store: ResultStore, change: Callable[[dict[str, Any]], None], line: str
) -> None:
    open_folder(store, config(), "a.yaml")
    before = store.study_yaml.read_bytes()
    with pytest.raises(StudyChanged) as caught:
        open_folder(store, config(change), "a.yaml")
    lines = str(caught.value).splitlines()
    assert f"  {line}" in lines
    assert "--fresh" in lines[-1]
    assert store.study_yaml.read_bytes() == before


def test_one_that_became_true_is_a_change(store: ResultStore) -> None:
    open_folder(store, config(_set("server", "flags", "tp-size", 1)), "a.yaml")
    with pytest.raises(StudyChanged, match="tp-size: was 1, now True"):
        open_folder(store, config(_set("server", "flags", "tp-size", True)), "a.yaml")


def test_an_int_range_that_became_a_float_range_is_refused(store: ResultStore) -> None:
    open_folder(store, config(), "a.yaml")
    change = _set("space", "flags", "steps", {"float": (1, 5), "when": {"topk": [1, 2]}})
    with pytest.raises(StudyChanged) as caught:
        open_folder(store, config(change), "a.yaml")
    assert "  space.flags.steps.int: was [1, 5], now absent" in str(caught.value).splitlines()
    assert "  space.flags.steps.float: was absent, now [1, 5]" in str(caught.value).splitlines()


def test_prompts_made_of_something_else_are_another_study(store: ResultStore) -> None:
    first = open_folder(store, config(), "a.yaml", "digest")
    assert open_folder(store, config(), "a.yaml", "digest") == first
    with pytest.raises(StudyChanged, match=r"file, the corpus or the model's tokenizer has changed.*--fresh"):
        open_folder(store, config(), "a.yaml", "another")
    assert open_folder(store, config(), "a.yaml", "digest") == first


@pytest.mark.parametrize("left", ["study.yaml", "study.id", "both"])
@pytest.mark.parametrize("result", ["study.db", "trials", "levels", "journal", "requests"])
def test_results_of_an_unknown_study_are_not_continued(store: ResultStore, left: str, result: str) -> None:
    open_folder(store, config(), "a.yaml")
    for name in ("study.yaml", "study.id"):
        if left in (name, "both"):
            (store.root / name).unlink()
    if "." in result:
        (store.root / result).touch()
    else:
        (store.root / result).mkdir()
    with pytest.raises(StudyChanged, match=f"{result}.*--fresh"):
        open_folder(store, config(), "a.yaml")


def test_a_start_that_was_cut_off_between_its_two_files_begins_anew(store: ResultStore) -> None:
    open_folder(store, config(), "a.yaml")
    store.study_yaml.unlink()
    study_id = open_folder(store, config(), "a.yaml")
    assert open_folder(store, config(), "a.yaml") == study_id


@pytest.mark.parametrize("content", [b"", b"study: [", b"\xff\xfe", b"study: s\n", b"later_key: 1\n"])
def test_a_stored_file_that_cannot_be_read_is_refused_with_the_way_out(store: ResultStore, content: bytes) -> None:
    open_folder(store, config(), "a.yaml")
    store.study_yaml.write_bytes(content)
    with pytest.raises(StudyChanged, match="--fresh"):
        open_folder(store, config(), "a.yaml")
    assert store.study_yaml.read_bytes() == content


# ---- moved aside -------------------------------------------------------------------------------------------


def _fill(root: Path) -> dict[str, bytes]:
    files = {"study.id": b"abc", "study.yaml": b"x", "study.db": b"db", "trials/000000.arrow": b"1"}
    files |= {"levels/000001/c0001.arrow": b"2", "logs/ray.log": b"3", "study.lock": b"{}"}
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return files


def _content(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_a_study_is_moved_whole_and_the_lock_stays_held(tmp_path: Path) -> None:
    root = tmp_path / "s"
    files = _fill(root)
    lock = root / "study.lock"
    with study_lock(lock, owner_of_this_process("a")):
        moved = move_aside(root, lock)
        assert moved is not None
        assert moved.parent == tmp_path
        assert _content(moved) == {n: c for n, c in files.items() if n != "study.lock"}
        assert [p.name for p in root.iterdir()] == ["study.lock"]
        with pytest.raises(StudyBusy), study_lock(lock, owner_of_this_process("b")):
            pytest.fail("the lock was lost")
        assert move_aside(root, lock) is None
        # The same moment again: each has its own place.
        _fill(root)
        second = move_aside(root, lock)
        assert second not in (None, moved)
        assert sorted(tmp_path.iterdir()) == sorted([root, moved, second])
    with study_lock(lock, owner_of_this_process("c")):
        pass


def test_two_moves_in_the_same_instant_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        @staticmethod
        def now(zone: Any) -> Any:
            return type("Moment", (), {"strftime": lambda self, form: "20260101T000000000000"})()

    monkeypatch.setattr("orchestrator.study_folder.datetime", Clock)
    root = tmp_path / "s"
    targets = []
    for _ in range(3):
        _fill(root)
        targets.append(move_aside(root, root / "study.lock"))
    assert len(set(targets)) == 3
    for target in targets:
        assert target is not None
        assert (target / "study.id").read_bytes() == b"abc"


_CALLS = ("rename", "mkdir", "link", "unlink")


@pytest.mark.parametrize("call", range(5))
def test_a_kill_while_moving_finds_the_old_study_whole_here_or_there(tmp_path: Path, call: int) -> None:
    root = tmp_path / "s"
    files = _fill(root)
    pid = os.fork()
    if pid == 0:
        try:
            left = [call]

            def guard(inner: Callable[..., Any]) -> Callable[..., Any]:
                def guarded(*arguments: Any, **named: Any) -> Any:
                    if left[0] == 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    left[0] -= 1
                    return inner(*arguments, **named)

                return guarded

            for name in _CALLS:
                setattr(os, name, guard(getattr(os, name)))
            with study_lock(root / "study.lock", owner_of_this_process("a")):
                # The lock made no folder: it was there.
                left[0] = call
                move_aside(root, root / "study.lock")
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL
    data = {name: content for name, content in files.items() if name != "study.lock"}
    holders = [folder for folder in tmp_path.iterdir() if any(n != "study.lock" for n in _content(folder))]
    assert len(holders) == 1
    assert {n: c for n, c in _content(holders[0]).items() if n != "study.lock"} == data
    # Whichever it is, the study can be run again.
    with study_lock(root / "study.lock", owner_of_this_process("b")):
        if holders[0] == root:
            assert move_aside(root, root / "study.lock") is not None
        assert open_folder(ResultStore(root), config(), "a.yaml")
    assert sum("study.db" in _content(folder) for folder in tmp_path.iterdir()) == 1


def test_another_driver_between_the_moves_wins_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "s"
    _fill(root)

    def link(source: Path, target: Path) -> None:
        target.write_text("the other's")
        raise FileExistsError

    monkeypatch.setattr("orchestrator.study_folder.os.link", link)
    with pytest.raises(StudyBusy, match="just started"):
        move_aside(root, root / "study.lock")
    assert (root / "study.lock").read_text() == "the other's"
    assert any("study.db" in _content(folder) for folder in tmp_path.iterdir())


def test_plain_data_keeps_null_as_a_value_and_drops_it_as_an_absent_option() -> None:
    space = {"flags": {"python": {"choices": [None, 1]}, "b": {"choices": [1], "when": {"python": None}}}}
    data = as_data(config(_set("space", space)))
    assert data["space"]["flags"]["b"]["when"] == {"python": None}
    assert "int" not in data["space"]["flags"]["b"]
    assert "time" not in data["budget"]


def test_an_option_that_was_set_to_nothing_stays_so() -> None:
    """A level without a target of precision, where the default is one."""
    fixed = config(_set("workload", "level", "half_width", None))
    back, _ = parse_sweep(dump(fixed), "study.yaml")
    assert back.workload.level.half_width is None
    assert as_data(back) == as_data(fixed)
