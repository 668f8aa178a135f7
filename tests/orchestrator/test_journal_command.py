"""`python -m orchestrator.journal`: what is shown, and notes that stay."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from conductor_desk import Desk
from rich.console import Console

from orchestrator.analysis.rows import Outcome
from orchestrator.journal import main
from orchestrator.kept_study import open_study
from orchestrator.lock import owner_of_this_process
from orchestrator.report.journal import print_journal
from orchestrator.results.files import read_table
from orchestrator.results.journal import add_note, read_notes
from orchestrator.results.schemas import JOURNAL
from orchestrator.results.store import ResultStore
from orchestrator.study_folder import dump

Lines = Callable[..., tuple[int, str, str]]


@pytest.fixture
def kept(desk: Callable[..., Desk], tmp_path: Path) -> Desk:
    """A study with a baseline, a trial that failed for good, and one at work."""
    kept = desk()
    (tmp_path / "study.yaml").write_text(dump(kept.config))
    (tmp_path / "study.id").write_text("id-1\n")
    kept.study.claim(owner_of_this_process("run"))
    kept.run("a", 100.0)
    kept.fail("a", "unsupported", "it says no")
    plan = kept.conductor.next("a")
    assert plan is not None
    kept.measure("a", plan, kept.start(plan), plan.ladder[0])
    return kept


@pytest.fixture
def shown(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Lines:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main([str(tmp_path), *arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return run


def test_every_trial_has_a_line_with_its_reason(kept: Desk, shown: Lines) -> None:
    code, out, _ = shown()
    assert code == 0
    assert out.splitlines()[0].startswith("SIMULATED")
    assert "a sweep is at work on it" in out
    lines = {line[:5].strip(): line for line in out.splitlines()}
    assert "done" in lines["0"]
    assert "infeasible cannot run (unsupported) while loading weights: it says no" in lines["1"]
    assert "running    C=1 measured (1 of 2 levels)" in lines["2"]
    assert "1 candidate: to be drawn" in out


def test_a_state_or_a_trial_alone(kept: Desk, shown: Lines) -> None:
    assert "cannot run" in shown("--state", "infeasible")[1]
    assert "cannot run" not in shown("--state", "done")[1]
    assert "No trial is failed." in shown("--state", "failed")[1]
    code, out, _ = shown("--trial", "0")
    assert (code, "launch 0" in out) == (0, True)
    code, _, err = shown("--trial", "9")
    assert code == 2
    assert "it has trials 0 to 2" in err


def test_machines_get_the_same_as_json(kept: Desk, shown: Lines) -> None:
    shown("--note", "1", "a typo of mine")
    data = json.loads(shown("--json")[1])
    assert (data["simulated"], data["sweep_running"], data["score"]) == (True, True, "output_tokens_per_s@4")
    assert [(t["trial"], t["state"]) for t in data["trials"]] == [(0, "done"), (1, "infeasible"), (2, "running")]
    assert data["trials"][1]["notes"][0]["text"] == "a typo of mine"
    assert [t["trial"] for t in json.loads(shown("--json", "--state", "running")[1])["trials"]] == [2]


def test_the_sweep_keeps_the_journal_in_arrow_as_it_goes(kept: Desk) -> None:
    table = read_table(kept.store.journal_file, JOURNAL)
    assert table is not None
    rows = [row for row in table.to_pylist() if row["trial"] is not None]
    assert [(row["trial"], row["state"]) for row in rows] == [(0, "done"), (1, "infeasible"), (2, "running")]
    assert {(row["study"], row["simulated"], row["score_name"]) for row in rows} == {
        ("conducted", True, "output_tokens_per_s@4")
    }
    assert rows[0]["score"] == 100.0


def test_what_an_interruption_left_is_stopped_and_goes_on_in_the_next_run(
    kept: Desk, shown: Lines, desk: Callable[..., Desk]
) -> None:
    owner = owner_of_this_process("run")
    kept.study.claim(owner | {"started": 1.0})
    out = shown("--state", "stopped")[1]
    assert "the sweep ended while it ran; C=1 measured (1 of 2 levels); the same command goes on with it" in out
    again = desk()
    again.study.claim(owner)
    again.conductor.resume()
    assert "    2  pending" in shown()[1]
    again.run("a")
    assert "    2  done" in shown()[1]


def test_a_start_that_is_made_again_is_pending_with_what_it_failed_of(
    desk: Callable[..., Desk], tmp_path: Path, shown: Lines
) -> None:
    d = desk()
    (tmp_path / "study.yaml").write_text(dump(d.config))
    (tmp_path / "study.id").write_text("id-1\n")
    d.run("a")
    d.fail("a", "gpu_busy", "another process holds GPU 3")
    out = shown("--state", "pending")[1]
    assert "failed (gpu busy), to be started again, since another start may not meet it: another process holds" in out
    d.fail("a", "gpu_busy", "another process holds GPU 3")
    assert "failed (gpu busy) while loading weights: another process holds GPU 3" in shown("--state", "failed")[1]


def test_notes_stay_through_a_resumption_and_a_rebuild(kept: Desk, shown: Lines, desk: Callable[..., Desk]) -> None:
    assert shown("--note", "2", "drafter wiring was wrong")[:2] == (0, "noted of trial 2\n")
    shown("--note", "2", "second look: it was right")
    again = desk()
    again.conductor.resume()
    again.run("a")
    again.store.rebuild(again.config.objectives, again.config.limits)
    out = shown()[1]
    assert out.index("drafter wiring was wrong") < out.index("second look")


def test_of_one_trial_notes_and_message_are_whole(desk: Callable[..., Desk], tmp_path: Path, shown: Lines) -> None:
    d = desk()
    (tmp_path / "study.yaml").write_text(dump(d.config))
    (tmp_path / "study.id").write_text("id-1\n")
    d.run("a")
    words = " ".join(f"word{n}" for n in range(60))
    d.fail("a", "unsupported", f"it says no\n  {words}\nand ends")
    shown("--note", "1", f"first line\n\n  {words}\x1b[31m\nlast line")
    out = shown("--trial", "1")[1]
    assert f"it says no\n  {words}\nand ends\n" in out
    assert f"UTC: first line\n\n  {words} [31m\nlast line\n" in out
    # Among the others each is a line, cut.
    for line in shown()[1].splitlines():
        assert "word59" not in line
    assert json.loads(shown("--json")[1])["trials"][1]["notes"][0]["text"].endswith("last line")


def test_a_note_to_nothing_or_of_nothing_is_refused(kept: Desk, shown: Lines) -> None:
    code, _, err = shown("--note", "7", "who?")
    assert (code, "there is no trial 7" in err) == (2, True)
    code, _, err = shown("--note", "one", "who?")
    assert (code, "'one' is no trial's number" in err) == (2, True)
    code, _, err = shown("--note", "1", "  ")
    assert (code, "the note is empty" in err) == (2, True)
    assert not kept.store.notes_folder.exists()


def test_notes_written_while_a_sweep_begins_are_all_kept(kept: Desk) -> None:
    """What begins removes half-written files, but no note that is just being written."""
    done = threading.Event()

    def begin_again() -> None:
        while not done.is_set():
            ResultStore(kept.store.root).recover()

    other = threading.Thread(target=begin_again)
    other.start()
    try:
        for number in range(30):
            add_note(kept.store, 0, f"note {number}")
    finally:
        done.set()
        other.join()
    assert [note.text for note in read_notes(kept.store)[0]] == [f"note {n}" for n in range(30)]


def test_a_file_that_is_no_note_is_left_alone(kept: Desk) -> None:
    add_note(kept.store, 1, "kept")
    (kept.store.notes_folder / "000001-broken.arrow").write_bytes(b"half")
    assert [note.text for note in read_notes(kept.store)[1]] == ["kept"]
    assert (kept.store.notes_folder / "000001-broken.arrow").read_bytes() == b"half"


@pytest.mark.parametrize("width", [40, 80, 150])
def test_a_terminal_of_any_width_shows_the_whole_of_it(kept: Desk, tmp_path: Path, width: int) -> None:
    add_note(kept.store, 1, "a typo\nof mine")
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, highlight=False, color_system=None)
    study = open_study(tmp_path)
    print_journal(console, study, study.journal(), read_notes(study.store))
    shown = out.getvalue()
    assert max(map(len, shown.splitlines())) <= width
    assert "SIMULATED" in shown
    words = shown.split()
    for word in ("infeasible", "running", "(unsupported)", "typo", "mine", "pending"):
        assert word in words


def test_text_that_looks_like_markup_is_shown_as_it_is(kept: Desk, shown: Lines) -> None:
    shown("--note", "0", "[bold]see[/bold] [link]")
    assert "[bold]see[/bold] [link]" in shown()[1]
    assert "[bold]see[/bold] [link]" in shown("--trial", "0")[1]


def test_no_study_is_bad_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "absent")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_draws_that_were_never_launched_are_counted(desk: Callable[..., Desk], tmp_path: Path, shown: Lines) -> None:
    d = desk(changes={"budget": {"trials": 7}})
    (tmp_path / "study.yaml").write_text(dump(d.config))
    (tmp_path / "study.id").write_text("id-1\n")
    while (plan := d.conductor.next("a")) is not None:
        d.end("a", d.start(plan), Outcome("failed", "bad_config", "no")) if plan.ordinal else d.carry_out(
            "a", plan, 9.0
        )
    answered = len(d.study.answered())
    assert answered
    assert f"{answered} draw" in shown()[1]
