"""One command that makes an environment in which a real SGLang runs without a GPU.

    python3 -m launchers.sglang.cpu [--folder .venv-sglang] [--noise 0.0 0.1 ...] [--seed 0] [--torch-index URL]

It needs Python and nothing installed. Run it again to repair or to go on after an interruption; when all is there it
takes seconds.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from launchers.sglang.cpu.environment import Environment, Wanted
from launchers.sglang.cpu.errors import KitError
from launchers.sglang.cpu.packages import TORCH_CPU, TORCH_CPU_INDEX

_PYTHONS = ((3, 11), (3, 13))


def _noise(text: str) -> float:
    noise = float(text)
    if not 0 <= noise < float("inf"):
        raise ValueError("noise is 0 or more")
    return noise


def parse(words: Sequence[str]) -> Wanted:
    """The command line. Exits with code 2 on a bad one."""
    parser = argparse.ArgumentParser(
        prog="python3 -m launchers.sglang.cpu",
        description="Make an environment with SGLang 0.5.23 for the CPU, and tiny models (3.4 GB, a few minutes).",
    )
    default = Wanted(Path(".venv-sglang"))
    parser.add_argument("--folder", type=Path, default=default.folder, help="the environment (%(default)s)")
    parser.add_argument(
        "--noise",
        type=_noise,
        nargs="+",
        default=list(default.noises),
        metavar="N",
        help="an EAGLE drafter for each: 0 predicts the target exactly, from about 0.3 on it does not pay",
    )
    parser.add_argument("--seed", type=int, default=default.seed, help="of the models' weights (%(default)s)")
    parser.add_argument(
        "--torch-index",
        default=TORCH_CPU_INDEX,
        metavar="URL",
        help=f"asked for {TORCH_CPU} if pip's own indexes do not have it (%(default)s); "
        "`none`: take torch as pip finds it, perhaps the CUDA build of several GB",
    )
    options = parser.parse_args(words)
    index = None if options.torch_index == "none" else options.torch_index
    return Wanted(options.folder, tuple(dict.fromkeys(options.noise)), options.seed, index)


def unsuitable() -> str | None:
    """Why this machine or Python cannot have it; None if it can."""
    low, high = _PYTHONS
    if not low <= sys.version_info[:2] <= high:
        asked = "{}.{} to {}.{}".format(*low, *high)
        return f"Python {platform.python_version()} will not do: run this with Python {asked}, such as python3.11"
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return (
            f"SGLang's CPU engine was made to run here on Linux on x86-64, and this is {sys.platform} on "
            f"{platform.machine()}: use a container or a virtual machine"
        )
    return None


def main(words: Sequence[str] | None = None) -> int:
    """Make the environment; the exit code."""
    wanted = parse(sys.argv[1:] if words is None else words)
    reason = unsuitable()
    if reason:
        print(reason, file=sys.stderr)
        return 1
    environment = Environment(wanted, lambda line: print(line, flush=True))
    try:
        versions = environment.make()
    except KitError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{wanted.folder} cannot be written: {error}; make room or check its rights", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        return 130
    print(f"{environment.python}: {versions}\nmodels in {environment.models}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
