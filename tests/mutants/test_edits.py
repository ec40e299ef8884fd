"""Every small edit can be planted, and the tests notice a few of them on every run."""

from __future__ import annotations

import datetime
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.edit import Edit, failure
from tests.mutants.edit_catalog import EDITS

SAMPLE = 12
ROOT = Path(__file__).parents[2]


def test_the_text_of_every_edit_stands_once_in_its_function() -> None:
    assert [edit.name for edit in EDITS if edit.code() == edit.target.__code__] == []
    assert [name for name, count in Counter(edit.name for edit in EDITS).items() if count > 1] == []


def test_every_edit_names_a_test_that_is_there() -> None:
    missing = []
    for edit in EDITS:
        file, _, name = edit.test.partition("::")
        defined = f"def {name.partition('[')[0]}("
        if not name or defined not in (ROOT / "tests" / file).read_text(encoding="utf-8"):
            missing.append(edit.name)
    assert missing == []


def test_an_edit_whose_text_is_gone_is_refused() -> None:
    edit = Edit("gone", "raft._leader:Reads.seen", "no such text", "", "")
    with pytest.raises(ValueError, match="is not once in"):
        edit.code()


@pytest.mark.req("J9")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("slot", range(SAMPLE))
def test_an_edit_is_caught(slot: int) -> None:
    """Others every day; that the test passes without the edit is shown by the same suite."""
    edit = EDITS[
        (datetime.datetime.now(datetime.UTC).date().toordinal() * SAMPLE + slot) % len(EDITS)
    ]
    assert failure(edit.test, planted=edit.name) == edit.test, edit.name
