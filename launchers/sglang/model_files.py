"""Whether a model's files are on this machine, found as SGLang would find them, without a network and without loading.

The layout of Hugging Face's cache: huggingface_hub 1.33, constants.py and file_download.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: In the order in which a loader looks (SGLang 0.5.23, model_loader/weight_utils.py).
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
_INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_REPOSITORY = re.compile(r"[A-Za-z0-9_][\w.-]*(?:/[A-Za-z0-9_][\w.-]*)?")
_REMOTE = re.compile(r"[a-z][a-z0-9+]*://")


class NotLocal(Exception):
    """Files of a model are missing here. Says which, and how to get them."""


@dataclass(frozen=True)
class ModelFiles:
    """A model that can be loaded from this machine's disks."""

    folder: Path
    #: Bytes of its weights; None where none are needed.
    weight_bytes: int | None
    #: What its config.json names; None where it names none.
    architecture: str | None = None
    #: Bytes that the index of its weights promises; more than there are means that a file is cut off.
    promised_bytes: int | None = None
    #: How many token ids it knows, as its config.json says; None where that does not.
    vocab_size: int | None = None


def find_model(
    name: str,
    env: Mapping[str, str],
    *,
    revision: str | None = None,
    cache: str | None = None,
    folder: Path | None = None,
    weights: bool = True,
) -> ModelFiles | None:
    """The model's files: a folder, or a repository in Hugging Face's cache under the server's environment.

    `cache` is `download-dir`; `folder` is where the server runs, for relative paths; without `weights` only the
    config has to be there (`load-format dummy`). None for what lies elsewhere, as on an object store, which
    cannot be judged from here. Raises NotLocal.
    """
    if _REMOTE.match(name):
        return None
    path = (folder or Path.cwd()) / Path(name).expanduser()
    if path.is_dir():
        return _complete(path, f"copy the whole model to {path}", weights)
    if path.is_file():
        return ModelFiles(path, path.stat().st_size)
    if not _REPOSITORY.fullmatch(name):
        raise NotLocal(f"there is no folder {path}: correct the path, or put the model there")
    cache_folder = Path(cache).expanduser() if cache else hub_cache(env)
    download = f"download it before the sweep: `{_download(name, revision, env, cache)}`"
    repository = cache_folder / f"models--{name.replace('/', '--')}"
    snapshot = _snapshot(repository, revision or "main")
    if snapshot is None:
        at = f" at revision {revision}" if revision else ""
        raise NotLocal(f"{name}{at} is neither a folder nor in the cache {cache_folder}: {download}")
    return _complete(snapshot, download, weights)


def hub_cache(env: Mapping[str, str]) -> Path:
    """The folder of downloaded repositories."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if env.get(variable):
            return Path(env[variable]).expanduser()
    home = env.get("HF_HOME")
    if not home:
        home = os.path.join(env.get("XDG_CACHE_HOME") or os.path.join(env.get("HOME") or "~", ".cache"), "huggingface")
    return Path(home).expanduser() / "hub"


def _snapshot(repository: Path, revision: str) -> Path | None:
    """The folder of a revision: a commit, or a branch that `refs` leads to one."""
    reference = repository / "refs" / revision
    commit = reference.read_text().strip() if reference.is_file() else revision
    snapshot = repository / "snapshots" / commit
    return snapshot if snapshot.is_dir() else None


def _complete(folder: Path, remedy: str, weights: bool) -> ModelFiles:
    """The model in a folder, all of it. Raises NotLocal. Links into the cache count when what they lead to is there."""
    config = folder / "config.json"
    if not config.exists():
        raise NotLocal(f"{folder} has no config.json: {remedy}")
    told = _told(config)
    if not weights:
        return ModelFiles(folder, None, **told)
    index = next((folder / name for name in _INDICES if (folder / name).exists()), None)
    if index is None:
        files = next((found for pattern in _WEIGHTS if (found := sorted(folder.glob(pattern)))), [])
        present = [file for file in files if file.exists()]
        if not present:
            raise NotLocal(f"{folder} holds no weights: {remedy}")
        return ModelFiles(folder, sum(file.stat().st_size for file in present), **told)
    names, promised_bytes = _index(index, remedy)
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        raise NotLocal(f"{len(missing)} of {len(names)} weight files are missing in {folder} ({missing[0]}): {remedy}")
    size = sum((folder / name).stat().st_size for name in names)
    return ModelFiles(folder, size, promised_bytes=promised_bytes, **told)


def _index(path: Path, remedy: str) -> tuple[list[str], int | None]:
    """The files that an index names, and the bytes that it promises; None where it does not tell."""
    try:
        told = json.loads(path.read_text())
        names = sorted({str(file) for file in told["weight_map"].values()})
        total: Any = told.get("metadata", {}).get("total_size")
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise NotLocal(f"{path} cannot be read ({error}): {remedy}") from error
    return names, total if isinstance(total, int) else None


def _told(config: Path) -> dict[str, Any]:
    """Architecture and vocabulary, as far as a config.json tells them; of a multimodal model, those of its text."""
    told: dict[str, Any] = {}
    # What a strange file does not tell is not known: the server will judge it.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        content = json.loads(config.read_text())
        for part in (content.get("text_config") or {}, content):
            if isinstance(size := part.get("vocab_size"), int):
                told["vocab_size"] = size
        if isinstance(names := content.get("architectures"), list) and names:
            told["architecture"] = str(names[0])
    return told


def _download(name: str, revision: str | None, env: Mapping[str, str], cache: str | None) -> str:
    words = ["hf", "download", name, *(["--revision", revision] if revision else [])]
    if cache:
        words += ["--cache-dir", cache]
    set_here = [f"{v}={env[v]}" for v in ("HF_HUB_CACHE", "HF_HOME") if env.get(v) and not cache]
    return " ".join([*set_here, *words])
