"""Lets PyPI's torchvision be imported beside a CPU build of torch. Loaded by a .pth file at every start of Python.

torchvision declares fake kernels for two operators that its compiled library defines; PyPI's library links CUDA and
does not load, and the import then fails. Just before that import, the operators are declared where they are missing.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_OPERATORS = ("nms", "qnms")
#: Declarations last as long as their library object.
_KEPT: list[object] = []


def _declare_operators(package: Path) -> None:
    import torch

    try:
        # A library that loads defines the operators itself; loading it twice is harmless.
        torch.ops.load_library(package / "_C.so")
    except OSError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in _OPERATORS:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(library)


class _BeforeTorchvision(MetaPathFinder):
    """Finds nothing; it is asked first, so it sees the import coming."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(fullname)
            if spec is not None and spec.origin is not None:
                _declare_operators(Path(spec.origin).parent)
        return None


sys.meta_path.insert(0, _BeforeTorchvision())
