"""A setting as a script around `docker run`, with SGLang's image of the version that was measured. Pure."""

from __future__ import annotations

import shlex
from pathlib import Path

from orchestrator.export.artefact import Artefact
from orchestrator.export.choice import NotExportable
from orchestrator.export.provenance import comment
from orchestrator.export.shell import NEVER_ON_GPUS, flag_words, names_from_here, say

#: SGLang's images are tagged by release (its installation page: Docker Hub, lmsysorg/sglang).
IMAGE = "lmsysorg/sglang:v{version}"
_HEAD = """\
#!/bin/sh
{provenance}#
# Not tried with Docker: the words of the server are those of the shell export, the options those of SGLang's
# installation page. It takes a driver for the image's CUDA and the NVIDIA Container Toolkit.
# Say otherwise by variables: SERVE_HOST, SERVE_PORT, SERVE_MODEL, SERVE_IMAGE, SERVE_GPUS{more}.
# Words after the script's name go to the server. Models are read from HF_HOME (default ~/.cache/huggingface);
# HF_TOKEN is passed on where it is set.
# It asks for no key. For one, put `api-key: SECRET` into a file ending in .yaml that only you can read, and name that
# file in SERVE_CONFIG.
set -eu
"""


def docker_script(artefact: Artefact) -> str:
    """The script. Raises NotExportable for a server without GPUs, which the image is not made for."""
    if not artefact.gpus:
        raise NotExportable("the trial ran on the CPUs, and SGLang's image is for GPUs: take --to shell")
    quote, places = shlex.quote, artefact.places
    more = ", SERVE_FOLDER" if places.unknown else ""
    lines = [_HEAD.format(provenance=comment(artefact.provenance), more=more), *names_from_here(places)]
    defaults = {
        "SERVE_HOST": "127.0.0.1",
        "SERVE_PORT": str(artefact.port),
        "SERVE_MODEL": places.model,
        "SERVE_GPUS": str(artefact.gpus),
        "HF_HOME": None,
    }
    for key, value in defaults.items():
        text = '"$HOME/.cache/huggingface"' if value is None else quote(value)
        lines.append(f'[ -n "${{{key}:-}}" ] || {key}={text}')
    if artefact.version is None:
        lines.append(': "${SERVE_IMAGE:?the measured SGLang is no release: name an image that has it}"')
    else:
        lines.append(f'[ -n "${{SERVE_IMAGE:-}}" ] || SERVE_IMAGE={IMAGE.format(version=artefact.version)}')
    if artefact.simulated:
        lines.append(say(NEVER_ON_GPUS))
    # One that a person names; twice the same is refused by Docker.
    mounted = " | ".join(quote(str(path)) for path in (*places.read, *places.written))
    known = f"{mounted}) model_volume= ;; " if mounted else ""
    lines += [
        f'case "$SERVE_MODEL" in {known}/*) model_volume=$SERVE_MODEL:$SERVE_MODEL:ro ;; *) model_volume= ;; esac'
    ]
    lines.append("")
    options = [
        "exec docker run --rm --init",
        '--gpus "$SERVE_GPUS"',
        "--ipc host --shm-size 32g --ulimit memlock=-1 --ulimit stack=67108864",
        f'--publish "$SERVE_HOST:$SERVE_PORT:{artefact.port}"',
        '--volume "$HF_HOME:/root/.cache/huggingface"',
    ]
    # Relative paths stand for nothing in a container: each is mounted where it is here.
    options += [f"--volume {quote(_volume(path, ':ro'))}" for path in places.read]
    options += [f"--volume {quote(_volume(path, ''))}" for path in places.written]
    options.append('${model_volume:+--volume "$model_volume"}')
    if places.unknown:
        options.append('--volume "$SERVE_FOLDER:$SERVE_FOLDER:ro" --workdir "$SERVE_FOLDER"')
    options += ['${SERVE_CONFIG:+--volume "$SERVE_CONFIG:/run/serve.yaml:ro"}', "--env HF_TOKEN"]
    options += [f"--env {quote(f'{key}={value}')}" for key, value in artefact.env.items()]
    server = ["python3", *artefact.entry] if artefact.entry[:1] == ("-m",) else ["sglang", *artefact.entry]
    options += [f'"$SERVE_IMAGE" {shlex.join(server)}', '--model-path "$SERVE_MODEL"']
    options += flag_words(places.flags)
    options += [f"--host 0.0.0.0 --port {artefact.port} --enable-metrics"]
    options += ["${SERVE_CONFIG:+--config /run/serve.yaml}", '"$@"']
    return "\n".join(lines) + "\n" + " \\\n    ".join(options) + "\n"


def _volume(path: Path, how: str) -> str:
    if ":" in str(path):
        raise NotExportable(f"Docker mounts no path with a colon: {path}. Move it, or take --to shell")
    return f"{path}:{path}{how}"
