"""StandardAuthorizer: how it decides, what it takes up, what it writes down."""

from __future__ import annotations

import logging

import pytest

from raftctl.errors import ConfigError, InvariantViolation
from raftctl.metadata.acls import Operation, ResourceType
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta
from raftctl.metadata.records import NoOpRecord, RemoveAccessControlEntryRecord
from raftctl.security import Action, StandardAuthorizer, _standard
from raftctl.security._rules import RuleIndex
from tests.kit.authorizing import RuledAuthorizer, requester, rule

pytestmark = pytest.mark.req("S4")

EVERYONE = {"allow_everyone_if_no_acl_found": "true"}


@pytest.mark.parametrize(
    ("rules", "allowed", "denied"),
    [
        pytest.param([], "", "User:a READ TOPIC t", id="no rule"),
        pytest.param(
            ["ALLOW User:a READ TOPIC t"], "User:a READ TOPIC t", "User:b READ TOPIC t", id="user"
        ),
        pytest.param(
            ["ALLOW User:a READ TOPIC t"], "", "Group:a READ TOPIC t", id="type of principal"
        ),
        pytest.param(
            ["ALLOW Group:a READ TOPIC t"],
            "Group:a READ TOPIC t",
            "User:a READ TOPIC t",
            id="group",
        ),
        pytest.param(
            ["ALLOW User:a READ TOPIC t"], "User:a READ TOPIC t", "User:a READ TOPIC tt", id="name"
        ),
        pytest.param(
            ["ALLOW User:a READ TOPIC t"], "User:a READ TOPIC t", "User:a READ GROUP t", id="type"
        ),
        pytest.param(
            ["ALLOW User:a READ TOPIC t"], "User:a READ TOPIC t", "User:a WRITE TOPIC t", id="other"
        ),
        pytest.param(
            ["ALLOW User:a@10.0.0.7 READ TOPIC t"],
            "User:a@10.0.0.7 READ TOPIC t",
            "User:a@10.0.0.8 READ TOPIC t",
            id="host",
        ),
        pytest.param(
            ["ALLOW User:* READ TOPIC t"],
            "User:a READ TOPIC t",
            "User:a READ TOPIC u",
            id="everybody",
        ),
        pytest.param(["ALLOW User:* READ TOPIC t"], "Group:g READ TOPIC t", "", id="every type"),
        pytest.param(
            ["ALLOW User:*@10.0.0.7 READ TOPIC t"],
            "User:a@10.0.0.7 READ TOPIC t",
            "User:a READ TOPIC t",
            id="everybody at a host",
        ),
        pytest.param(
            ["ALLOW User:a READ TOPIC *"],
            "User:a READ TOPIC t",
            "User:a READ GROUP t",
            id="wildcard",
        ),
        pytest.param(
            ["ALLOW User:a READ TOPIC ab..."],
            "User:a READ TOPIC abc",
            "User:a READ TOPIC a",
            id="prefix",
        ),
        pytest.param(
            ["ALLOW User:a READ TOPIC ab..."], "User:a READ TOPIC ab", "", id="whole prefix"
        ),
        pytest.param(
            ["ALLOW User:a READ GROUP *..."],
            "User:a READ GROUP *x",
            "User:a READ GROUP x",
            id="a prefix is no wildcard",
        ),
        pytest.param(
            ["ALLOW User:a ALL TOPIC t"], "User:a ALTER_CONFIGS TOPIC t", "", id="all operations"
        ),
        pytest.param(
            ["ALLOW User:a ALL TOPIC t", "DENY User:a WRITE TOPIC t"],
            "User:a READ TOPIC t",
            "User:a WRITE TOPIC t",
            id="deny wins",
        ),
        pytest.param(
            ["ALLOW User:a READ TOPIC t", "DENY User:* READ TOPIC *"],
            "",
            "User:a READ TOPIC t",
            id="a wider deny wins",
        ),
        pytest.param(
            ["ALLOW User:a READ TOPIC abc", "DENY User:a READ TOPIC ab..."],
            "",
            "User:a READ TOPIC abc",
            id="a prefix denies a literal",
        ),
        pytest.param(
            ["ALLOW User:a READ TOPIC t", "DENY User:a ALL TOPIC t"],
            "",
            "User:a DESCRIBE TOPIC t",
            id="deny of all covers each",
        ),
        pytest.param(
            ["ALLOW User:a READ TOPIC t", "DENY User:a@10.0.0.7 READ TOPIC t"],
            "User:a READ TOPIC t",
            "User:a@10.0.0.7 READ TOPIC t",
            id="deny at a host",
        ),
        pytest.param(
            ["ALLOW User:a DESCRIBE TOPIC t", "DENY User:a READ TOPIC t"],
            "User:a DESCRIBE TOPIC t",
            "User:a READ TOPIC t",
            id="a deny implies nothing",
        ),
        pytest.param(
            ["ALLOW User:a ALTER_CONFIGS TOPIC t"],
            "User:a DESCRIBE_CONFIGS TOPIC t",
            "User:a DESCRIBE TOPIC t",
            id="configs",
        ),
        pytest.param(
            ["ALLOW User:a DESCRIBE TOPIC t"], "", "User:a READ TOPIC t", id="not the other way"
        ),
    ],
)
def test_a_decision_is_that_of_the_rules(rules: list[str], allowed: str, denied: str) -> None:
    authorizer = RuledAuthorizer(*rules)
    assert not allowed or authorizer.allows(allowed)
    assert not denied or not authorizer.allows(denied)


@pytest.mark.parametrize("operation", list(Operation))
def test_what_implies_describing(operation: Operation) -> None:
    authorizer = RuledAuthorizer(f"ALLOW User:a {operation.name} TOPIC t")
    implying = {"ALL", "DESCRIBE", "READ", "WRITE", "DELETE", "ALTER"}
    assert authorizer.allows("User:a DESCRIBE TOPIC t") == (operation.name in implying)


def test_a_super_user_may_do_what_is_denied() -> None:
    authorizer = RuledAuthorizer(
        "DENY User:* ALL TOPIC *", super_users=" User:root ;; User:CN=b,O=c; "
    )
    for user in ("User:root", "User:CN=b,O=c"):
        assert authorizer.allows(f"{user} WRITE TOPIC t")
        assert authorizer.allows_some(f"{user} WRITE TOPIC")
    assert not authorizer.allows("Group:root WRITE TOPIC t")


def test_a_resource_without_rules_may_be_open_to_everyone() -> None:
    authorizer = RuledAuthorizer(
        "ALLOW User:a READ TOPIC t", "DENY User:a READ GROUP g...", **EVERYONE
    )
    assert authorizer.allows("User:b READ TOPIC u")
    assert authorizer.allows_some("User:b READ TOPIC")
    # A rule of anyone for the resource closes it to the others.
    assert not authorizer.allows("User:b READ TOPIC t")
    assert not authorizer.allows("User:b READ GROUP g1")
    authorizer.add("ALLOW User:a READ TOPIC *")
    assert not authorizer.allows("User:b READ TOPIC u")


def test_before_the_first_image_only_super_users_are_allowed() -> None:
    ruled = RuledAuthorizer(super_users="User:root", **EVERYONE)
    ruled.authorizer = StandardAuthorizer(
        {"super.users": "User:root", "allow.everyone.if.no.acl.found": "true"}, ruled.log(0)
    )
    assert ruled.allows("User:root READ TOPIC t")
    assert ruled.allows_some("User:root READ TOPIC")
    assert not ruled.allows("User:a READ TOPIC t")
    assert not ruled.allows_some("User:a READ TOPIC")
    ruled.add()
    assert ruled.allows("User:a READ TOPIC t")
    assert ruled.allows_some("User:a READ TOPIC")


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("super.users", "root", "super.users: 'root' is no principal: write TYPE:NAME.*by ;"),
        ("super.users", "User:a,b;c", "super.users: 'c' is no principal"),
        ("allow.everyone.if.no.acl.found", "yes", "must be true or false, not 'yes'"),
    ],
)
def test_a_configuration_that_cannot_be_used(key: str, value: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        StandardAuthorizer({key: value}, RuledAuthorizer().log(0))


# --- changes --------------------------------------------------------------------------------------


def test_no_decision_outlives_the_rules() -> None:
    authorizer = RuledAuthorizer("ALLOW User:a READ TOPIC t")
    assert authorizer.allows("User:a READ TOPIC t")
    assert authorizer.allows_some("User:a READ TOPIC")
    authorizer.add("DENY User:a READ TOPIC t")
    assert not authorizer.allows("User:a READ TOPIC t")
    assert not authorizer.allows_some("User:a READ TOPIC")
    authorizer.remove("DENY User:a READ TOPIC t")
    assert authorizer.allows("User:a READ TOPIC t")
    assert authorizer.allows_some("User:a READ TOPIC")
    authorizer.remove("ALLOW User:a READ TOPIC t")
    assert not authorizer.allows("User:a READ TOPIC t")
    assert not authorizer.allows_some("User:a READ TOPIC")


def test_decisions_are_kept_while_the_rules_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    authorizer = RuledAuthorizer("ALLOW User:a READ TOPIC t")
    assert authorizer.allows("User:a READ TOPIC t")
    authorizer.commit([NoOpRecord()])
    monkeypatch.setattr(RuleIndex, "decide", None)
    assert authorizer.allows("User:a READ TOPIC t")


def test_few_decisions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_standard, "DECISIONS_MAX", 10)
    ruled = RuledAuthorizer("ALLOW User:a READ TOPIC t1...")
    for number in range(25):
        assert ruled.allows(f"User:a READ TOPIC t{number}") == str(number).startswith("1")
        assert not ruled.allows_some(f"User:u{number} READ TOPIC")
    assert len(ruled.authorizer._decisions) <= 10
    assert len(ruled.authorizer._by_type) <= 10


def test_an_image_of_another_line_is_read_whole() -> None:
    authorizer = RuledAuthorizer("ALLOW User:a READ TOPIC t", "ALLOW User:a READ TOPIC u")
    authorizer.image = EMPTY_IMAGE
    authorizer.add("ALLOW User:a READ TOPIC v")
    assert not authorizer.allows("User:a READ TOPIC t")
    assert authorizer.allows("User:a READ TOPIC v")


def test_an_entry_that_says_something_else_replaces_the_former() -> None:
    authorizer = RuledAuthorizer("ALLOW User:a READ TOPIC t")
    former = authorizer.image.acls[rule("ALLOW User:a READ TOPIC t").entry_id]
    latter = rule("ALLOW User:b READ TOPIC t")
    object.__setattr__(latter, "entry_id", former.entry_id)
    authorizer.commit([latter])
    assert not authorizer.allows("User:a READ TOPIC t")
    assert authorizer.allows("User:b READ TOPIC t")


def test_a_rule_that_two_entries_have_goes_with_the_last() -> None:
    entries = [rule("ALLOW User:a READ TOPIC t") for _ in range(3)]
    for number, entry in enumerate(entries):
        object.__setattr__(entry, "entry_id", rule(f"ALLOW User:{number} READ TOPIC t").entry_id)
    authorizer = RuledAuthorizer()
    authorizer.commit(entries)
    for entry in entries:
        assert authorizer.allows("User:a READ TOPIC t")
        authorizer.commit([RemoveAccessControlEntryRecord(entry.entry_id)])
    assert not authorizer.allows("User:a READ TOPIC t")


def test_nothing_is_left_of_rules_that_are_gone() -> None:
    rules = [
        f"{permission} User:{user} {operation} TOPIC {name}"
        for permission in ("ALLOW", "DENY")
        for user in ("a", "b@10.0.0.7", "*")
        for operation in ("READ", "WRITE")
        for name in ("t", "*", "t...", "tt...")
    ]
    authorizer = RuledAuthorizer(*rules)
    index = authorizer.authorizer._index
    assert len(index) == len(rules)
    authorizer.remove(*rules[::2])
    authorizer.remove(*rules[1::2])
    of_type = index._types[ResourceType.TOPIC]
    assert [*index.rules()] == []
    assert (of_type._literal, of_type._prefixes, of_type._allowed) == ({}, {}, {})


def test_the_index_refuses_what_it_does_not_have() -> None:
    index = RuleIndex([rule("ALLOW User:a READ TOPIC t")])
    for text in (
        "ALLOW User:a WRITE TOPIC t",
        "DENY User:a READ TOPIC t",
        "ALLOW User:b READ TOPIC t",
        "ALLOW User:a READ TOPIC t...",
        "ALLOW User:a READ GROUP t",
    ):
        with pytest.raises(InvariantViolation, match="a rule that is removed was added"):
            index.remove(rule(text))


def test_a_change_that_is_not_the_image_s_is_found() -> None:
    authorizer = RuledAuthorizer("ALLOW User:a READ TOPIC t")
    delta = MetadataDelta(authorizer.image)
    delta.replay(rule("ALLOW User:a READ TOPIC u"), 9)
    image = delta.apply(9, 1, 0)
    delta.changed_acls.clear()
    with pytest.raises(InvariantViolation, match="the index has the rules of the image"):
        authorizer.authorizer.publish(delta, image)


# --- some resource of a type ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        pytest.param([], False, id="no rule"),
        pytest.param(["ALLOW User:a WRITE TOPIC t"], True, id="literal"),
        pytest.param(["ALLOW User:a WRITE TOPIC t..."], True, id="prefix"),
        pytest.param(["ALLOW User:a WRITE TOPIC *"], True, id="wildcard"),
        pytest.param(["ALLOW User:* ALL TOPIC t"], True, id="all of everybody"),
        pytest.param(["ALLOW User:b WRITE TOPIC t"], False, id="of another"),
        pytest.param(["ALLOW User:a@10.0.0.7 WRITE TOPIC t"], False, id="at another host"),
        pytest.param(["ALLOW User:a WRITE GROUP t"], False, id="of another type"),
        pytest.param(["ALLOW User:a READ TOPIC t"], False, id="another operation"),
        pytest.param(
            ["ALLOW User:a WRITE TOPIC t", "DENY User:* WRITE TOPIC t"], False, id="the same denied"
        ),
        pytest.param(
            ["ALLOW User:a WRITE TOPIC t...", "DENY User:a WRITE TOPIC t"],
            True,
            id="a literal denies one of many",
        ),
        pytest.param(
            ["ALLOW User:a WRITE TOPIC tu", "DENY User:a ALL TOPIC t..."],
            False,
            id="a prefix denies a literal",
        ),
        pytest.param(
            ["ALLOW User:a WRITE TOPIC tu...", "DENY User:a WRITE TOPIC t..."],
            False,
            id="a prefix denies a longer one",
        ),
        pytest.param(
            ["ALLOW User:a WRITE TOPIC t...", "DENY User:a WRITE TOPIC t..."],
            False,
            id="a prefix denies itself",
        ),
        pytest.param(
            ["ALLOW User:a WRITE TOPIC t...", "DENY User:a WRITE TOPIC tu..."],
            True,
            id="a longer prefix denies some",
        ),
        pytest.param(
            ["ALLOW User:a WRITE TOPIC t", "DENY User:a WRITE TOPIC *"], False, id="all denied"
        ),
        pytest.param(
            ["ALLOW User:a WRITE TOPIC *", "DENY User:a WRITE TOPIC h..."], True, id="some denied"
        ),
        pytest.param(
            ["ALLOW User:a WRITE TOPIC t", "DENY User:b WRITE TOPIC *"], True, id="another denied"
        ),
        pytest.param(
            ["ALLOW User:a WRITE TOPIC t", "ALLOW User:a WRITE TOPIC u", "DENY User:a ALL TOPIC t"],
            True,
            id="one of two denied",
        ),
    ],
)
def test_whether_something_of_a_type_is_allowed(rules: list[str], allowed: bool) -> None:
    assert RuledAuthorizer(*rules).allows_some("User:a WRITE TOPIC") == allowed


def test_an_implied_operation_counts_on_a_name_alone() -> None:
    """As with Apache Kafka: it first asks for a name, where implied operations count."""
    assert not RuledAuthorizer("ALLOW User:a WRITE TOPIC t").allows_some("User:a DESCRIBE TOPIC")
    assert RuledAuthorizer("ALLOW User:a WRITE TOPIC *").allows_some("User:a DESCRIBE TOPIC")


# --- the audit log --------------------------------------------------------------------------------


def test_the_audit_log_names_the_rule_or_the_reason() -> None:
    ruled = RuledAuthorizer(
        "ALLOW User:a READ TOPIC t...",
        "DENY User:*@10.0.0.7 ALL TOPIC *",
        super_users="User:root",
    )
    for text in (
        "User:a READ TOPIC tu",
        "User:a@10.0.0.7 READ TOPIC tu",
        "User:a@10.0.0.7 READ TOPIC tu",
        "User:a WRITE TOPIC tu",
        "User:a WRITE GROUP g",
        "User:root WRITE GROUP g",
    ):
        ruled.allows(text)
    assert ruled.lines[0] == {
        "level": "debug",
        "event": "access_allowed",
        "principal": "User:a",
        "host": "127.0.0.1",
        "operation": "READ",
        "resource": "TOPIC:LITERAL:tu",
        "because": "ALLOW User:a READ from * on TOPIC:PREFIXED:t",
    }
    denied = "DENY User:* ALL from 10.0.0.7 on TOPIC:LITERAL:*"
    assert [(line["level"], line["because"]) for line in ruled.lines[1:]] == [
        ("info", denied),
        ("info", denied),
        ("info", "no rule of the resource allows it"),
        ("info", "no rule for the resource"),
        ("debug", "super user"),
    ]
    ruled.lines.clear()
    assert ruled.allows_some("User:a READ TOPIC")
    assert not ruled.allows_some("User:a WRITE TOPIC")
    assert [(line["level"], line["resource"], line["because"]) for line in ruled.lines] == [
        ("debug", "some TOPIC", "ALLOW User:a READ from * on TOPIC:PREFIXED:t"),
        ("info", "some TOPIC", "no rule allows it on any resource of the type"),
    ]


def test_the_audit_log_has_only_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ruled = RuledAuthorizer("ALLOW User:a READ TOPIC t")
    for name in ("t", "u"):
        action = Action(Operation.READ, ResourceType.TOPIC, name)
        for logs in (False, True):
            shown = action._replace(log_if_allowed=logs, log_if_denied=logs)
            allowed = ruled.authorizer.authorize(requester("User:a"), shown)
            assert allowed == (name == "t")
    assert [line["event"] for line in ruled.lines] == ["access_allowed", "access_denied"]
    # A line that the level leaves out is not made.
    monkeypatch.setattr(StandardAuthorizer, "_write", None)
    quiet = StandardAuthorizer({}, ruled.log(logging.WARNING))
    quiet.publish(MetadataDelta(EMPTY_IMAGE), EMPTY_IMAGE)
    assert not quiet.authorize(requester("User:a"), action)
    assert not quiet.authorize_by_resource_type(requester("User:a"), *action[:2])
    assert len(ruled.lines) == 2
