"""A setting as a POSIX shell script that starts its server. Pure."""

from __future__ import annotations

import shlex

from launchers.base import Flags, to_argv
from orchestrator.export.artefact import Artefact, twin_root
from orchestrator.export.provenance import comment

_HEAD = """\
#!/bin/sh
{provenance}#
# Say otherwise by variables: SERVE_HOST, SERVE_PORT, SERVE_MODEL{more}.
# Words after the script's name go to the server, the last one of a flag wins.
# It asks for no key. For one, put `api-key: SECRET` into a file ending in .yaml that only you can read, and name that
# file in SERVE_CONFIG: a command line can be read by everyone on the machine.
set -eu
"""
#: A relative name is meant from where the script is started.
CONFIG_FROM_HERE = 'case "${SERVE_CONFIG:-}" in "" | /*) ;; *) SERVE_CONFIG=$PWD/$SERVE_CONFIG ;; esac'


def shell_script(artefact: Artefact) -> str:
    """The script: sets the variables, then becomes the server."""
    quote = shlex.quote
    defaults = {"SERVE_HOST": "127.0.0.1", "SERVE_PORT": str(artefact.port), "SERVE_MODEL": artefact.model}
    name = "SERVE_PYTHON" if artefact.entry[:1] == ("-m",) else "SERVE_SGLANG"
    defaults[name] = artefact.program
    if artefact.folder is not None:
        defaults["SERVE_FOLDER"] = str(artefact.folder)
    more = "".join(f", {other}" for other in defaults if other not in ("SERVE_HOST", "SERVE_PORT", "SERVE_MODEL"))
    lines = [_HEAD.format(provenance=comment(artefact.provenance), more=more)]
    lines += [f'[ -n "${{{key}:-}}" ] || {key}={quote(value)}' for key, value in defaults.items()]
    lines.append("")
    if artefact.twin:
        lines.append("echo 'SIMULATED: this starts the simulated server, no model is served by it.' >&2")
    elif artefact.simulated:
        lines.append("echo 'These settings were measured on a simulated server only, none of them on a GPU.' >&2")
    lines.append(f'command -v "${name}" >/dev/null || {{ echo "no $' + f'{name}: name one in {name}" >&2; exit 127; }}')
    if artefact.folder is not None:
        lines += [CONFIG_FROM_HERE, 'cd "$SERVE_FOLDER"']
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
