"""Who reads a function over tensors learns the shapes from its docstring, or from the one that it names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
SHAPE = re.compile(
    r"\[(\*?\w+|some rows|\.\.\.)( [+*-] \w+)*(,\s[^\]]+)*\]|\bscalar\b|\bshape\b"
)  # [n, heads, head_dim]; [rows]
SEE = re.compile(r"(?:See|As) `?(\w+)(?:\.(\w+))?`?")


def functions(tree: ast.Module) -> Iterator[tuple[str, str, ast.FunctionDef]]:
    """(class or "", name, definition) of every function of a module and of its classes."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield "", node.name, node
        elif isinstance(node, ast.ClassDef):
            for one in node.body:
                if isinstance(one, ast.FunctionDef):
                    yield node.name, one.name, one


@cache
def trees() -> dict[Path, ast.Module]:
    """All modules of core/, parsed in the process that runs a test of this file alone."""
    return {path: ast.parse(path.read_text("utf-8")) for path in sorted((REPO / "core").rglob("*.py"))}


@cache
def found() -> dict[tuple[str, str], ast.FunctionDef]:
    """All their functions, by class and name."""
    return {(cls, name): node for tree in trees().values() for cls, name, node in functions(tree)}


@cache
def classes() -> dict[str, str]:
    """The docstrings of all their classes."""
    return {
        node.name: ast.get_docstring(node) or ""
        for tree in trees().values()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def over_tensors(function: ast.FunctionDef) -> bool:
    """Whether it takes or returns a tensor."""
    args = function.args
    given = [one.annotation for one in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    return any(
        note is not None and "torch.Tensor" in ast.unparse(note) for note in (*given, function.returns)
    )


def says_shapes(cls: str, function: ast.FunctionDef) -> bool:
    """Whether its docstring has a shape, or names a documented one that has."""
    said = ast.get_docstring(function) or ""
    if SHAPE.search(said):
        return True
    named = SEE.match(said)
    if named is None:
        return False
    first, second = named.groups()
    places = (
        [(first, second)]
        if second
        else [(first, function.name), (first, "__call__"), (cls, first), ("", first)]
    )
    told = [ast.get_docstring(found()[place]) or "" for place in places if place in found()]
    return any(map(SHAPE.search, [*told, classes().get(first, "") if not second else ""]))


FOLDERS = {path.relative_to(REPO / "core").parts[0] for path in (REPO / "core").rglob("*.py")}


@pytest.mark.parametrize("folder", sorted(FOLDERS))
def test_public_functions_over_tensors_say_their_shapes(folder: str):
    silent = [
        f"{path.relative_to(REPO)}:{node.lineno} {cls}.{name}".replace(" .", " ")
        for path, tree in trees().items()
        if path.relative_to(REPO / "core").parts[0] == folder
        for cls, name, node in functions(tree)
        if not name.startswith("_")
        and not cls.startswith("_")
        and over_tensors(node)
        and not says_shapes(cls, node)
    ]
    assert silent == []


def test_the_check_notices_what_is_silent():
    """Without this the test above would show nothing."""
    texts = {
        '"""Adds."""': False,
        '"""Adds x [n, width]."""': True,
        '"""See Backend.attend."""': True,
        '"""See Backend.threads."""': False,
    }
    for text, good in texts.items():
        made = ast.parse(f"def add(x: torch.Tensor) -> None:\n    {text}").body[0]
        assert isinstance(made, ast.FunctionDef) and over_tensors(made) and says_shapes("", made) is good, (
            text
        )
    assert sum(over_tensors(node) for node in found().values()) > 200
