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


def test_a_name_taken_through_a_front_door_counts_for_the_module_behind_it(tmp_path: Path) -> None:
    for name, text in (
        ("__init__", "from p._a import A\nfrom p._b import B\n"),
        ("_a", "A = 1\n"),
        ("_b", "from p._a import A\nB = A\n"),
        ("c", "from p import A, B\n"),
        ("d", "from p import c\n"),
    ):
        (tmp_path / "p").mkdir(exist_ok=True)
        (tmp_path / "p" / f"{name}.py").write_text(text)
    used = structure.users(tmp_path, ["p"])
    assert used == {
        "p": set(),
        "p._a": {"p._b", "p.c"},
        "p._b": {"p.c"},
        "p.c": {"p.d"},
        "p.d": set(),
    }
    assert structure.single_importers(used) == ["p._b", "p.c"]
