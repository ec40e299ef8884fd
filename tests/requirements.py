"""Keeps the "shown by" column of docs/requirements.md in step with the tests' markers.

`python -m tests.requirements` rewrites the column from `@pytest.mark.req(...)`; `--check` fails
when it is stale, when a row marked `done` or `partly` has no test, or when a test names no row.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "requirements.md"
ROW = re.compile(r"^\| ([A-Z]\d+) \| (.*?) \| (done|partly|open) \| (.*?) ?\|$")
FILES_SHOWN_MAX = 4


def marked_tests() -> dict[str, dict[str, int]]:
    """Row id to {test file: number of marked tests}."""
    shown: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        name = str(path.relative_to(ROOT / "tests"))
        tree = ast.parse(path.read_text())
        for row in _module_rows(tree):
            shown[row][name] = shown[row].get(name, 0) + 1
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                for row in (r for d in node.decorator_list for r in _rows(d)):
                    shown[row][name] = shown[row].get(name, 0) + 1
    return shown


def _module_rows(tree: ast.Module) -> list[str]:
    marks = [
        n.value
        for n in tree.body
        if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "pytestmark"
    ]
    return [row for mark in marks for call in ast.walk(mark) for row in _rows(call)]


def _rows(decorator: ast.AST) -> list[str]:
    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.req":
        return [str(a.value) for a in decorator.args if isinstance(a, ast.Constant)]
    return []


def _cell(files: dict[str, int]) -> str:
    names = [f"`{name}`" for name in sorted(files, key=lambda n: (-files[n], n))]
    more = len(names) - FILES_SHOWN_MAX
    return ", ".join(names[:FILES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


def render(page: str, shown: dict[str, dict[str, int]]) -> tuple[str, list[str]]:
    """The page with fresh cells, and what is wrong with it."""
    lines, wrong, seen = [], [], set()
    for line in page.splitlines():
        match = ROW.match(line)
        if match is None:
            lines.append(line)
            continue
        row, text, status, _ = match.groups()
        seen.add(row)
        files = shown.get(row, {})
        if status != "open" and not files:
            wrong.append(f"{row} is {status} but no test is marked with it")
        if status == "open" and files:
            wrong.append(f"{row} is open but {_cell(files)} show it: say partly or done")
        cell = _cell(files)
        lines.append(f"| {row} | {text} | {status} | {cell} |" if cell else line_open(row, text))
    wrong += [f"tests are marked {row}, which is no row" for row in sorted(set(shown) - seen)]
    return "\n".join(lines) + "\n", wrong


def line_open(row: str, text: str) -> str:
    """A row without tests."""
    return f"| {row} | {text} | open | |"


def main() -> int:
    """Writes the page, or with `--check` compares it; the exit status."""
    page = PAGE.read_text()
    fresh, wrong = render(page, marked_tests())
    if "--check" in sys.argv:
        if fresh != page:
            wrong.append("docs/requirements.md is stale: run `make docs`")
    else:
        PAGE.write_text(fresh)
    sys.stdout.write("".join(f"{line}\n" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
