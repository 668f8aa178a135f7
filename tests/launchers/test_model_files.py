"""Models are on this machine, whole, before a sweep starts: nothing is downloaded inside a trial."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launchers.sglang.model_files import NotLocal, find_model, hub_cache

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def write_model(folder: Path, shards: int = 2, shard_bytes: int = 10, promised_bytes: int | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    names = [f"model-{i:05}-of-{shards:05}.safetensors" for i in range(1, shards + 1)]
    index = {"metadata": {}, "weight_map": {f"layer{i}": name for i, name in enumerate(names)}}
    if promised_bytes is not None:
        index["metadata"] = {"total_size": promised_bytes}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in names:
        (folder / name).write_bytes(b"x" * shard_bytes)
    return folder


def write_cached(hub: Path, name: str = "org/model", revision: str = "main") -> Path:
    repository = hub / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / revision).write_text(COMMIT)
    return write_model(repository / "snapshots" / COMMIT)


def test_a_whole_folder_is_a_model(tmp_path: Path) -> None:
    model = find_model(str(write_model(tmp_path / "m", promised_bytes=18)), {})
    assert model is not None
    assert (model.folder, model.weight_bytes, model.promised_bytes) == (tmp_path / "m", 20, 18)
    assert model.architecture == "LlamaForCausalLM"


def test_a_relative_path_is_the_servers(tmp_path: Path) -> None:
    write_model(tmp_path / "models" / "m")
    assert find_model("models/m", {}, folder=tmp_path) is not None
    with pytest.raises(NotLocal):
        find_model("models/m", {"HF_HOME": str(tmp_path)}, folder=tmp_path / "elsewhere")


def test_weights_without_an_index(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", shards=1)
    (folder / "model.safetensors.index.json").unlink()
    model = find_model(str(folder), {})
    assert model is not None
    assert (model.weight_bytes, model.promised_bytes) == (10, None)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(NotLocal, match=r"1 of 3 weight files are missing .*model-00002-of-00003.*copy the whole model"):
        find_model(str(folder), {})


def test_a_folder_without_config_or_weights(tmp_path: Path) -> None:
    with pytest.raises(NotLocal, match=r"no config\.json"):
        find_model(str(tmp_path), {})
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(NotLocal, match="holds no weights"):
        find_model(str(tmp_path), {})
    dummy = find_model(str(tmp_path), {}, weights=False)
    assert dummy is not None
    assert (dummy.weight_bytes, dummy.architecture) == (None, None)


@pytest.mark.parametrize(
    ("config", "vocab_size"),
    [
        ({"vocab_size": 9}, 9),
        ({"text_config": {"vocab_size": 8}}, 8),
        ({"vocab_size": 9, "text_config": {"vocab_size": 8}}, 9),
        ({"vocab_size": None}, None),
        ({"text_config": None}, None),
        ([], None),
    ],
)
def test_the_vocabulary_is_that_of_the_text(config: object, vocab_size: int | None, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = find_model(str(tmp_path), {}, weights=False)
    assert model is not None
    assert model.vocab_size == vocab_size


def test_an_index_that_cannot_be_read(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    (folder / "model.safetensors.index.json").write_text("{")
    with pytest.raises(NotLocal, match="cannot be read"):
        find_model(str(folder), {})


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotLocal, match="there is no folder /no/such/model"):
        find_model("/no/such/model", {}, folder=tmp_path)


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"])
def test_a_repository_is_found_in_the_servers_cache(tmp_path: Path, variable: str) -> None:
    below = {"HF_HOME": "hub", "XDG_CACHE_HOME": "huggingface/hub", "HOME": ".cache/huggingface/hub"}
    env = {variable: str(tmp_path)}
    assert hub_cache(env) == tmp_path / below.get(variable, "")
    snapshot = write_cached(tmp_path / below.get(variable, ""))
    model = find_model("org/model", env, folder=tmp_path)
    assert model is not None
    assert model.folder == snapshot


def test_download_dir_is_the_cache(tmp_path: Path) -> None:
    write_cached(tmp_path)
    assert find_model("org/model", {}, cache=str(tmp_path), folder=tmp_path) is not None


def test_a_revision_is_a_branch_or_a_commit(tmp_path: Path) -> None:
    write_cached(tmp_path, revision="v2")
    env = {"HF_HUB_CACHE": str(tmp_path)}
    assert find_model("org/model", env, revision="v2", folder=tmp_path) is not None
    assert find_model("org/model", env, revision=COMMIT, folder=tmp_path) is not None
    with pytest.raises(NotLocal, match=r"hf download org/model`"):
        find_model("org/model", env, folder=tmp_path)
    with pytest.raises(NotLocal, match=r"org/model at revision v3 .*hf download org/model --revision v3`"):
        find_model("org/model", env, revision="v3", folder=tmp_path)


def test_an_interrupted_download_is_not_a_model(tmp_path: Path) -> None:
    snapshot = write_cached(tmp_path)
    shard = snapshot / "model-00002-of-00002.safetensors"
    shard.unlink()
    shard.symlink_to("../../blobs/missing")
    with pytest.raises(NotLocal, match="1 of 2 weight files are missing"):
        find_model("org/model", {"HF_HUB_CACHE": str(tmp_path)}, folder=tmp_path)


def test_a_model_that_is_not_here_says_how_to_get_it_where_the_server_looks(tmp_path: Path) -> None:
    env = {"HF_HOME": str(tmp_path / "hf")}
    with pytest.raises(NotLocal, match=f"`HF_HOME={tmp_path}/hf hf download org/model`"):
        find_model("org/model", env, folder=tmp_path)
    with pytest.raises(NotLocal, match="`hf download org/model --cache-dir /big`"):
        find_model("org/model", env, cache="/big", folder=tmp_path)


@pytest.mark.parametrize("name", ["s3://bucket/model", "runai+gs://bucket/model"])
def test_what_lies_elsewhere_cannot_be_judged(name: str) -> None:
    assert find_model(name, {}) is None
