"""Measures of the code as a house: sizes, prose, invariants, imports. `python -m tests.structure`.

A line of the first table is a package: modules, lines, functions and files at the median, the 95th
percentile and the maximum, the share of its lines that are prose (comments and docstrings), and
calls of `invariant` and `assert` for each 1,000 lines. Then the imports: modules that one other
module uses, be it through a front door, and groups of modules that import each other,
`TYPE_CHECKING` included.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import grimp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("raftctl", "broker", "jepsen")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(slots=True)
class Measures:
    """Of a module, or of several added up."""

    files: list[int] = field(default_factory=list)
    """Lines of each."""
    functions: list[int] = field(default_factory=list)
    """Lines of each, from `def` to the last."""
    prose: int = 0
    """Lines that are a comment alone or part of a docstring, those of attributes included."""
    invariants: int = 0

    @property
    def lines(self) -> int:
        return sum(self.files)

    def add(self, other: Measures) -> None:
        """Add those of another module."""
        self.files += other.files
        self.functions += other.functions
        self.prose += other.prose
        self.invariants += other.invariants


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_invariant(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        return True
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name == "invariant"


def _length(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def measure(text: str) -> Measures:
    """The measures of one module's source."""
    found = Measures([len(text.splitlines())])
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, FUNCTIONS):
            found.functions.append(_length(node))
        if isinstance(node, DOCUMENTED):
            found.prose += sum(_length(child) for child in node.body if _is_text(child))
        found.invariants += _is_invariant(node)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#"):
            found.prose += 1
    return found


def packages(root: Path, tops: Iterable[str]) -> dict[str, Measures]:
    """The measures of each folder with modules, by its dotted name, sorted."""
    found: dict[str, Measures] = {}
    for path in sorted(file for top in tops for file in (root / top).rglob("*.py")):
        name = ".".join(path.parent.relative_to(root).parts)
        found.setdefault(name, Measures()).add(measure(path.read_text()))
    return found


def import_cycles() -> list[list[str]]:
    """The groups of modules of the product that import each other, type checking included."""
    return groups(imports())


def groups(edges: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules each of which imports all others, by way of others or not."""
    reached = {module: _reached(edges, module) for module in edges}
    found: dict[frozenset[str], None] = {}
    for module in sorted(edges):
        group = frozenset(
            other for other in reached[module] if module in reached.get(other, frozenset())
        )
        if len(group) > 1:
            found[group] = None
    return [sorted(group) for group in found]


def _reached(edges: dict[str, set[str]], start: str) -> frozenset[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for module in edges.get(waiting.pop(), set()) - found:
            found.add(module)
            waiting.append(module)
    return frozenset(found)


def imports() -> dict[str, set[str]]:
    """What each module of the product imports of it, packages' own names left out."""
    graph = grimp.build_graph(*PRODUCT, exclude_type_checking_imports=False, cache_dir=None)
    return {
        module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules
    }


def exported(modules: dict[str, Path]) -> dict[str, dict[str, str]]:
    """By package, the module behind its front door from which each exported name comes."""
    doors: dict[str, dict[str, str]] = {}
    for package, path in modules.items():
        if path.name != "__init__.py":
            continue
        doors[package] = {
            alias.asname or alias.name: node.module
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom) and node.module in modules
            for alias in node.names
        }
    return doors


def users(root: Path, tops: Iterable[str]) -> dict[str, set[str]]:
    """By module, the modules that import it or, through a front door, a name of it.

    A front door is not counted: neither as an importer, nor what is taken of its own.
    """
    modules = {}
    for path in sorted(file for top in tops for file in (root / top).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    doors = exported(modules)
    found: dict[str, set[str]] = {name: set() for name in modules}
    for importer, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or node.module not in modules:
                continue
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                if module not in modules:
                    module = doors.get(node.module, {}).get(alias.name, node.module)
                is_no_door = "__init__.py" not in (path.name, modules[module].name)
                if is_no_door and importer != module:
                    found[module].add(importer)
    return found


def single_importers(used: dict[str, set[str]]) -> list[str]:
    """The modules that exactly one other uses; front doors are neither."""
    return sorted(module for module, importers in used.items() if len(importers) == 1)


def front_door(package: str) -> int:
    """How many names the package's `__init__` exports."""
    tree = ast.parse((ROOT.joinpath(*package.split(".")) / "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        ):
            return len(ast.literal_eval(node.value))
    return 0


def _at(values: Sequence[int], share: float) -> int:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0


def _spread(values: Sequence[int]) -> str:
    return f"{_at(values, 0.5)} / {_at(values, 0.95)} / {max(values, default=0)}"


def _row(name: str, found: Measures, names: str) -> str:
    lines = max(1, found.lines)
    return (
        f"| {name} | {len(found.files)} | {found.lines:,} | {_spread(found.files)} "
        f"| {_spread(found.functions)} | {100 * found.prose / lines:.1f} % "
        f"| {1000 * found.invariants / lines:.1f} | {names} |"
    )


def table() -> Iterator[str]:
    """The lines of the report, in Markdown."""
    yield "| package | modules | lines | file | function | prose | invariants | names |"
    yield "|---|---|---|---|---|---|---|---|"
    totals = {top: Measures() for top in (*PRODUCT, "tests")}
    for name, found in packages(ROOT, totals).items():
        top = name.partition(".")[0]
        totals[top].add(found)
        if top in PRODUCT:
            yield _row(name, found, str(front_door(name)))
    for top, found in totals.items():
        yield _row(f"**{top}**", found, "")
    edges = imports()
    single, cycles = single_importers(users(ROOT, PRODUCT)), groups(edges)
    yield ""
    yield f"{sum(totals[top].lines for top in PRODUCT):,} lines of product"
    yield f"{len(single)} of {len(edges)} modules are imported by one other module"
    yield f"{len(cycles)} groups of modules import each other"
    yield from (f"* {', '.join(group)}" for group in cycles)


if __name__ == "__main__":
    sys.stdout.write("\n".join(table()) + "\n")
