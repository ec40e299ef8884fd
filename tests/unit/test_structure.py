"""The measures of the code as a house say what they claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests import structure

if TYPE_CHECKING:
    from pathlib import Path

MODULE = '''"""Two
lines."""

# A comment alone.
LIMIT = 3  # beside code
"""Of an attribute."""


def check(value: int) -> None:
    """One line."""
    invariant(value > 0, "why")
    errors.invariant(value < LIMIT, "why")
    assert value
    "text".invariants(value)
'''


def test_prose_functions_and_invariants_are_counted() -> None:
    found = structure.measure(MODULE)
    assert found.files == [14]
    assert found.functions == [6]
    assert found.prose == 2 + 1 + 1 + 1
    assert found.invariants == 3


def test_modules_of_a_folder_are_added_up(tmp_path: Path) -> None:
    for name, text in (("a", "x = 1\n"), ("b", MODULE), ("deep/c", "")):
        file = tmp_path / "top" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    found = structure.packages(tmp_path, ["top"])
    assert list(found) == ["top", "top.deep"]
    assert sorted(found["top"].files) == [1, 14]
    assert found["top"].lines == 15
    assert found["top"].functions == [6]


def test_modules_that_import_each_other_are_one_group() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert structure.groups(edges) == [["a", "b", "c"], ["d", "e"]]


def test_what_one_other_module_imports_is_counted_without_its_packages_door() -> None:
    edges = {"p": {"p.a", "p.b"}, "p.b": {"p.a"}, "q": {"p", "p.b"}, "r": {"p", "p.b"}}
    assert structure.single_importers(edges) == ["p.a"]
