"""The kernel stand-in does what SGLang's callers mean. Its checks run under the server's Python, which has torch."""

from __future__ import annotations

import ast
import functools
import json
import subprocess
from pathlib import Path

import pytest
import real_sglang

import launchers.sglang.cpu as cpu

_CHECKS = Path(__file__).with_name("stand_in_checks.py")
_KIT = Path(cpu.__file__).parent


def check_names() -> list[str]:
    """The functions that carry the decorator `check`, read without torch."""
    functions = [node for node in ast.parse(_CHECKS.read_text()).body if isinstance(node, ast.FunctionDef)]
    return [f.name for f in functions if any(getattr(d, "id", None) == "check" for d in f.decorator_list)]


@functools.cache
def errors() -> dict[str, str | None]:
    argv = [str(real_sglang.PYTHON), "-I", str(_CHECKS), str(_KIT)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.real_sglang
@pytest.mark.parametrize("name", check_names())
def test_the_stand_in_agrees_with_its_reference(name: str) -> None:
    error = errors()[name]
    assert error is None, error
