"""The shape of the house: packages with front doors, few modules a folder, no import cycles.

A module whose name starts with an underscore stands behind the front door of its package and is
imported from inside that package only. Tests may import the private modules of what they test.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.structure import import_cycles

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("raftctl", "broker", "jepsen")
MODULES_MAX = 15
"""Modules in one folder, `__init__` and `__main__` not counted."""
NAMES_MAX = 20
"""Names that a front door exports, and public modules beside it."""
PAGE_LINES_MIN = 3


@cache
def modules() -> dict[str, Path]:
    """The path of each module of the product by its dotted name; packages by their own name."""
    found = {}
    for package in PRODUCT:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def packages() -> dict[str, Path]:
    return {name: path for name, path in modules().items() if path.name == "__init__.py"}


def is_private(module: str) -> bool:
    name = module.rpartition(".")[2]
    return name.startswith("_") and not name.startswith("__")


def imported(tree: ast.AST) -> Iterator[str]:
    """The dotted names that a module imports: modules, and names of modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_private_modules_are_imported_inside_their_package_only() -> None:
    trespassers = set()
    for importer, path in modules().items():
        for name in imported(ast.parse(path.read_text())):
            package = name.rpartition(".")[0]
            if (
                name in modules()
                and is_private(name)
                and not f"{importer}.".startswith(package + ".")
            ):
                trespassers.add(f"{importer} imports {name}")
    assert sorted(trespassers) == []


def test_a_folder_holds_few_modules() -> None:
    folders = defaultdict(list)
    for path in modules().values():
        if not path.name.startswith("__"):
            folders[str(path.parent.relative_to(ROOT))].append(path.name)
    assert {name: len(held) for name, held in folders.items() if len(held) > MODULES_MAX} == {}


@pytest.mark.parametrize("package", sorted(packages()))
def test_a_front_door_has_a_page_and_few_names(package: str) -> None:
    path = packages()[package]
    tree = ast.parse(path.read_text())
    page = ast.get_docstring(tree)
    assert page is not None
    assert page.count("\n") + 1 >= PAGE_LINES_MIN
    exported = [
        name
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for name in ast.literal_eval(node.value)
    ]
    beside = [other.stem for other in path.parent.glob("*.py") if not other.stem.startswith("_")]
    assert len(set(exported) | set(beside)) <= NAMES_MAX


def test_no_modules_import_each_other() -> None:
    """Imports for type checking count too: they show that two modules are one idea."""
    assert [sorted(cycle) for cycle in import_cycles()] == []
