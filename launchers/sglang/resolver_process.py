"""SGLang's own resolver of arguments, asked line by line. Run by an interpreter that has sglang, never imported.

A request is a line of JSON on stdin, the answer one on stdout:

    {"op": "resolve", "argv": [...], "env": {...}}  ->  {"values": {...}} or {"exit_code": n, "log": "..."}
    {"op": "flags"}                                 ->  {"flags": [{"names": [...], ...}, ...]}

Standard library and sglang only. Read in SGLang 0.5.23, server_args.py: `prepare_server_args` parses,
`resolve_once` and `check_server_args` apply every rule without loading a weight, and they change os.environ,
which is therefore put back after each call.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import queue
import re
import sys
import threading
import traceback
from typing import Any, TextIO

#: Fields of the arguments that hold a secret.
SECRET_FIELDS = ("api_key", "admin_api_key", "ssl_keyfile_password", "watermark_key", "watermark_key_b")
#: What the resolver decides by setting variables instead of arguments.
TOLD_VARIABLES = ("NCCL_", "SGLANG_")


def main() -> None:
    """Answer until stdin ends, which it does with the owner."""
    answers = private_stdout()
    requests: queue.Queue[str] = queue.Queue()
    threading.Thread(target=read_requests, args=(requests,), daemon=True).start()
    while True:
        request = json.loads(requests.get())
        answer = flags() if request["op"] == "flags" else resolve(request["argv"], request["env"])
        answers.write(json.dumps(answer | {"holds_gpu": holds_gpu()}, default=str) + "\n")
        answers.flush()


def private_stdout() -> TextIO:
    """The stdout we were given, out of reach of sglang and its libraries: what they print goes to stderr."""
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return kept


def read_requests(requests: queue.Queue[str]) -> None:
    """Pass lines on; when they end, end the process, whatever it is busy with."""
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


def resolve(argv: list[str], env: dict[str, str]) -> dict[str, Any]:
    """What becomes of a command line's words under these variables."""
    printed = io.StringIO()
    before = dict(os.environ)
    os.environ.update(env)
    asked = dict(os.environ)
    try:
        # argparse and logging, which sglang sets up anew for each command line, take sys.stderr as it then is.
        with contextlib.redirect_stderr(printed):
            arguments = server_args().prepare_server_args(argv)
            arguments.resolve_once()
            arguments.check_server_args()
            values = arguments.resolved_dict()
    except SystemExit as end:
        return {"exit_code": end.code if isinstance(end.code, int) else 1, "log": printed.getvalue()}
    except Exception:
        return {"exit_code": 1, "log": printed.getvalue() + traceback.format_exc()}
    else:
        changed = {k: v for k, v in os.environ.items() if k.startswith(TOLD_VARIABLES) and asked.get(k) != v}
        return {"values": {k: v for k, v in values.items() if k not in SECRET_FIELDS}, "env": changed}
    finally:
        os.environ.clear()
        os.environ.update(before)


def flags() -> dict[str, Any]:
    """Every option that this version knows."""
    parser = argparse.ArgumentParser(add_help=False)
    server_args().ServerArgs.add_cli_args(parser)
    return {
        "flags": [
            {
                "names": [name for name in action.option_strings if name.startswith("--")],
                "choices": None if action.choices is None else list(action.choices),
                # A bare flag takes no word.
                "bare": action.nargs == 0,
                "type": getattr(action.type, "__name__", None),
                "instead": instead_of(action),
            }
            for action in parser._actions
            if action.option_strings
        ]
    }


def server_args() -> Any:
    """SGLang's module of arguments; seconds the first time."""
    return importlib.import_module("sglang.srt.server_args")


def instead_of(action: argparse.Action) -> str | None:
    """What a deprecated option says that it is deprecated for."""
    told = re.match(r"\(?Deprecated[:.]? [Uu]se (\S+?)\)?[.)]? ", f"{action.help or ''} ")
    return getattr(action, "new_flag", None) or (told.group(1) if told else None)


def holds_gpu() -> bool:
    """Whether asking left a CUDA context, and so memory of a GPU, with this process."""
    torch = sys.modules.get("torch")
    held = getattr(getattr(torch, "_C", None), "_cuda_hasPrimaryContext", None)
    if torch is None or held is None or not torch.cuda.is_initialized():
        return False
    return any(held(index) for index in range(torch.cuda.device_count()))


if __name__ == "__main__":
    # Beside this file lie modules that are not meant for this interpreter.
    sys.path.pop(0)
    main()
