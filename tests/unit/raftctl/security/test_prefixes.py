"""Questions about all names with a prefix, against the rules of each name (S6)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftctl.metadata.acls import Operation, ResourceType
from raftctl.security import Action
from tests.kit.authorizing import RuledAuthorizer, requester

pytestmark = pytest.mark.req("S6")

NAMES = ["".join(letters) for size in range(4) for letters in itertools.product("ab", repeat=size)]
USER = requester("User:u")
patterns = st.tuples(
    st.sampled_from(["ALLOW", "DENY"]),
    st.sampled_from(["User:u", "User:*", "User:other"]),
    st.sampled_from(["READ", "WRITE", "ALL"]),
    st.sampled_from([*(f"{one}..." for one in NAMES[1:]), *NAMES[1:], "*"]),
)


def actions(prefix: str) -> tuple[Action, list[Action]]:
    """The question about the prefix, and those about names with it."""
    kind = ResourceType.KEY
    names = [one for one in NAMES if one and one.startswith(prefix)]
    each = [Action(Operation.READ, kind, one) for one in (*names, prefix + "zz")]
    return Action(Operation.READ, kind, prefix), each


@given(rules=st.lists(patterns, max_size=6), prefix=st.sampled_from(NAMES))
@settings(max_examples=300, deadline=None)
def test_what_is_allowed_for_a_prefix_is_allowed_for_each_name(
    rules: list[tuple[str, str, str, str]], prefix: str
) -> None:
    made = RuledAuthorizer(*(f"{a} {who} {what} KEY {name}" for a, who, what, name in set(rules)))
    whole, each = actions(prefix)
    is_allowed = made.authorizer.authorize_prefix(USER, whole)
    all_allowed = all(made.authorizer.authorize(USER, one) for one in each)
    # One rule must cover them all: two that do together are not looked for.
    assert all_allowed or not is_allowed
    covered = any(
        one == "ALLOW"
        and who != "User:other"
        and what != "WRITE"
        and (name == "*" or (name.endswith("...") and prefix.startswith(name[:-3])))
        for one, who, what, name in rules
    )
    assert is_allowed == (all_allowed and covered)


def test_a_prefix_is_in_the_audit_log() -> None:
    made = RuledAuthorizer("ALLOW User:u READ KEY app/...")
    assert not made.authorizer.authorize_prefix(
        USER, Action(Operation.READ, ResourceType.KEY, "app")
    )
    (line,) = made.lines
    assert line["event"] == "access_denied"
    assert line["resource"] == "KEY:PREFIXED:app"
    assert line["because"] == "no rule of the resource allows it"
    quiet = Action(Operation.READ, ResourceType.KEY, "app/", log_if_allowed=False)
    assert made.authorizer.authorize_prefix(USER, quiet)
    assert len(made.lines) == 1
