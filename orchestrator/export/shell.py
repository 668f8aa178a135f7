"""A setting as a POSIX shell script that starts its server. Pure."""

from __future__ import annotations

import shlex

from launchers.base import Flags, to_argv
from orchestrator.export.artefact import Artefact, twin_root
from orchestrator.export.places import Places
from orchestrator.export.provenance import comment

#: What is said of settings of a simulated study on a real server.
NEVER_ON_GPUS = "These settings were measured on a simulated server only, none of them on a GPU."
_HEAD = """\
#!/bin/sh
{provenance}#
# Say otherwise by variables: SERVE_HOST, SERVE_PORT, SERVE_MODEL{more}.
# Words after the script's name go to the server, the last one of a flag wins.
# It asks for no key. For one, put `api-key: SECRET` into a file ending in .yaml that only you can read, and name that
# file in SERVE_CONFIG: a command line can be read by everyone on the machine.
set -eu
"""
#: Relative names that a person gives are meant from where the script is started.
_FROM_HERE = """\
case "${SERVE_CONFIG:-}" in "" | /*) ;; *) SERVE_CONFIG=$PWD/$SERVE_CONFIG ;; esac
case "${SERVE_MODEL:-}" in "" | /*) ;; *) [ ! -e "$SERVE_MODEL" ] || SERVE_MODEL=$PWD/$SERVE_MODEL ;; esac"""
_FOLDER_FROM_HERE = 'case "$SERVE_FOLDER" in /*) ;; *) SERVE_FOLDER=$PWD/$SERVE_FOLDER ;; esac'


def names_from_here(places: Places) -> list[str]:
    """Lines that make what a person gave absolute, and refuse to start where it must be given and was not."""
    lines = _FROM_HERE.splitlines()
    if places.unknown:
        why = "set SERVE_FOLDER to the folder where the sweep was started (. for this one), where these lead from: "
        lines += [
            f'[ -n "${{SERVE_FOLDER:-}}" ] || {{ {say(why + ", ".join(places.lost))}; exit 2; }}',
            _FOLDER_FROM_HERE,
        ]
    return lines


def say(text: str) -> str:
    """The command that tells it to whoever started the script."""
    return f"printf '%s\\n' {shlex.quote(text)} >&2"


def shell_script(artefact: Artefact) -> str:
    """The script: sets the variables, then becomes the server."""
    quote = shlex.quote
    places = artefact.places
    defaults = {"SERVE_HOST": "127.0.0.1", "SERVE_PORT": str(artefact.port), "SERVE_MODEL": artefact.model}
    name = "SERVE_PYTHON" if artefact.entry[:1] == ("-m",) else "SERVE_SGLANG"
    defaults[name] = artefact.program
    if places.folder is not None:
        defaults["SERVE_FOLDER"] = str(places.folder)
    more = [other for other in defaults if other not in ("SERVE_HOST", "SERVE_PORT", "SERVE_MODEL")]
    more += ["SERVE_FOLDER"] if places.unknown else []
    lines = [_HEAD.format(provenance=comment(artefact.provenance), more="".join(f", {other}" for other in more))]
    lines += names_from_here(places)
    lines += [f'[ -n "${{{key}:-}}" ] || {key}={quote(value)}' for key, value in defaults.items()]
    lines.append("")
    if artefact.twin:
        lines.append(say("SIMULATED: this starts the simulated server, no model is served by it."))
    elif artefact.simulated:
        lines.append(say(NEVER_ON_GPUS))
    missing = f"printf 'no %s: name one in {name}\\n' \"${name}\" >&2"
    lines.append(f'command -v "${name}" >/dev/null || {{ {missing}; exit 127; }}')
    if places.folder is not None or places.unknown:
        lines.append('cd -- "$SERVE_FOLDER"')
    lines += [f"export {key}={quote(value)}" for key, value in artefact.env.items()]
    if artefact.twin:
        lines.append(f'export PYTHONPATH={quote(str(twin_root()))}"${{PYTHONPATH:+:$PYTHONPATH}}"')
    lines.append("")
    words = [f'exec "${name}" {" ".join(map(quote, artefact.entry))}', '--model-path "$SERVE_MODEL"']
    words += flag_words(artefact.flags)
    words += ['--host "$SERVE_HOST" --port "$SERVE_PORT" --enable-metrics']
    words += ['${SERVE_CONFIG:+--config "$SERVE_CONFIG"}', '"$@"']
    return "\n".join(lines) + "\n" + " \\\n    ".join(words) + "\n"


def flag_words(flags: Flags) -> list[str]:
    """Each flag with its value, quoted for a shell."""
    return [shlex.join(to_argv({name: value})) for name, value in flags.items()]
