"""Phases, files and notes, read from logs recorded from SGLang 0.5.23 and from public reports, cut anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers.base import Phase, StartProgress
from launchers.sglang.progress import ProgressReader, backed_by, simulated_seconds

LOGS = Path(__file__).parents[1] / "data" / "logs"
LOADED = [Phase.DISTRIBUTED_INIT, Phase.LOADING_WEIGHTS, Phase.PROCESSING_WEIGHTS]
ON_CPU = [*LOADED, Phase.KV_POOL, Phase.WARMUP]
ECHO = "[2026-11-30 16:00:00] server_args={'model_path': 'm', 'speculative_algorithm': 'EAGLE', 'tp_size': 2}\n"
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
    return (LOGS / f"{name}.log").read_text() + "\n"


def phases(steps: Iterable[StartProgress]) -> list[Phase]:
    """Each phase once, as it begins."""
    told: list[Phase] = []
    for step in steps:
        if not told or step.phase is not told[-1]:
            told.append(step.phase)
    return told


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("small", ON_CPU),
        ("tp2", ON_CPU),
        ("dp2", ON_CPU),
        ("spec_toomany", ON_CPU),
        ("oom_frac", ON_CPU[:-1]),
        ("bad_tp", ON_CPU[:1]),
        ("fail_badflag", []),
        ("fail_nomodel", []),
    ],
)
def test_phases_of_recorded_starts(name: str, expected: list[Phase]) -> None:
    assert phases(ProgressReader().feed(recorded(name))) == expected


def test_a_draft_model_that_the_settings_name_is_a_load_of_its_own() -> None:
    reader = ProgressReader()
    log = recorded("spec_eagle")
    assert log.count("Load weight begin") == 2
    steps = reader.feed(ECHO + log)
    assert phases(steps) == [*LOADED, Phase.LOADING_DRAFT, Phase.KV_POOL, Phase.WARMUP]
    assert [s.shards for s in steps if s.phase is Phase.LOADING_DRAFT] == [None, (0, 1), (1, 1)]


def test_a_second_load_that_nothing_announced_does_not_lead_back() -> None:
    assert phases(ProgressReader().feed(recorded("spec_eagle"))) == ON_CPU


def test_every_rank_loads_the_drafter_before_the_pool_begins() -> None:
    reader = ProgressReader()

    def line(rank: int, what: str) -> list[Phase]:
        return phases(reader.feed(f"[2026-11-30 16:00:00 TP{rank}] {what}\n"))

    reader.feed(ECHO)
    for rank in (0, 1):
        line(rank, "Init parallel begin.")
        line(rank, "Load weight begin. avail mem=94.10 GB")
    assert line(0, "Load weight end. elapsed=9 s") == []
    # The first rank is through with the target, and begins its drafter before the second one is.
    assert line(0, "Load weight begin. avail mem=9 GB") == []
    assert line(1, "Load weight end. elapsed=12 s") == [Phase.PROCESSING_WEIGHTS]
    assert line(1, "Load weight begin. avail mem=9 GB") == [Phase.LOADING_DRAFT]
    assert line(0, "Load weight end. elapsed=3 s") == []
    assert line(1, "Load weight end. elapsed=3 s") == [Phase.KV_POOL]


def test_phases_of_a_start_on_gpus() -> None:
    expected = [phase for phase in list(Phase)[1:-1] if phase is not Phase.LOADING_DRAFT]
    assert phases(ProgressReader().feed(ON_GPU)) == expected


def test_a_load_and_a_capture_of_many_minutes_are_told_by_phase() -> None:
    """P01: a bar drawn with carriage returns alone, half an hour of silence, a capture of 22 minutes."""
    reader = ProgressReader()
    bar = "\rLoading safetensors checkpoint shards: {:3d}% Completed | {}/163 [00:07<00:28, 4.6it/s]"
    assert phases(reader.feed(bar.format(0, 0) + bar.format(50, 81))) == [Phase.LOADING_WEIGHTS]
    assert phases(reader.feed(bar.format(100, 163) + "\r")) == [Phase.LOADING_WEIGHTS, Phase.PROCESSING_WEIGHTS]
    assert reader.last_line.startswith("Loading safetensors checkpoint shards: 100% Completed | 163/163")
    begin = "Capture cuda graph begin. This can take up to several minutes.\n"
    assert phases(reader.feed(begin)) == [Phase.GRAPH_CAPTURE]
    assert reader.feed("Capture cuda graph end. Time elapsed: 1334.38 s\n") == []
    # A draft model's capture follows in the same words.
    assert reader.feed(begin) == []
    assert reader.feed("The server is fired up and ready to roll!\n") == []


def test_loading_ends_with_the_last_rank() -> None:
    reader = ProgressReader()
    reader.feed(ON_GPU[: ON_GPU.index("[2026-11-30 16:06:00 TP0] Load weight end")])
    assert reader.progress.phase is Phase.PROCESSING_WEIGHTS
    assert phases(reader.feed("[2026-11-30 16:06:00 TP0] Load weight end. elapsed=300 s\n")) == [Phase.KV_POOL]


def test_each_file_of_a_bar_that_is_redrawn_on_one_line_is_a_step() -> None:
    reader = ProgressReader()
    cut = ON_GPU.index("| 81/163")
    reader.feed(ON_GPU[:cut])
    assert reader.progress.shards == (0, 163)
    # A line counts when its end is there.
    steps = reader.feed(ON_GPU[cut : ON_GPU.index("100% Completed")])
    assert steps == [StartProgress(Phase.LOADING_WEIGHTS, (81, 163))]


@pytest.mark.parametrize(
    "bar",
    [
        "Multi-thread loading shards:  44% Completed | 72/160 [00:07<00:28, 4.6it/s]",
        "Multi-thread loading pt checkpoint shards:  44% Completed | 72/160 [00:07<00:28, 4.6it/s]",
        "Loading np_cache checkpoint shards:  44% Completed | 72/160 [00:07<00:28, 4.6it/s]",
        "Loading safetensors using Fastsafetensor loader:  44%|████      | 72/160 [00:07<00:28, 4.6it/s]",
        "Loading safetensors using Runai Model Streamer:  44% Completed | 72/160 [00:07<00:28, 4.6it/s]",
    ],
)
def test_every_loaders_bar_is_read(bar: str) -> None:
    reader = ProgressReader()
    reader.feed(f"\r{bar}\r")
    assert reader.progress == StartProgress(Phase.LOADING_WEIGHTS, (72, 160))


@pytest.mark.parametrize(
    "line",
    [
        "Entering DeepGEMM JIT Pre-Compile session. It may take a long time (typically 10-20 mins) if you have not run",
        "Running FlashInfer autotune with cache: /cache/autotune",
    ],
)
def test_what_is_slow_and_normal_is_noted_until_the_next_phase(line: str) -> None:
    reader = ProgressReader()
    reader.feed("Capture target decode CUDA graph begin. backend=full\n")
    (step,) = reader.feed(f"[2026-11-30 16:00:00 TP0] {line}\n[2026-11-30 16:00:00 TP1] {line}\n")
    assert step.phase is Phase.GRAPH_CAPTURE
    assert step.note is not None
    reader.feed("Engine startup timings (s): load_weight=0.02\n")
    assert reader.progress == StartProgress(Phase.WARMUP)


def test_answers_to_requests_are_no_sign_of_life() -> None:
    reader = ProgressReader()
    reader.feed("[2026-11-30 16:00:00] INFO:     Waiting for application startup.\n")
    assert reader.lines == 1
    reader.feed('[2026-11-30 16:00:01] INFO:     127.0.0.1:4711 - "GET /health HTTP/1.1" 503 Service Unavailable\n')
    assert reader.lines == 1
    assert reader.last_line.endswith("application startup.")


@given(st.data())
def test_text_cut_anywhere_gives_the_same(data: st.DataObject) -> None:
    logs = [ON_GPU, recorded("tp2"), ECHO + recorded("spec_eagle"), recorded("oom_frac")]
    text = data.draw(st.sampled_from(logs))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=40)))
    whole, parts = ProgressReader(), ProgressReader()
    expected = whole.feed(text)
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert [step for piece in pieces for step in parts.feed(piece)] == expected
    assert (parts.progress, parts.lines, parts.last_line) == (whole.progress, whole.lines, whole.last_line)


#: Recorded from 0.5.23 on CPU, with the capture's seconds of a GPU.
TOLD = {
    "load_weight": 300.0,
    "kv_cache_allocation": 2.0,
    "scheduler_e2e": 400.0,
    "cuda_graph": {"prefill": 0.0, "decode": 60.0, "draft_decode": 20.0},
    "tokenizer_e2e": 410.0,
}


def test_phases_that_the_log_told_keep_their_wall_clock() -> None:
    wall_s = {"spawned": 10.0, "loading weights": 305.0, "kv pool": 4.0, "graph capture": 90.0, "warm-up": 5.0}
    assert backed_by(wall_s, TOLD) == wall_s


def test_a_phase_that_the_log_did_not_tell_is_taken_from_the_servers_own_figure() -> None:
    seconds = backed_by({"spawned": 10.0, "loading weights": 397.0, "warm-up": 3.0}, TOLD)
    assert seconds == {
        "spawned": 10.0,
        "loading weights": 397.0 - 2.0 - 80.0,
        "kv pool": 2.0,
        "graph capture": 80.0,
        "warm-up": 3.0,
    }


def test_a_log_that_could_not_be_read_still_gives_phases_and_never_more_than_the_start() -> None:
    assert backed_by({"spawned": 420.0}, TOLD) == {
        "spawned": 420.0 - 382.0,
        "loading weights": 300.0,
        "kv pool": 2.0,
        "graph capture": 80.0,
    }
    short = backed_by({"spawned": 100.0}, TOLD)
    assert sum(short.values()) == 100.0
    assert min(short.values()) == 0.0
    assert backed_by({"spawned": 100.0}, None) == {"spawned": 100.0}


def test_a_server_that_tells_all_of_its_start_gives_phases_whose_sum_it_is() -> None:
    seconds = simulated_seconds(TOLD)
    assert seconds["spawned"] == 10.0
    assert seconds["distributed init"] == 18.0
    assert sum(seconds.values()) == TOLD["tokenizer_e2e"]
    assert simulated_seconds({}) == {}
