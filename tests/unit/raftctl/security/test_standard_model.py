"""StandardAuthorizer against the definition of a decision: all rules are read for each question."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftctl.metadata.acls import Operation, PatternType, Permission, ResourceType
from raftctl.metadata.records import RemoveAccessControlEntryRecord
from raftctl.security import Action
from raftctl.security._rules import RuleIndex
from tests.kit.authorizing import RuledAuthorizer, requester, rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftctl.metadata.records import AccessControlEntryRecord
    from raftctl.security import Requester

    Rules = Sequence[AccessControlEntryRecord]

pytestmark = pytest.mark.req("S4")

IMPLYING = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}
SUPER_USER = "User:root"


def of_requester(one: AccessControlEntryRecord, asking: Requester) -> bool:
    named = one.principal in (str(asking.principal), "User:*")
    return named and one.host in (asking.host, "*")


def covers(one: AccessControlEntryRecord, name: str) -> bool:
    if one.pattern_type == PatternType.PREFIXED:
        return name.startswith(one.resource_name)
    return one.resource_name in (name, "*")


def is_of(one: AccessControlEntryRecord, operation: Operation) -> bool:
    if one.operation in (operation, Operation.ALL):
        return True
    return one.permission_type == Permission.ALLOW and one.operation in IMPLYING.get(
        operation, set()
    )


def may(rules: Rules, asking: Requester, action: Action, *, everyone: bool) -> bool:
    """The definition of a decision (KIP-11, KIP-290)."""
    if str(asking.principal) == SUPER_USER:
        return True
    there = [
        one
        for one in rules
        if one.resource_type == action.resource_type and covers(one, action.resource_name)
    ]
    if not there:
        return everyone
    said = {
        one.permission_type
        for one in there
        if of_requester(one, asking) and is_of(one, action.operation)
    }
    return said == {Permission.ALLOW}


def may_some(
    rules: Rules, asking: Requester, operation: Operation, kind: ResourceType, *, everyone: bool
) -> bool:
    """The definition of a decision by type (KIP-679, and the name that Apache Kafka tries)."""
    if may(rules, asking, Action(operation, kind, "hardcode"), everyone=everyone):
        return True
    said = [
        one
        for one in rules
        if one.resource_type == kind
        and of_requester(one, asking)
        and one.operation in (operation, Operation.ALL)
    ]
    allows = [one for one in said if one.permission_type == Permission.ALLOW]
    denies = [one for one in said if one.permission_type == Permission.DENY]
    wild = (PatternType.LITERAL, "*")
    if any((one.pattern_type, one.resource_name) == wild for one in denies):
        return False
    return any(
        (one.pattern_type, one.resource_name) == wild
        or not any(dominates(deny, one) for deny in denies)
        for one in allows
    )


def dominates(deny: AccessControlEntryRecord, allow: AccessControlEntryRecord) -> bool:
    if deny.pattern_type == PatternType.PREFIXED:
        return allow.resource_name.startswith(deny.resource_name)
    return allow.pattern_type == PatternType.LITERAL and deny.resource_name == allow.resource_name


PRINCIPALS = ("User:a", "User:b", "Group:a", SUPER_USER)
HOSTS = ("10.0.0.7", "10.0.0.8")
OPERATIONS = ("ALL", "READ", "WRITE", "DESCRIBE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS")
TYPES = ("TOPIC", "GROUP")
NAMES = ("a", "ab", "abc", "b", "ba", "*", "*a", "hard", "hardcode")

texts = st.builds(
    "{} {}{} {} {} {}{}".format,
    st.sampled_from(("ALLOW", "ALLOW", "DENY")),
    st.sampled_from((*PRINCIPALS, "User:*")),
    st.sampled_from(("", "", *(f"@{host}" for host in HOSTS))),
    st.sampled_from(OPERATIONS),
    st.sampled_from(TYPES),
    st.sampled_from(NAMES),
    st.sampled_from(("", "...")),
)
batches = st.lists(st.sets(texts, max_size=8), min_size=1, max_size=4)
"""What becomes of each text in a batch: a rule that is there goes, any other comes."""
askers = st.builds("{}@{}".format, st.sampled_from(PRINCIPALS), st.sampled_from(HOSTS))
questions = st.lists(
    st.tuples(askers, st.sampled_from(OPERATIONS), st.sampled_from(TYPES), st.sampled_from(NAMES)),
    min_size=1,
    max_size=8,
)


@pytest.mark.timeout(300)
@settings(max_examples=200, deadline=None)
@given(batches, questions, st.booleans())
def test_every_decision_is_the_one_by_definition(
    changes: list[set[str]], asked: list[tuple[str, str, str, str]], everyone: bool
) -> None:
    config = {"super_users": SUPER_USER}
    if everyone:
        config["allow_everyone_if_no_acl_found"] = "true"
    ruled = RuledAuthorizer(**config)
    for texts_changed in changes:
        rules = [rule(text) for text in sorted(texts_changed)]
        ruled.commit(
            [
                RemoveAccessControlEntryRecord(one.entry_id)
                if one.entry_id in ruled.image.acls
                else one
                for one in rules
            ]
        )
        there = [*ruled.image.acls.values()]
        # Twice: the second answer is the one that was kept.
        for subject, operation, kind, name in asked * 2:
            asking, action = requester(subject), (Operation[operation], ResourceType[kind])
            allowed = may(there, asking, Action(*action, name), everyone=everyone)
            assert ruled.allows(f"{subject} {operation} {kind} {name}") == allowed
            some = may_some(there, asking, *action, everyone=everyone)
            assert ruled.allows_some(f"{subject} {operation} {kind}") == some
        kept = ruled.authorizer._index
        again = RuleIndex(reversed(there))
        assert sorted(kept.rules(), key=repr) == sorted(again.rules(), key=repr)
        assert _allowed(kept) == _allowed(again)


def _allowed(index: RuleIndex) -> dict[object, set[str]]:
    return {
        (number, key): {names} if isinstance(names, str) else names
        for number, of_type in index._types.items()
        for key, names in of_type._allowed.items()
    }
