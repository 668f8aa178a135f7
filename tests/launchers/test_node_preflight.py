"""The node before the first trial: what spoils a start stops the study, what slows one down is said."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from launchers.gpus import Gpu, GpuProcess
from launchers.node_state import look_at_node, shown_gpus
from launchers.preflight import NodeReport, NodeRequest, NodeState, judge_node
from launchers.sglang import node_check
from launchers.sglang.flag_check import Flag
from launchers.sglang.node_check import check_node
from launchers.sglang.resolver import Resolver, ResolverFailed

GB = 10**9
IDLE = Gpu(3, "GPU-aaaa", "NVIDIA H200", 4, 143_771)
GOOD = NodeState(
    gpus=(IDLE,),
    shm_bytes=64 * GB,
    shm_free_bytes=64 * GB,
    disk_free_bytes={"/logs": 100 * GB},
    memory_available_bytes=1000 * GB,
    memory_total_bytes=2000 * GB,
    open_files=(1024, 1_048_576),
    locked_bytes=(65_536, 65_536),
)


def judged(on_cpu: bool = False, ranks: int = 8, weights: int | None = None, rdma: bool = False, **state: Any) -> Any:
    return judge_node(dataclasses.replace(GOOD, **state), on_cpu=on_cpu, ranks=ranks, weight_bytes=weights, rdma=rdma)


def problem(report: NodeReport) -> str:
    (text,) = report.problems
    assert report.warnings == ()
    return text


def warning(report: NodeReport) -> str:
    (text,) = report.warnings
    assert report.problems == ()
    return text


def test_a_good_node_has_nothing_to_say() -> None:
    assert judged() == NodeReport()
    assert judged(weights=547 * GB) == NodeReport()
    # What could not be read is not judged.
    assert judge_node(NodeState(), on_cpu=False, ranks=8, weight_bytes=547 * GB, rdma=True) == NodeReport()


def test_a_gpu_that_somebody_uses_is_named_with_its_user() -> None:
    busy = dataclasses.replace(IDLE, used_mib=61_234, processes=(GpuProcess(4242, 61_000), GpuProcess(7, None)))
    text = problem(judged(gpus=(busy,), commands={4242: "python"}))
    assert "GPU 3 (NVIDIA H200) is in use: 61,234 of 143,771 MiB, by pid 4242 (python), pid 7 (not visible" in text
    assert "CUDA_VISIBLE_DEVICES" in text


def test_memory_without_a_visible_process_is_a_user_too() -> None:
    text = problem(judged(gpus=(dataclasses.replace(IDLE, used_mib=5000),)))
    assert "by a process that the driver does not show" in text


def test_each_busy_gpu_is_told() -> None:
    busy = [dataclasses.replace(IDLE, index=i, processes=(GpuProcess(1, 9),)) for i in range(3)]
    assert len(judged(gpus=tuple(busy)).problems) == 3


def test_a_containers_usual_shm_is_too_small_for_nccl() -> None:
    small = {"shm_bytes": 67_108_864, "shm_free_bytes": 67_108_864}
    assert "--shm-size=16g" in problem(judged(**small))
    # One rank needs no NCCL.
    assert judged(ranks=1, **small) == NodeReport()


def test_a_full_shm_kills_servers() -> None:
    full = {"shm_free_bytes": 10_000_000}
    assert "SIGBUS" in problem(judged(**full))
    assert "SIGBUS" in warning(judged(ranks=1, **full))
    assert "only 500.0 MB left" in warning(judged(shm_free_bytes=500_000_000))


def test_room_for_logs_and_results() -> None:
    assert "/logs has 1.0 GB left" in warning(judged(disk_free_bytes={"/logs": GB}))
    assert "make room" in problem(judged(disk_free_bytes={"/logs": 10_000_000}))


def test_memory() -> None:
    assert "only 2.0 GB of memory" in warning(judged(memory_available_bytes=2 * GB))
    text = warning(judged(weights=547 * GB, memory_total_bytes=256 * GB))
    assert "547.0 GB" in text
    assert "reads them from the disk again" in text
    assert "are available: free some" in problem(judged(on_cpu=True, weights=100 * GB, memory_available_bytes=50 * GB))
    assert judged(on_cpu=True, weights=10 * GB) == NodeReport()


def test_limits() -> None:
    assert "65535" in warning(judged(open_files=(1024, 4096)))
    assert judged(open_files=(-1, -1)) == judged(open_files=(8192, 8192)) == NodeReport()
    assert "ulimit -l unlimited" in warning(judged(rdma=True))
    assert judged(rdma=True, locked_bytes=(-1, -1)) == NodeReport()


def test_the_gpus_that_are_looked_at_are_those_that_the_server_sees() -> None:
    gpus = [dataclasses.replace(IDLE, index=i, uuid=f"GPU-{'abcd'[i]}1") for i in range(4)]
    assert [gpu.index for gpu in shown_gpus(gpus, "3,1")] == [3, 1]
    assert [gpu.index for gpu in shown_gpus(gpus, "GPU-c1,GPU-a")] == [2, 0]
    assert shown_gpus(gpus, "") == ()


def test_this_machine_can_be_looked_at(tmp_path: Path) -> None:
    state = look_at_node(None, [tmp_path / "still" / "to be made"])
    assert state.gpus == ()
    assert state.memory_available_bytes
    assert state.memory_total_bytes is not None
    assert 0 < state.memory_available_bytes <= state.memory_total_bytes
    assert state.disk_free_bytes[str(tmp_path / "still" / "to be made")] > 0
    assert state.open_files is not None


# ---- all of it together ------------------------------------------------------------------------------------


class Knowing(Resolver):
    """Knows some flags, without a process."""

    def __init__(self, known: Sequence[Flag] | None = None) -> None:
        self._known = known

    def flags(self) -> tuple[Flag, ...]:
        if self._known is None:
            raise ResolverFailed("it ended (exit 1)")
        return tuple(self._known)


FLAGS = (Flag(("tp-size",), type="int"), Flag(("speculative-draft-model-path",)), Flag(("load-format",)))


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A good machine of eight GPUs, joined by NVLink."""
    eight = tuple(dataclasses.replace(IDLE, index=i, uuid=f"GPU-{i}") for i in range(8))

    def look(visible: str, folders: Any) -> NodeState:
        return dataclasses.replace(GOOD, gpus=shown_gpus(eight, visible))

    monkeypatch.setattr(node_check, "look_at_node", look)
    monkeypatch.setattr(node_check, "gpu_names", lambda: ("NVIDIA H200",) * 8)
    monkeypatch.setattr(node_check, "nvlink_everywhere", lambda gpus: list(gpus) == list(range(8)))


def model(folder: Path, weight_bytes: int = 8, promised_bytes: int | None = None) -> str:
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "vocab_size": 2048}')
    (folder / "w.safetensors").write_bytes(b"x" * weight_bytes)
    if promised_bytes:
        index = {"metadata": {"total_size": promised_bytes}, "weight_map": {"a": "w.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return str(folder)


def checked(request: NodeRequest, env: dict[str, str] | None = None, version: str | None = "0.5.23") -> NodeReport:
    return check_node(request, env or {}, Knowing(FLAGS), version)


@pytest.mark.usefixtures("quiet")
def test_a_node_that_is_fit_tells_its_facts(tmp_path: Path) -> None:
    report = checked(NodeRequest(model(tmp_path / "m"), {"tp-size": [8]}, gpus=8))
    assert report == NodeReport(nvlink=True, architecture="LlamaForCausalLM")
    assert checked(NodeRequest(str(tmp_path / "m"), gpus=2)).nvlink is False
    assert checked(NodeRequest(str(tmp_path / "m"), gpus=1)).nvlink is None


@pytest.mark.usefixtures("quiet")
def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    flags = {"tp-sizes": [8], "speculative-draft-model-path": [None, model(tmp_path / "d"), "/no/drafter"]}
    report = checked(NodeRequest("org/absent", flags, gpus=9), {"HF_HOME": str(tmp_path)}, version=None)
    told = "\n".join(report.problems)
    for words in ("no sglang", "hf download org/absent", "/no/drafter", "9 GPUs are asked for, the machine has 8"):
        assert words in told
    assert len(report.problems) == 4
    # With an sglang its flags are looked at as well.
    with_sglang = checked(NodeRequest("org/absent", flags, gpus=9), {"HF_HOME": str(tmp_path)})
    assert "did you mean tp-size?" in "\n".join(with_sglang.problems)


@pytest.mark.usefixtures("quiet")
def test_the_cache_is_that_of_the_servers_environment(tmp_path: Path) -> None:
    request = NodeRequest("org/absent", env={"HF_HOME": ["/of/the/study"]})
    (text,) = checked(request, {"HF_HOME": "/of/the/node"}).problems
    assert "/of/the/study/hub" in text


@pytest.mark.usefixtures("quiet")
def test_dummy_weights_need_not_be_there(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    request = NodeRequest(str(tmp_path), {"load-format": ["dummy"]})
    assert checked(request).problems == ()
    assert checked(dataclasses.replace(request, flags={})).problems != ()


@pytest.mark.usefixtures("quiet")
def test_prompts_of_ids_that_the_model_does_not_have(tmp_path: Path) -> None:
    name = model(tmp_path / "m")
    assert checked(NodeRequest(name, prompt_ids=2048)).problems == ()
    (text,) = checked(NodeRequest(name, prompt_ids=10_000)).problems
    assert "below 10,000" in text
    assert "has 2,048" in text
    assert "workload.dataset.vocab_size" in text


@pytest.mark.usefixtures("quiet")
def test_a_model_whose_weights_are_too_short_or_elsewhere_is_a_warning(tmp_path: Path) -> None:
    name = model(tmp_path / "m", promised_bytes=80)
    (text,) = checked(NodeRequest(name)).warnings
    assert "8 bytes, and their index promises 80" in text
    (text,) = checked(NodeRequest("s3://bucket/m")).warnings
    assert "lies elsewhere" in text


@pytest.mark.usefixtures("quiet")
def test_another_version_is_a_warning_and_a_resolver_that_is_silent_a_problem(tmp_path: Path) -> None:
    name = model(tmp_path / "m")
    (text,) = checked(NodeRequest(name), version="0.6.0").warnings
    assert "sglang 0.6.0" in text
    silent = check_node(NodeRequest(name), {}, Knowing(None), "0.5.23")
    assert silent.problems == ("it ended (exit 1)",)


@pytest.mark.usefixtures("quiet")
def test_knobs_that_cannot_act_here_are_among_the_warnings(tmp_path: Path) -> None:
    request = NodeRequest(model(tmp_path / "m"), {"tp-size": [1]}, {"NCCL_PROTO": ["LL", "Simple"]}, gpus=1)
    assert "one rank" in "".join(checked(request).warnings)
