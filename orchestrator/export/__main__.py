"""The command line: `python -m orchestrator.export results/nccl --trial best --to shell`."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrator.export.artefact import DEFAULT_PORT, Artefact, artefact
from orchestrator.export.choice import BEST, NotExportable, choose
from orchestrator.export.config_file import config_yaml, environment_file
from orchestrator.export.docker import docker_script
from orchestrator.export.provenance import MARK
from orchestrator.export.shell import shell_script
from orchestrator.kept_study import open_study
from orchestrator.results.files import StoreError, write_bytes
from orchestrator.study_command import DONE, exit_code, study_parser


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = study_parser(
        "export", "Write a trial's setting as something to run, with its environment and where it comes from."
    )
    options.add_argument("--trial", default=BEST, metavar="N|best", help="default: best, the confirmed winner if any")
    options.add_argument("--to", choices=("shell", "docker", "yaml"), default="shell", help="default: shell")
    options.add_argument("--out", type=Path, metavar="FILE", help="default: to the terminal")
    options.add_argument("--port", type=_port, default=DEFAULT_PORT, help=f"default: {DEFAULT_PORT}")
    options.add_argument("--real", action="store_true", help="of a simulated study: for a real SGLang")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    options = parser().parse_args(arguments)
    return exit_code(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    study = open_study(options.study, options.storage)
    for note in study.notes:
        print(f"warning: {note}", file=sys.stderr)
    choice = choose(study, options.trial)
    # Only a real SGLang has an image.
    made = artefact(study, choice, port=options.port, real=options.real or options.to == "docker")
    for path, text in _files(made, options.to, options.out):
        if path is None:
            print(text, end="")
        else:
            _write(path, text, runnable=options.to != "yaml")
    for line in made.places.told:
        print(f"warning: {line}", file=sys.stderr)
    print(f"{'SIMULATED figures. ' if made.simulated else ''}Trial {choice.trial}. {choice.why}", file=sys.stderr)
    if options.out is not None:
        script = options.to != "yaml"
        file = shlex.quote(str(options.out.absolute()))
        print(
            f"Wrote {file}: {'start it with that' if script else 'its first lines tell the command'}", file=sys.stderr
        )
    return DONE


def _files(made: Artefact, kind: str, out: Path | None) -> list[tuple[Path | None, str]]:
    if kind == "shell":
        return [(out, shell_script(made))]
    if kind == "docker":
        return [(out, docker_script(made))]
    if out is None:
        return [(None, config_yaml(made))]
    if out.suffix.lower() not in (".yaml", ".yml"):
        raise NotExportable(f"SGLang reads no configuration from {out.name}: give --out a name that ends in .yaml")
    files: list[tuple[Path | None, str]] = [(out, config_yaml(made, out))]
    return [*files, (out.with_suffix(".env"), environment_file(made))] if made.env else files


def _write(path: Path, text: str, *, runnable: bool) -> None:
    """Raises NotExportable where a file stands that is none of ours, StoreError where the system refuses."""
    try:
        if path.exists() and MARK not in path.read_text(encoding="utf-8", errors="replace")[:2000]:
            raise NotExportable(f"{path} is there and was not written by this command: give --out another name")
        write_bytes(path, text.encode())
        if runnable:
            path.chmod(path.stat().st_mode | 0o111)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; write 1 to 65535")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
