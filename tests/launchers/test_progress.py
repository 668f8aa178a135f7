"""Phases and shards, read from logs recorded from SGLang 0.5.23, cut anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers.base import Phase
from launchers.sglang.progress import ProgressReader

LOGS = Path(__file__).parents[1] / "data" / "logs"
ON_CPU = [Phase.DISTRIBUTED_INIT, Phase.LOADING_WEIGHTS, Phase.KV_POOL, Phase.WARMUP]
ON_GPU = (
    "[2026-11-30 16:00:00 TP0] Init parallel begin.\n[2026-11-30 16:00:00 TP1] Init parallel begin.\n"
    "[2026-11-30 16:00:01 TP0] Load weight begin. avail mem=94.10 GB\n"
    "[2026-11-30 16:00:01 TP1] Load weight begin. avail mem=94.10 GB\n"
    "\rLoading safetensors checkpoint shards:   0% Completed | 0/163 [00:00<?, ?it/s]"
    "\rLoading safetensors checkpoint shards:  50% Completed | 81/163 [02:00<02:00, 1.5s/it]"
    "\rLoading safetensors checkpoint shards: 100% Completed | 163/163 [04:00<00:00, 1.5s/it]\n"
    "[2026-11-30 16:05:00 TP1] Load weight end. elapsed=240 s\n"
    "[2026-11-30 16:06:00 TP0] Load weight end. elapsed=300 s\n"
    "[2026-11-30 16:06:01 TP0] KV Cache is allocated. #tokens: 90000\n"
    "[2026-11-30 16:06:09 TP0] Capture target decode CUDA graph begin. This can take up to several minutes.\n"
    "[2026-11-30 16:08:09 TP0] Capture draft decode CUDA graph begin. This can take up to several minutes.\n"
    "[2026-11-30 16:09:00] INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)\n"
)


def recorded(name: str) -> str:
    return (LOGS / f"{name}.log").read_text()


@pytest.mark.parametrize(
    ("name", "phases"),
    [
        ("small", ON_CPU),
        ("tp2", ON_CPU),
        ("dp2", ON_CPU),
        ("spec_eagle", ON_CPU),
        ("spec_toomany", ON_CPU),
        ("oom_frac", ON_CPU[:3]),
        ("bad_tp", ON_CPU[:1]),
        ("fail_badflag", []),
        ("fail_nomodel", []),
    ],
)
def test_phases_of_recorded_starts(name: str, phases: list[Phase]) -> None:
    assert ProgressReader().feed(recorded(name) + "\n") == phases


def test_phases_of_a_start_on_gpus() -> None:
    assert ProgressReader().feed(ON_GPU) == list(Phase)[1:-1]


def test_older_words_for_the_capture_are_known() -> None:
    reader = ProgressReader()
    assert reader.feed("Capture cuda graph begin. This can take up to several minutes.\n") == [Phase.GRAPH_CAPTURE]


def test_loading_ends_with_the_last_rank() -> None:
    reader = ProgressReader()
    reader.feed(ON_GPU[: ON_GPU.index("[2026-11-30 16:06:00 TP0] Load weight end")])
    assert reader.phase is Phase.LOADING_WEIGHTS
    assert reader.feed("[2026-11-30 16:06:00 TP0] Load weight end. elapsed=300 s\n") == [Phase.KV_POOL]


def test_a_drafter_that_loads_later_does_not_lead_back() -> None:
    reader = ProgressReader()
    text = recorded("spec_eagle")
    reader.feed(text[: text.rindex("Load weight end")])
    assert text.count("Load weight begin") == 2
    assert reader.phase is Phase.KV_POOL


def test_a_bar_that_is_redrawn_on_one_line_is_read() -> None:
    reader = ProgressReader()
    cut = ON_GPU.index("| 81/163")
    reader.feed(ON_GPU[:cut])
    assert reader.shards == (0, 163)
    # A line counts when its end is there.
    reader.feed(ON_GPU[cut : ON_GPU.index("100% Completed")])
    assert reader.shards == (81, 163)


@given(st.data())
def test_text_cut_anywhere_gives_the_same(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([ON_GPU, recorded("tp2"), recorded("spec_eagle"), recorded("oom_frac")]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=40)))
    whole, parts = ProgressReader(), ProgressReader()
    expected = whole.feed(text)
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert [phase for piece in pieces for phase in parts.feed(piece)] == expected
    assert (parts.phase, parts.shards) == (whole.phase, whole.shards)
