"""The `.properties` reader against the rules of java.util.Properties."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raftctl.config._properties import parse_properties, write_properties
from raftctl.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node.id=1", {"node.id": "1"}),
        ("node.id = 1", {"node.id": "1"}),
        ("node.id:1", {"node.id": "1"}),
        ("node.id 1", {"node.id": "1"}),
        ("node.id\t:  1", {"node.id": "1"}),
        ("# remark\n! remark\n\n  # remark\nnode.id=1", {"node.id": "1"}),
        ("a=1\r\nb=2\rc=3\n", {"a": "1", "b": "2", "c": "3"}),
        ("hosts=one,\\\n    two,\\\n    three", {"hosts": "one,two,three"}),
        ("a=1\\\n# not a remark", {"a": "1# not a remark"}),
        ("a=back\\\\\nb=2", {"a": "back\\", "b": "2"}),
        ("a\\ b\\:c\\=d=e", {"a b:c=d": "e"}),
        ("a=x=y:z", {"a": "x=y:z"}),
        ("a=\\u00e9\\t\\n\\q", {"a": "\u00e9\t\nq"}),
        ("lonely", {"lonely": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("a=end\\", {"a": "end"}),
        ("", {}),
    ],
)
def test_reads_as_java_does(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_bad_escape_names_the_line() -> None:
    with pytest.raises(ConfigError, match=r"line 2: .*four hexadecimal"):
        parse_properties("a=1\nb=\\u12")


@example({" ": " "})
@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_what_is_written_is_read_back(values: dict[str, str]) -> None:
    assert parse_properties(write_properties(values)) == values
