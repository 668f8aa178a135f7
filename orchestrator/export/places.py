"""Which settings name files and folders, and where these are. Pure but for looking at paths.

Only the model, and flags whose values are paths, are looked for: `--device cpu` is no folder, whatever lies around.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launchers.base import Flags
from launchers.secrets import dashed
from launchers.sglang.rules import ALIASES

_FILES = """
quantization-param-path modelopt-checkpoint-restore-path ssl-keyfile ssl-certfile ssl-ca-certs
speculative-dspark-sps-table-path speculative-dspark-confidence-sts-path speculative-adaptive-config
speculative-ngram-external-corpus-path deepep-config watermark-config hicache-storage-backend-extra-config
lmcache-config-file flexkv-config-file kt-weight-path dllm-algorithm-config pdmux-config-path decrypted-config-file
decrypted-draft-config-file debug-tensor-dump-input-file msprobe-dump-config
"""
_NAMES = """
model-path tokenizer-path speculative-draft-model-path uno-lora-path lora-paths speculative-token-map model-checksum
chat-template completion-template init-expert-location
"""
_WRITTEN = """
modelopt-checkpoint-save-path modelopt-export-path file-storage-path crash-dump-folder export-metrics-to-file-dir
spec-trace-dir debug-tensor-dump-output-folder ple-offload-dir download-dir weight-cache-socket
"""
#: Flags that name a file or folder to read and nothing else (SGLang 0.5.23, arg_groups/fields); those that name one, or
#: something by its name: a repository, a template, a way of placing experts; those that name what is written, or need
#: not be there.
FILES, NAMES, WRITTEN = (frozenset(text.split()) for text in (_FILES, _NAMES, _WRITTEN))
#: Of those, the ones that are files where they are paths: a folder of a template's name is none.
_NO_FOLDERS = frozenset(["chat-template", "completion-template", "init-expert-location", "model-checksum"])
#: Endings by which a word is a file rather than a name.
_ENDINGS = (".json", ".jsonl", ".jinja", ".yaml", ".yml", ".toml", ".gguf", ".pt", ".txt")


@dataclass(frozen=True)
class Places:
    """Where what the settings name is on this machine."""

    #: Where relative paths lead from; None where there are none, or none was found.
    folder: Path | None
    #: Model and flags with absolute paths where they name what is there.
    model: str
    flags: Flags
    #: What is read, and what is written.
    read: tuple[Path, ...]
    written: tuple[Path, ...]
    #: Relative paths that were not found, as they are written.
    lost: tuple[str, ...]

    @property
    def unknown(self) -> bool:
        """Whether there are relative paths, and nobody knows from where they lead."""
        return bool(self.lost) and self.folder is None

    @property
    def told(self) -> Iterator[str]:
        """What was not found, a line each."""
        where = "on this machine" if self.folder is None else f"in {self.folder}"
        for text in self.lost:
            yield f"{text} was not found {where}: it leads from the folder where the sweep was started."


def find_places(model: str, flags: Flags, folders: Iterable[Path], more: Iterable[str] = ()) -> Places:
    """Look for what the settings name; `folders` are where the sweep may have been started, the likeliest first.

    It is the one in which the model is found; where none has that, the one in which the most is. `more` are further
    files that are read.
    """
    named = [*_paths({"model-path": model, **flags}), *(("", text) for text in more)]
    relative = [(name, text) for name, text in named if not _absolute(text) and name not in WRITTEN]
    folder = _folder(model, relative, list(folders))
    read: list[Path] = []
    written: list[Path] = []

    def resolved(name: str, text: str) -> str:
        path = _resolve(name, text, folder)
        if path is None:
            return text
        (written if name in WRITTEN else read).append(path)
        return str(path)

    found = {name: _rewritten(name, value, resolved) for name, value in {"model-path": model, **flags}.items()}
    lost = [text for name, text in relative if _surely(name, text) and _resolve(name, text, folder) is None]
    return Places(
        folder=folder,
        model=found["model-path"],
        flags={name: found[name] for name in flags},
        read=tuple(path for path in dict.fromkeys(read) if path not in written),
        written=tuple(dict.fromkeys(written)),
        lost=tuple(dict.fromkeys(lost)),
    )


def _folder(model: str, relative: list[tuple[str, str]], folders: list[Path]) -> Path | None:
    if not _absolute(model):
        holding = next((folder for folder in folders if _there("model-path", folder / model)), None)
        if holding is not None:
            return holding
    counts = [sum(_there(name, folder / text) for name, text in relative) for folder in folders]
    most = max(counts, default=0)
    return folders[counts.index(most)] if most else None


def _paths(flags: Flags) -> Iterator[tuple[str, str]]:
    """Each path among the flags, with the flag's own name."""
    found: list[tuple[str, str]] = []

    def kept(name: str, text: str) -> str:
        found.append((name, text))
        return text

    for name, value in flags.items():
        _rewritten(name, value, kept)
    yield from found


def _rewritten(name: str, value: Any, change: Callable[[str, str], str]) -> Any:
    """The value with each path in it as `change` has it, which is given the flag's own name and the path."""
    flag = ALIASES.get(dashed(name), dashed(name))
    if flag not in FILES | NAMES | WRITTEN:
        return value
    if isinstance(value, list | tuple):
        return [_rewritten(name, item, change) for item in value]
    if not isinstance(value, str):
        return value
    head, text = "", value
    if flag == "lora-paths" and "=" in value:
        head, text = value[: value.index("=") + 1], value[value.index("=") + 1 :]
    elif flag == "hicache-storage-backend-extra-config":
        # Without the sign it is JSON.
        head, text = ("@", value[1:]) if value.startswith("@") else (value, "")
    # Several of them take JSON in place of a path.
    return head + change(flag, text) if text and not text.lstrip().startswith(("{", "[")) else value


def _surely(name: str, text: str) -> bool:
    """Whether it can be nothing but a path."""
    if name not in NAMES or text.startswith("."):
        return True
    # A token map may be a repository's file, `owner/name/file.pt`.
    return name != "speculative-token-map" and (text.count("/") > 1 or text.endswith(_ENDINGS))


def _absolute(text: str) -> bool:
    return text.startswith(("/", "~"))


def _resolve(name: str, text: str, folder: Path | None) -> Path | None:
    """An absolute path as it is, be it there or not; a relative one where it is found."""
    if _absolute(text):
        return Path(os.path.expanduser(text))
    if folder is None or not _there(name, folder / text):
        return None
    return Path(os.path.normpath(folder / text))


def _there(name: str, path: Path) -> bool:
    try:
        return path.is_file() if name in _NO_FOLDERS else path.exists()
    except (OSError, ValueError):
        # A word too long for a name, or one with a null byte.
        return False
