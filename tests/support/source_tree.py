"""Modules of the project and what each imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]


def modules(*packages: str) -> list[str]:
    """Dotted names of every module below the packages."""
    files = [path for package in packages for path in sorted((REPO / package).rglob("*.py"))]
    return [name_of(path) for path in files]


def name_of(path: Path) -> str:
    parts = path.relative_to(REPO).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def path_of(module: str) -> Path:
    path = REPO.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(path_of(module).read_text(encoding="utf-8"))


@cache
def imports(module: str, *, typing: bool = False) -> frozenset[str]:
    """Everything the module imports, `from a import b` as both a and a.b; what only type checkers read by
    `typing` alone.
    """
    package = module if path_of(module).name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(tree_of(module)) if typing else runtime_nodes(tree_of(module)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join(
                    [
                        *package.split(".")[: len(package.split(".")) - node.level + 1],
                        *filter(None, [node.module]),
                    ]
                )
            found.update([base, *(f"{base}.{alias.name}" for alias in node.names)])
    return frozenset(found)


def runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes outside `if TYPE_CHECKING:`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for other in node.orelse:
                yield other
                yield from runtime_nodes(other)
            continue
        yield node
        yield from runtime_nodes(node)
