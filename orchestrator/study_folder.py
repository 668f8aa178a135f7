"""The study's folder over its life: begun, continued only as the same study, moved aside, never deleted."""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from orchestrator.config import SweepConfig
from orchestrator.datasets import Lengths
from orchestrator.fields import value_key
from orchestrator.lock import StudyBusy
from orchestrator.results.files import StoreError, sync_folder, write_bytes
from orchestrator.results.store import ResultStore
from orchestrator.yaml_source import ConfigError, parse_sweep

#: What may change between two runs of a study: none moves a measurement or what Optuna was told.
_FREE = ("budget", "pareto", "repeats")
#: What a study leaves behind once trials began.
_RESULTS = ("study.db", "trials", "levels", "journal", "requests")
#: Words that one version of YAML or another reads as something else than text.
_WORDS = frozenset(["true", "false", "null", "yes", "no", "on", "off", "y", "n"])


class StudyChanged(ConfigError):
    """The file asks for another study than the folder holds. The text shows the difference."""


def open_folder(store: ResultStore, config: SweepConfig, source: str, prompts: str | None = None) -> str:
    """Begin the study, or continue it; its id. `config` is as it runs: launcher resolved, blocks merged.

    `prompts` is the digest of what they are made of beside the settings, such as a file; None: nothing else.

    Raises StudyChanged.
    """
    id_file = store.root / "study.id"
    prompts_file = store.root / "prompts.sha256"
    if store.study_yaml.exists() and id_file.exists():
        _compare(store, config, source)
        _compare_prompts(prompts_file, prompts)
        study_id = id_file.read_text(encoding="utf-8").strip()
    else:
        left = [name for name in _RESULTS if (store.root / name).exists()]
        if left:
            raise StudyChanged(
                f"{store.root} holds results ({', '.join(left)}) but not both study.yaml and study.id: what they "
                "were measured with is not known. Put the files back, give the study another name, or use "
                "--fresh: it moves the folder aside and starts anew"
            )
        study_id = uuid.uuid4().hex[:12]
        write_bytes(id_file, f"{study_id}\n".encode())
    origin = " ".join(source.split())
    text = f"# As run by {origin}: launcher resolved, `simulated:` merged in where it applies.\n{dump(config)}"
    write_bytes(store.study_yaml, text.encode())
    if prompts is not None:
        write_bytes(prompts_file, f"{prompts}\n".encode())
    return study_id


def _compare_prompts(file: Path, prompts: str | None) -> None:
    before = file.read_text(encoding="utf-8").strip() if file.exists() else None
    if None not in (before, prompts) and before != prompts:
        raise StudyChanged(
            f"the prompts of the study in {file.parent} were made of something else: the dataset's file, the corpus or "
            "the model's tokenizer has changed, or that is found on one run and not on the other. Results would not be "
            "comparable. Undo the change, give the study another name, or use --fresh: it moves the old study aside "
            "and starts anew"
        )


def _compare(store: ResultStore, config: SweepConfig, source: str) -> None:
    try:
        stored, _ = parse_sweep(store.study_yaml.read_text(encoding="utf-8"), str(store.study_yaml))
    except (ConfigError, UnicodeDecodeError) as error:
        raise StudyChanged(
            f"the study in {store.root} cannot be continued, its study.yaml is not readable: {error}\n"
            "Use --fresh: it moves the old study aside and starts anew"
        ) from None
    changes = list(differences(as_data(stored), as_data(config)))
    if changes:
        shown = "\n".join(f"  {change}" for change in changes)
        raise StudyChanged(
            f"{source} differs from what study {config.study!r} in {store.root} was run with:\n{shown}\n"
            "Its results would not be comparable. Undo the change, give the study another name, or use "
            "--fresh: it moves the old study aside and starts anew"
        )


def move_aside(root: Path, lock: Path) -> Path | None:
    """Move the study out of the way, whole and at once; where it went, None where there is none.

    `lock`, held by the caller and inside `root`, stays there and stays held. Raises StudyBusy when another
    sweep comes between, StoreError where the system refuses.
    """
    if all(path == lock for path in root.iterdir()):
        return None
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    number, target = 1, root.with_name(f"{root.name}.before-{stamp}")
    while target.exists():
        number, target = number + 1, root.with_name(f"{root.name}.before-{stamp}-{number}")
    try:
        # One rename: a kill finds the old study either here or there, never half of it.
        root.rename(target)
        root.mkdir(exist_ok=True)
        # A link fails where another sweep has already made a lock of its own.
        os.link(target / lock.name, lock)
        (target / lock.name).unlink()
        sync_folder(root.parent)
    except FileExistsError:
        raise StudyBusy(f"another sweep has just started this study; the old one was moved to {target}") from None
    except OSError as error:
        raise StoreError(
            f"cannot move {root} aside to {target}: {error.strerror or error}. Move it by hand and run again"
        ) from error
    return target


def as_data(config: SweepConfig) -> dict[str, Any]:
    """The config as plain data, keys as in the file, defaults filled in, what is absent by default left out."""
    data: dict[str, Any] = _plain(config)
    # Merged in already, or without effect.
    data.pop("simulated", None)
    return data


def dump(config: SweepConfig) -> str:
    """The config as YAML that reads back as the same config."""
    return yaml.dump(as_data(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=math.inf)


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """What changed, one line a key. The order of choices is no change."""
    for key in dict.fromkeys((*old, *new)):
        if key not in _FREE:
            yield from _differ(key, old.get(key), new.get(key))


def _differ(path: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys((*old, *new)):
            yield from _differ(f"{path}.{key}", old.get(key), new.get(key))
        return
    if path.endswith(".choices") and isinstance(old, list) and isinstance(new, list):
        old, new = sorted(old, key=value_key), sorted(new, key=value_key)
    if value_key(old) != value_key(new):
        yield f"{path}: was {_shown(old)}, now {_shown(new)}"


def _shown(value: Any) -> str:
    return "absent" if value is None else repr(value)


def _plain(value: Any) -> Any:
    """Models as mappings without their unset options, tuples as lists; None as a value of a mapping stays.

    An option that is None by default is unset; one that is not was set to it, and is kept as such.
    """
    if isinstance(value, Lengths) and value.fixed is not None:
        return value.fixed
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        found = {field.alias or name: (_plain(getattr(value, name)), field.default) for name, field in fields.items()}
        return {name: inner for name, (inner, default) in found.items() if inner is not None or default is not None}
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


class _Dumper(yaml.SafeDumper):
    """Quotes every text that is not plainly text, in YAML 1.1 or 1.2."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    plain = text[:1].isalpha() and text.lower() not in _WORDS
    # Line breaks and control characters survive as escapes alone.
    style = '"' if not text.isprintable() else None if plain else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
