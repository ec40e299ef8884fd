"""The files of the page: small, and without any way for text to become markup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import raftctl

PAGE = Path(raftctl.__file__).parent / "console" / "page"
FILES = sorted(PAGE.iterdir())
BYTES_MAX = 150 * 1024
SINKS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser"
    r"|\beval\(|new Function|setTimeout\(['\"`]|srcdoc|\.setHTML"
)
"""What makes markup or script of a text."""


def test_the_page_is_small() -> None:
    assert sum(path.stat().st_size for path in FILES) <= BYTES_MAX


def test_the_pictures_of_the_docs_are_small() -> None:
    folder = PAGE.parent.parent.parent / "docs" / "images" / "console"
    assert 0 < sum(path.stat().st_size for path in folder.iterdir()) <= 600_000


@pytest.mark.req("W3")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_text_never_becomes_markup(path: Path) -> None:
    assert SINKS.findall(path.read_text()) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_is_fetched_from_elsewhere(path: Path) -> None:
    """Names of namespaces are no addresses that a browser asks."""
    named = set(re.findall(r"https?://[^\"' )]+", path.read_text()))
    assert named <= {"http://www.w3.org/2000/svg"}
    assert "@import" not in path.read_text()


def test_the_index_has_no_script_and_no_style_of_its_own() -> None:
    index = (PAGE / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)", index) == []
    assert re.findall(r"<style|\bstyle=|\bon\w+=", index) == []


def test_each_module_is_loaded_at_once_and_each_file_is_used() -> None:
    """A module that only another one names would be asked for one round trip later."""
    index = (PAGE / "index.html").read_text()
    named = set(re.findall(r"(?:src|href)=\"([\w.]+)\"", index))
    assert named == {path.name for path in FILES} - {"index.html"}


def test_modules_import_what_is_there() -> None:
    for path in FILES:
        for names, module in re.findall(
            r"import \{([^}]+)\} from \"\./([\w.]+)\"", path.read_text()
        ):
            text = (PAGE / module).read_text()
            exported = set(re.findall(r"export (?:async )?(?:function|const|class) (\w+)", text))
            assert {name.strip() for name in names.split(",")} <= exported, (path.name, module)
            body = re.sub(r"import [^;]+;", "", path.read_text())
            for name in names.split(","):
                assert re.search(rf"\b{name.strip()}\b", body), f"{path.name} does not use {name}"
