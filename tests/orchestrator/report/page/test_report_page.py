"""The report of every kind of study: what it holds, that nothing from outside acts in it, what its files are."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from kept_studies import SPACE, kept, report_config

from orchestrator.analysis.rows import Row
from orchestrator.kept_study import KeptStudy
from orchestrator.report.page.contents import Contents, contents_of
from orchestrator.report.page.drawn import drawn
from orchestrator.report.page.html import page, script_json
from orchestrator.report.page.markdown import escaped, summary
from orchestrator.report.page.view import view_of
from orchestrator.report.page.write import write_report

Build = Callable[..., Row]
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>`|"


class Page(HTMLParser):
    """What a browser would make of it: the elements outside of scripts, and the figures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._inside: list[str] = []
        self._json = ""
        self.feed(text)
        self.charts: dict[str, Any] = json.loads(self._json)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside.append(dict(attrs).get("id") or tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.text += data
        elif self._inside[-1] == "charts":
            self._json += data

    def ids(self) -> list[str]:
        return [attrs["id"] or "" for _, attrs in self.elements if "id" in attrs]


def contents(study: KeptStudy) -> Contents:
    return contents_of(view_of(study))


def shown(study: KeptStudy) -> Page:
    return Page(page(contents(study)))


def flags(number: int) -> dict[str, Any]:
    """Of twelve settings: two caps, with speculation of some steps or without."""
    own: dict[str, Any] = {"max-running-requests": (48, 128)[number % 2]}
    if number % 3 == 0:
        own |= {"speculative-algorithm": "EAGLE3", "speculative-num-steps": 1 + number // 3}
    return own


@pytest.fixture
def study(build_row: Build, tmp_path: Path) -> KeptStudy:
    """A baseline and twelve settings at two loads."""
    rows = [build_row(trial=0, concurrency=c, rate=90.0 * c, role="baseline") for c in (1, 8)]
    for number in range(1, 13):
        accept = 2.0 if number % 3 == 0 else None
        for c in (1, 8):
            rate = c * (100.0 + number) / (2 if accept else 1)
            rows.append(build_row(trial=number, concurrency=c, rate=rate, flags=flags(number), accept_length=accept))
    return kept(tmp_path, rows)


def test_it_opens_with_the_answer_and_has_every_part(study: KeptStudy) -> None:
    made = shown(study)
    assert made.ids().index("answer") < made.ids().index("front")
    for sentence in contents(study).view.answer.sentences:
        assert sentence in made.text
    assert {"front", "gain", "throughput", "tpot", "importance", "parallel"} <= set(made.charts)
    assert {"accept-steps", "accept-load", "starts"} <= set(made.charts)
    assert {"slice-max-running-requests", "slice-speculative-num-steps"} <= set(made.charts)
    # Each has a place, a sentence and a table.
    plots = {attrs["data-chart"]: attrs for _, attrs in made.elements if "data-chart" in attrs}
    assert plots.keys() == made.charts.keys()
    assert all(attrs["role"] == "img" and len(attrs["aria-label"] or "") > 40 for attrs in plots.values())
    assert sum(tag == "details" for tag, _ in made.elements) >= len(plots)
    assert len(made.ids()) == len(set(made.ids()))
    assert "Simulated." in made.text


def test_it_asks_the_network_for_nothing(study: KeptStudy) -> None:
    made = shown(study)
    for tag, attrs in made.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert "src" not in attrs
        assert (attrs.get("href") or "#").startswith("#")
    policy = next(attrs["content"] or "" for _, attrs in made.elements if attrs.get("http-equiv"))
    assert "default-src 'none'" in policy
    assert "connect-src" not in policy


def test_nothing_from_outside_acts_in_the_page_or_the_summary(build_row: Build, tmp_path: Path) -> None:
    text = SPACE.replace("some/model", f"'{EVIL}'")
    good = [build_row(trial=0, role="baseline", rate=100.0), build_row(trial=1, rate=90.0, flags={"a": EVIL})]
    bad = build_row(trial=2, concurrency=None, state="failed", failure_kind="crash", failure_message=EVIL)
    evil = kept(tmp_path, [*good, bad], report_config(text), notes=(EVIL,))
    made = shown(evil)
    own = [tag for tag, attrs in made.elements if tag == "script"]
    assert len(own) == 3
    assert not any(tag == "img" or any(name.startswith("on") for name in attrs) for tag, attrs in made.elements)
    # It is told as what it is.
    assert EVIL in made.text
    assert "<script" not in json.dumps(made.charts)
    told = summary(contents(evil), [])
    body, commands = re.sub(r"```.*?```", "", told, flags=re.S), told
    assert "<script" not in body
    assert "<img" not in body
    assert "SIMULATED" in commands.upper()


def test_no_figure_ends_the_script_that_holds_it() -> None:
    figures = {"a</script>": ["<!--", "&", "\u2028"]}
    text = script_json(figures)
    assert not set(text) & set("<>&\u2028")
    assert json.loads(text) == figures


def test_a_text_cannot_break_out_of_the_summary() -> None:
    assert escaped("a|b `c` *d* <e>\n# f") == r"a\|b \`c\` \*d\* &lt;e&gt; \# f"


def test_measured_rows_are_not_called_simulated(build_row: Build, tmp_path: Path) -> None:
    config = report_config(launcher={"kind": "sglang"}, node={"gpus": 0})
    rows = [build_row(trial=0, role="baseline", rate=9.0, simulated=False, gpus=0)]
    rows.append(build_row(trial=1, rate=8.0, simulated=False, gpus=0))
    made = shown(kept(tmp_path, rows, config))
    assert "imulated" not in made.text.replace("sglang", "")
    front = made.charts["front"]
    assert front["layout"]["yaxis"]["title"]["text"] == "tok/s"
    assert not any("open" in trace["marker"]["symbol"] for trace in front["data"] if "marker" in trace)


def test_a_simulated_front_has_hollow_marks_and_is_called_so(study: KeptStudy) -> None:
    marks = [trace for trace in shown(study).charts["front"]["data"] if "marker" in trace]
    assert all(trace["marker"]["symbol"].endswith("-open") and "simulated" in trace["name"] for trace in marks)
    assert sum(len(trace["x"]) for trace in marks) == 26


def test_intervals_come_from_repeated_starts(study: KeptStudy, build_row: Build, tmp_path: Path) -> None:
    assert all(set(line["error_y"]["array"]) == {0.0} for line in shown(study).charts["throughput"]["data"])
    again = [
        build_row(trial=20 + n, concurrency=8, rate=rate, role="sentinel", repeats=0, repeat=n)
        for n, rate in ((1, 715.0), (2, 722.0))
    ]
    lines = shown(kept(tmp_path, [*study.results.rows, *again])).charts["throughput"]["data"]
    assert all(line["error_y"]["array"][-1] > 0 and line["error_y"]["array"][0] == 0 for line in lines)


def test_the_gain_is_that_over_the_baseline(study: KeptStudy) -> None:
    line = next(t for t in shown(study).charts["gain"]["data"] if t["name"].startswith("trial 11"))
    assert line["y"] == pytest.approx([100 * (111 / 90 - 1)] * 2)


def test_the_parameters_are_read_back_from_the_rows(study: KeptStudy) -> None:
    found = {one.trial: one.params for one in drawn(view_of(study))}
    assert found[1] == {"max-running-requests": 128, "speculative-algorithm": None}
    assert found[6]["speculative-num-steps"] == 3
    assert 0 not in found
    important = contents(study).importance
    assert important is not None
    assert important.shares[0][0].startswith("speculative")
    assert sum(share for _, share in important.shares) == pytest.approx(1)


def test_the_heat_map_needs_both_variables(build_row: Build, tmp_path: Path) -> None:
    space = {
        "env": {"NCCL_PROTO": {"choices": ["LL", "Simple"]}, "NCCL_ALGO": {"choices": [None, "Ring"]}},
    }
    config = report_config(space=space, server={})

    def row(number: int, rate: float, **env: str) -> Row:
        import dataclasses

        made = build_row(trial=number, rate=rate)
        return dataclasses.replace(made, trial=dataclasses.replace(made.trial, requested_env=env))

    rows = [
        row(1, 10.0, NCCL_PROTO="LL"),
        row(2, 30.0, NCCL_PROTO="Simple", NCCL_ALGO="Ring"),
        row(3, 20.0, NCCL_PROTO="LL"),
    ]
    heat = shown(kept(tmp_path, rows, config)).charts["nccl"]["data"][0]
    # Rows: unset, Ring; columns: LL, Simple; the best of a cell.
    assert heat["z"] == [[20.0, None], [None, 30.0]]
    assert "nccl" not in shown(kept(tmp_path, rows[:1], config)).charts


def nothing(build: Build) -> list[Row]:
    return []


def one_trial(build: Build) -> list[Row]:
    return [build(trial=0, role="baseline")]


def only_failures(build: Build) -> list[Row]:
    return [
        build(trial=n, concurrency=None, state="failed", failure_kind="crash", failure_message="Signal 11")
        for n in range(3)
    ]


def no_front(build: Build) -> list[Row]:
    return [build(trial=n, role="candidate" if n else "baseline", cache_state="warm") for n in range(3)]


def open_loop(build: Build) -> list[Row]:
    from orchestrator.offered_load import Load

    return [build(trial=n, concurrency=Load(request_rate=2.5), role="candidate" if n else "baseline") for n in range(2)]


@pytest.mark.parametrize("make", [nothing, one_trial, only_failures, no_front, open_loop])
def test_a_study_of_little_has_a_useful_page(
    make: Callable[[Build], list[Row]], build_row: Build, tmp_path: Path
) -> None:
    config = report_config()
    if make is open_loop:
        config = report_config(
            workload={"request_rate": [2.5], "concurrency": []},
            score={"metric": "output_tokens_per_s", "request_rate": 2.5},
        )
    study = kept(tmp_path, make(build_row), config)
    made = shown(study)
    assert contents(study).view.answer.sentences[0] in made.text
    assert {"answer", "findings", "journal", "origin"} <= set(made.ids())
    for path in write_report(study, tmp_path / "out"):
        assert path.stat().st_size > 0


def test_its_files_stand_together_and_the_summary_shows_the_pictures(study: KeptStudy, tmp_path: Path) -> None:
    written = write_report(study, tmp_path / "out")
    assert [path.name for path in written[:2]] == ["report.html", "report.md"]
    told = written[1].read_text()
    pictures = re.findall(r"\]\(([^)]+\.png)\)", told)
    assert pictures == [f"report/{name}.png" for name in ("front", "gain", "throughput", "tpot", "importance")]
    for name in pictures:
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")
    assert "| trial 11 (best of the search, unconfirmed) |" in told
    assert not list((tmp_path / "out").rglob("*.partial"))


def test_simulated_and_measured_rows_are_refused(build_row: Build, tmp_path: Path) -> None:
    rows = [build_row(trial=0, role="baseline"), build_row(trial=1, simulated=False)]
    with pytest.raises(ValueError, match="simulated and measured"):
        kept(tmp_path, rows)
