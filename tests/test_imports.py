"""Imports point one way: `launchers` knows nothing of `orchestrator`, and no package leads back to itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("launchers", "orchestrator")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}


def executed_at_import(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that run when the module is imported: none in functions, none for type checkers only."""
    queue: list[ast.AST] = [tree]
    while queue:
        node = queue.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            queue.extend(node.orelse)
        else:
            queue.extend(ast.iter_child_nodes(node))


def every_import(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def targets(node: ast.Import | ast.ImportFrom, module: str) -> set[str]:
    """Our modules that an import names. Importing a package's module runs the package's __init__, too."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        base = node.module or ""
        if node.level:
            is_package = MODULES[module].name == "__init__.py"
            parts = module.split(".")
            parts = parts[: len(parts) - node.level + is_package]
            base = ".".join([*parts, *([node.module] if node.module else [])])
        names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return {name for name in names if name in MODULES}


def graph(imports: object = executed_at_import) -> dict[str, set[str]]:
    edges: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        tree = ast.parse(path.read_text(), str(path))
        edges[module] = {name for node in imports(tree) for name in targets(node, module)} - {module}  # type: ignore[operator]
    return edges


def cycle(edges: dict[str, set[str]]) -> list[str] | None:
    """Some cycle as a path that ends where it begins, None if there is none."""
    done: set[str] = set()
    path: list[str] = []

    def visit(name: str) -> list[str] | None:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return None
        path.append(name)
        for target in sorted(edges.get(name, ())):
            found = visit(target)
            if found:
                return found
        path.pop()
        done.add(name)
        return None

    return next((found for name in sorted(edges) if (found := visit(name))), None)


def folder_of(module: str) -> str | None:
    """The sub-package that a module is in; None for a module of a top folder."""
    is_package = MODULES[module].name == "__init__.py"
    parts = module.split(".") if is_package else module.split(".")[:-1]
    return ".".join(parts[:2]) if len(parts) > 1 else None


def test_the_modules_are_found() -> None:
    assert {"launchers.base", "launchers.sglang", "launchers.simulated.__main__", "orchestrator"} <= MODULES.keys()
    assert "launchers.base" in graph()["launchers.errors"]


def test_launchers_never_import_the_orchestrator() -> None:
    edges = graph(every_import)
    wrong = {m: sorted(t) for m in edges if m.startswith("launchers") for t in [edges[m]] if any_orchestrator(t)}
    assert wrong == {}


def any_orchestrator(names: set[str]) -> bool:
    return any(name.split(".")[0] == "orchestrator" for name in names)


def test_no_module_leads_back_to_itself() -> None:
    assert cycle(graph()) is None


def test_folders_point_one_way() -> None:
    """`orchestrator.analysis` may use `orchestrator.benchmark` or the other way round, not both."""
    edges: dict[str, set[str]] = {}
    for module, found in graph().items():
        folder = folder_of(module)
        if folder is not None:
            edges.setdefault(folder, set()).update(filter(None, map(folder_of, found)))
    edges = {folder: found - {folder} for folder, found in edges.items()}
    assert edges["launchers.simulated"] >= {"launchers.sglang"}
    assert cycle(edges) is None


def test_the_folders_of_launchers_stand_above_its_modules() -> None:
    """What every kind of server shares knows of no kind."""
    wrong = {m: found for m, found in graph().items() if m.startswith("launchers.") and folder_of(m) is None}
    assert {name for found in wrong.values() for name in found if folder_of(name) is not None} == set()


def test_the_launchers_base_knows_nothing_of_ours() -> None:
    assert graph(executed_at_import)["launchers.base"] == set()


@pytest.mark.parametrize("edges", [{"a": {"b"}, "b": {"c"}, "c": {"a"}}, {"a": {"b"}, "b": {"b"}}])
def test_a_cycle_is_found(edges: dict[str, set[str]]) -> None:
    assert cycle(edges) is not None
    assert cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None


def test_the_simulated_server_starts_without_the_orchestrators_libraries() -> None:
    code = (
        "import sys; import launchers.simulated.__main__; import launchers.simulated.lifecycle; "
        "print([n for n in ('ray', 'optuna', 'pandas', 'pyarrow', 'requests', 'orchestrator') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"
