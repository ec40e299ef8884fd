"""EDN: what Clojure prints is read, and what is written is read back."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jepsen.history import edn
from jepsen.history.edn import EdnError, Keyword, Symbol

pytestmark = pytest.mark.req("J6")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("nil", None),
        ("[true false]", [True, False]),
        ("(1 -2 +3 4N)", [1, -2, 3, 4]),
        ("[1.5 -2e3 3M]", [1.5, -2000.0, 3.0]),
        ("##Inf", math.inf),
        (r'"a \"b\"\n\u00e9"', 'a "b"\né'),
        ('"two\nlines"', "two\nlines"),
        (":a/b", Keyword("a/b")),
        ("some.symbol", Symbol("some.symbol")),
        (r"[\a \newline \u0041 \,]", ["a", "\n", "A", ","]),
        ("{:a 1, [1 2] 3}", {Keyword("a"): 1, (1, 2): 3}),
        ("#{1 [2]}", frozenset({1, (2,)})),
        ('#inst "2020"', "2020"),
        ("[1 #_ 2 #_ #_ 3 4 5] ; five", [1, 5]),
        ("#some/tag #_ 1 [2]", [2]),
        ("{}", {}),
    ],
)
def test_values_are_read(text: str, value: object) -> None:
    assert list(edn.read_all(text)) == [value]


def test_values_follow_each_other_and_tags_are_interpreted() -> None:
    assert list(edn.read_all("1 #twice 2, ;\n :a #_ b", {"twice": lambda two: two * 2})) == [
        1,
        4,
        Keyword("a"),
    ]
    (nan,) = edn.read_all("##NaN")
    assert math.isnan(nan)
    assert list(edn.read_all("  ; nothing")) == []


@pytest.mark.parametrize(
    "text", ["[1", "]", "[1)", "{1}", '"abc', r'"\q"', "#_", "1x", "#tag", "[" * 300 + "]" * 300]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(EdnError, match="line 1"):
        list(edn.read_all(text))


def test_what_has_no_form_is_refused() -> None:
    with pytest.raises(EdnError, match="bytes"):
        edn.write(b"")


keywords = st.from_regex(r"[a-z][a-z0-9-]*", fullmatch=True).map(Keyword)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    scalars | keywords,
    lambda inner: st.lists(inner) | st.dictionaries(keywords | st.integers(), inner),
    max_leaves=10,
)


@given(values)
def test_what_is_written_is_read_back(value: object) -> None:
    (back,) = edn.read_all(edn.write(value))
    assert back == value
    assert type(back) is type(value)


@given(st.text(alphabet='[]{}()"\\#_:;, a1\n', max_size=20))
def test_arbitrary_text_raises_only_edn_errors(text: str) -> None:
    with contextlib.suppress(EdnError):
        list(edn.read_all(text))
