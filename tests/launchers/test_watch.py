"""What counts as ready, slow or hung, by a clock that goes only where a script puts it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from start_scene import Event, Mock, Scene, mock_server

from launchers.base import Phase
from launchers.errors import ReadyButNoGeneration, Stalled, StartCancelled, StartTimeout
from launchers.watch import StartLimits

BAR = "\rLoading safetensors checkpoint shards: {:3d}% Completed | {}/163 [00:07<00:28, 4.6it/s]"
LOAD: list[Event] = [(5.0, BAR.format(0, 0)), (25.0, BAR.format(50, 81)), (40.0, BAR.format(100, 163) + "\r")]
INIT = "[2026-11-30 16:00:00 TP0] Init parallel begin.\n"
CAPTURE = "Capture cuda graph begin. This can take up to several minutes.\n"
READY = "The server is fired up and ready to roll!\n"
MIB = 1 << 20


@pytest.fixture
def server() -> Iterator[Mock]:
    with mock_server() as mock:
        yield mock


@pytest.fixture
def scene(server: Mock, tmp_path: Path) -> Scene:
    return Scene(tmp_path / "start.log", server, [])


def play(scene: Scene, *events: Event) -> dict[str, float]:
    scene.events = sorted(events, key=lambda event: event[0])
    scene.__post_init__()
    return dict(scene.run())


def becomes_ready(scene: Scene, at_s: float) -> list[Event]:
    """The port opens, /health says 503 and then 200."""
    return [
        (at_s, scene.opens),
        (at_s, scene.asked("/health")),
        (at_s, scene.answers("/health", 200)),
        (at_s + 10.0, scene.wait_ready),
    ]


# ---- P01


@pytest.mark.parametrize(
    "using",
    [{"cpu_s": 1.0}, {"read_bytes": 0.3 * MIB}, {"pages": 1.0}, {"memory_bytes": 0.1 * MIB}, {"gpu_mib": 1.0}],
    ids=lambda using: str(*using),
)
def test_half_an_hour_of_silence_while_something_moves_is_a_start(using: dict[str, Any], scene: Scene) -> None:
    scene.limits = StartLimits(deadline_s=3600.0)
    phases_at_700 = []
    seconds = play(
        scene,
        (0.0, scene.uses(**using)),
        *LOAD,
        (700.0, lambda: phases_at_700.append(scene.told.phases[-1])),
        (1840.0, CAPTURE),
        (3174.0, "Capture cuda graph end. Time elapsed: 1334.38 s\n"),
        *becomes_ready(scene, 3180.0),
        (3185.0, READY),
    )
    assert phases_at_700 == [Phase.PROCESSING_WEIGHTS]
    assert scene.told.phases[-1] is Phase.READY
    assert [s.shards for s in scene.told.steps if s.phase is Phase.LOADING_WEIGHTS] == [(0, 163), (81, 163), (163, 163)]
    assert seconds == {
        "spawned": 25.0,
        "loading weights": 15.0,
        "processing weights": 1800.0,
        "graph capture": 1340.0,
        "warm-up": 10.0,
    }


@pytest.mark.parametrize(("tick_s", "ends_at_s"), [(10.0, 2700.0), (0.5, 2700.0), (8.0, 2704.0)])
def test_a_start_that_moves_and_never_ends_is_over_exactly_at_the_deadline(
    tick_s: float, ends_at_s: float, scene: Scene
) -> None:
    scene.tick_s = tick_s
    with pytest.raises(
        StartTimeout, match=r"not ready 270\d s .*processing weights.*163/163.*startup_timeout_s"
    ) as caught:
        play(scene, (0.0, scene.uses(read_bytes=MIB)), *LOAD)
    assert scene.now_s == ends_at_s
    assert caught.value.phase is Phase.PROCESSING_WEIGHTS
    assert "163/163" in caught.value.tail


def test_a_start_of_which_nothing_moves_has_stalled_ten_minutes_after_the_last_movement(scene: Scene) -> None:
    with pytest.raises(Stalled, match=r"nothing moved for 600 s.*its log.*processing weights.*163/163") as caught:
        play(scene, *LOAD)
    assert scene.now_s == 640.0
    assert caught.value.phase is Phase.PROCESSING_WEIGHTS


# ---- what is movement


def test_a_phase_can_have_a_limit_of_its_own(scene: Scene) -> None:
    scene.limits = StartLimits(stall_s_by_phase={"processing weights": 1200.0})
    with pytest.raises(Stalled, match="nothing moved for 1200 s"):
        play(scene, *LOAD)
    assert scene.now_s == 1240.0


@pytest.mark.parametrize(
    "using",
    [
        # Heartbeats, an allocator's breath, a look at a file now and then.
        {"cpu_s": 0.02},
        {"read_bytes": 1000.0},
        {"memory_bytes": 1000.0},
        {"pages": 0.01},
        # A kernel that takes memory away from a sleeper.
        {"memory_bytes": -MIB},
    ],
    ids=str,
)
def test_what_a_sleeper_uses_is_no_movement(using: dict[str, Any], scene: Scene) -> None:
    with pytest.raises(Stalled, match="nothing moved"):
        play(scene, (50.0, scene.uses(**using)), *LOAD)
    assert scene.now_s <= 660.0


def test_a_process_that_came_is_movement(scene: Scene) -> None:
    look = scene.look
    scene.look = lambda: look() if scene.now_s < 500.0 else type(look())({1: look().processes[4711]})  # type: ignore[method-assign]
    with pytest.raises(Stalled, match="its processes"):
        play(scene, *LOAD)
    assert scene.now_s == 1100.0


def test_ranks_that_spin_while_they_connect_have_stalled(scene: Scene) -> None:
    with pytest.raises(Stalled, match="nothing but CPU time moved for 600 s") as caught:
        play(scene, (0.0, scene.uses(cpu_s=8.0)), (20.0, INIT))
    assert scene.now_s == 620.0
    assert caught.value.phase is Phase.DISTRIBUTED_INIT


def test_elsewhere_cpu_time_alone_lasts_four_times_as_long(scene: Scene) -> None:
    scene.limits = StartLimits(deadline_s=7200.0)
    with pytest.raises(Stalled, match="nothing but CPU time moved for 2400 s"):
        play(scene, (0.0, scene.uses(cpu_s=8.0)), *LOAD)
    assert scene.now_s == 2440.0


def test_a_compiler_that_was_announced_may_take_until_the_deadline(scene: Scene) -> None:
    scene.limits = StartLimits(deadline_s=7200.0)
    note = "[2026-11-30 16:00:00 TP0] Entering DeepGEMM JIT Pre-Compile session. It may take a long time\n"
    with pytest.raises(StartTimeout):
        play(scene, (0.0, scene.uses(cpu_s=8.0)), *LOAD, (60.0, CAPTURE), (70.0, note))
    assert scene.now_s == 7200.0
    assert scene.told.steps[-1].note


def test_answers_to_the_probes_own_questions_are_no_movement(scene: Scene) -> None:
    answer = 'INFO:     127.0.0.1:4711 - "GET /health HTTP/1.1" 503 Service Unavailable\n'
    with pytest.raises(Stalled) as caught:
        play(
            scene,
            *LOAD,
            (50.0, scene.opens),
            (50.0, scene.asked("/health")),
            *((float(t), answer) for t in range(60, 3000, 20)),
        )
    assert scene.now_s == 640.0
    assert caught.value.phase is Phase.WARMUP


def test_time_in_which_the_watcher_itself_was_stopped_proves_nothing(scene: Scene) -> None:
    scene.limits = StartLimits(deadline_s=1e6)

    def frozen() -> None:
        scene.now_s += 5000.0

    with pytest.raises(Stalled):
        play(scene, *LOAD, (50.0, frozen))
    # A minute of it counts, as between two looks.
    assert scene.now_s == 50.0 + 5000.0 + (600.0 - 10.0 - 60.0)


def test_a_start_is_given_up_at_once(scene: Scene) -> None:
    def stop() -> None:
        scene.stop = True

    with pytest.raises(StartCancelled) as caught:
        play(scene, *LOAD, (50.0, stop))
    assert scene.now_s == 50.0
    assert caught.value.phase is Phase.PROCESSING_WEIGHTS


# ---- P02


def test_a_list_of_models_before_the_warm_up_is_no_readiness(scene: Scene) -> None:
    """P02a: ready is what is healthy and has generated a token, not what answers."""
    server = scene.server
    server.answers["/v1/models"] = 200
    server.generated = {"meta_info": {"completion_tokens": 0}}
    before: list[Phase] = []

    def generates() -> None:
        before.extend(scene.told.phases)
        server.generated = {"meta_info": {"completion_tokens": 1}}

    play(
        scene,
        *LOAD,
        (50.0, scene.opens),
        (60.0, scene.asked("/health", 2)),
        (60.0, lambda: "/generate" not in server.asked),
        (60.0, scene.answers("/health", 200)),
        (70.0, scene.asked("/generate", 2)),
        (70.0, generates),
        (80.0, scene.wait_ready),
    )
    assert before[-1] is Phase.WARMUP
    assert scene.told.phases[-1] is Phase.READY
    assert server.most_open == 1


def test_nothing_is_sent_to_a_closed_port(scene: Scene) -> None:
    """P02b: whatever listens there, it is not the server."""
    scene.server.answers["/health"] = 200
    with pytest.raises(Stalled, match="the port is closed"):
        play(scene, *LOAD)
    assert scene.server.asked == []


@pytest.mark.parametrize(("mute", "health"), [("/generate", 200), ("/health", None)])
def test_a_server_that_never_generates_is_given_up_after_a_bounded_time(
    mute: str, health: int | None, scene: Scene
) -> None:
    """P02c: it accepts and never replies, healthy or not; one question is open at a time."""
    server = scene.server
    scene.limits = StartLimits(generation_s=300.0, answer_s=0.2)
    server.answers |= {"/health": health, mute: None}
    with pytest.raises(ReadyButNoGeneration, match=r"generated nothing for 3\d\d s") as caught:
        play(
            scene,
            (0.0, scene.uses(cpu_s=1.0, read_bytes=MIB)),
            *LOAD,
            (50.0, scene.opens),
            (50.0, scene.asked(mute)),
            # Until its answer is given up; the time of the question counts from where it was asked.
            (50.0, scene.asked(mute)),
        )
    assert 350.0 <= scene.now_s <= 380.0
    assert caught.value.phase is Phase.WARMUP


def test_a_server_too_busy_to_be_healthy_is_not_given_up(scene: Scene) -> None:
    scene.limits = StartLimits(generation_s=300.0)
    server = scene.server
    server.answers["/generate"] = 503
    phases_at_1000: list[Phase] = []
    play(
        scene,
        (0.0, scene.uses(cpu_s=1.0, read_bytes=MIB)),
        *LOAD,
        (50.0, scene.opens),
        (50.0, scene.answers("/health", 200)),
        (60.0, scene.asked("/generate")),
        (60.0, scene.answers("/health", 503)),
        (60.0, scene.asked("/health", 2)),
        (1000.0, lambda: phases_at_1000.append(scene.told.phases[-1])),
        (1000.0, scene.answers("/generate", 200)),
        (1000.0, scene.answers("/health", 200)),
        (1000.0, scene.wait_ready),
    )
    assert phases_at_1000 == [Phase.WARMUP]
    assert scene.told.phases[-1] is Phase.READY
