"""Quotas, access control lists and credentials through `dispatch`."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from broker.protocol.versions import SERVED, ApiKey
from raftctl.errors import ErrorCode
from raftctl.metadata.requests.security import AclBinding, CreateAclsRequest
from tests.unit.broker.apis.asking import ask
from tests.unit.broker.apis.controlled import ControlledBroker

pytestmark = pytest.mark.req("N1", "C12")


@pytest.fixture
def broker() -> ControlledBroker:
    """Nothing is set."""
    return ControlledBroker()


# --- quotas ---------------------------------------------------------------------------------------


def quota(key: str, value: float | None, **entity: str | None) -> dict[str, Any]:
    return {
        "entity": [
            {"entity_type": kind.replace("_", "-"), "entity_name": name}
            for kind, name in entity.items()
        ],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None}],
    }


@pytest.mark.parametrize("version", SERVED[ApiKey.ALTER_CLIENT_QUOTAS])
async def test_quotas(broker: ControlledBroker, version: int) -> None:
    entries = [
        quota("producer_byte_rate", 10.0, user="a"),
        quota("producer_byte_rate", 20.0, user=None),
        quota("request_percentage", 5.5, user="a", client_id="c"),
        quota("no_such_quota", 1.0, user="b"),
    ]
    answer = await ask(broker, 49, version, {"entries": entries, "validate_only": False})
    errors = [one["error_code"] for one in answer["entries"]]
    assert errors == [0, 0, 0, ErrorCode.INVALID_REQUEST]

    async def found(strict: bool, *components: tuple[str, int, str | None]) -> list[float]:
        message = {
            "components": [
                {"entity_type": kind, "match_type": match_type, "match": name}
                for kind, match_type, name in components
            ],
            "strict": strict,
        }
        described = await ask(broker, 48, version, message)
        assert described["error_code"] == 0
        return [value["value"] for entry in described["entries"] for value in entry["values"]]

    assert await found(False) == [5.5, 20.0, 10.0]
    assert await found(False, ("user", 0, "a")) == [5.5, 10.0]
    assert await found(True, ("user", 0, "a")) == [10.0]
    assert await found(True, ("user", 1, None)) == [20.0]
    assert await found(True, ("user", 2, None)) == [20.0, 10.0]
    assert await found(False, ("client-id", 2, None)) == [5.5]
    assert await found(False, ("user", 0, "nobody")) == []


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 2, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 0, "a"), ("user", 0, "b")], ErrorCode.INVALID_REQUEST),
        ([("ip", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("nothing", 0, "a")], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_a_filter_that_means_nothing(
    broker: ControlledBroker, components: list[tuple[str, int, str | None]], error: ErrorCode
) -> None:
    named = [
        {"entity_type": kind, "match_type": match_type, "match": name}
        for kind, match_type, name in components
    ]
    answer = await ask(broker, 48, 1, {"components": named, "strict": False})
    assert answer["error_code"] == error
    assert answer["entries"] is None


# --- access control lists -------------------------------------------------------------------------

ANYTHING = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def rule(principal: str, operation: int, name: str = "t") -> dict[str, Any]:
    return {
        "resource_type": 2,
        "resource_name": name,
        "resource_pattern_type": 3,
        "principal": principal,
        "host": "*",
        "operation": operation,
        "permission_type": 3,
    }


@pytest.mark.parametrize("version", SERVED[ApiKey.CREATE_ACLS])
async def test_rules(broker: ControlledBroker, version: int) -> None:
    creations = [rule("User:a", 3), rule("User:a", 4), rule("nobody", 3), rule("User:b", 3, "u")]
    results = (await ask(broker, 30, version, {"creations": creations}))["results"]
    assert [one["error_code"] for one in results] == [0, 0, ErrorCode.INVALID_REQUEST, 0]
    resources = (await ask(broker, 29, version, ANYTHING))["resources"]
    assert [(one["resource_name"], len(one["acls"])) for one in resources] == [("t", 2), ("u", 1)]
    assert resources[0]["acls"][0] == {
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    of_a = ANYTHING | {"principal_filter": "User:a"}
    (gone,) = (await ask(broker, 31, version, {"filters": [of_a]}))["filter_results"]
    assert gone["error_code"] == 0
    assert sorted(one["operation"] for one in gone["matching_acls"]) == [3, 4]
    (left,) = (await ask(broker, 29, version, ANYTHING))["resources"]
    assert left["resource_name"] == "u"


@pytest.mark.req("S4", "S6")
async def test_rules_on_keys_are_not_for_kafkas_clients(broker: ControlledBroker) -> None:
    of_key = AclBinding(100, "app/", 4, "User:a", "*", 3, 3)
    broker.cluster.handle(CreateAclsRequest((of_key,)))
    broker.publish()
    keys = ANYTHING | {"resource_type_filter": 100}
    for wanted in (ANYTHING, keys):
        assert (await ask(broker, 29, 3, wanted))["resources"] == []
        (none,) = (await ask(broker, 31, 3, {"filters": [wanted]}))["filter_results"]
        assert none["matching_acls"] == []
    made = await ask(broker, 30, 3, {"creations": [rule("User:a", 3) | {"resource_type": 100}]})
    assert [one["error_code"] for one in made["results"]] == [ErrorCode.INVALID_REQUEST]
    assert len(broker.cluster.image.acls) == 1


async def test_rules_that_nobody_enforces_are_refused() -> None:
    broker = ControlledBroker(authorizes=False)
    disabled = ErrorCode.SECURITY_DISABLED
    created = await ask(broker, 30, 3, {"creations": [rule("User:a", 3), rule("User:b", 3)]})
    assert [one["error_code"] for one in created["results"]] == [disabled, disabled]
    assert "protect nothing" in created["results"][0]["error_message"]
    described = await ask(broker, 29, 3, ANYTHING)
    assert (described["error_code"], described["resources"]) == (disabled, [])
    (deleted,) = (await ask(broker, 31, 3, {"filters": [ANYTHING]}))["filter_results"]
    assert (deleted["error_code"], deleted["matching_acls"]) == (disabled, [])
    assert not broker.cluster.image.acls


# --- credentials ----------------------------------------------------------------------------------


async def test_credentials(broker: ControlledBroker) -> None:
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", b"salt", 4096)
    upsertion = {
        "name": "alice",
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"salt",
        "salted_password": salted,
    }
    deletion = {"name": "bob", "mechanism": 1}
    request = {"deletions": [deletion], "upsertions": [upsertion]}
    results = (await ask(broker, 51, 0, request))["results"]
    assert [(one["user"], one["error_code"]) for one in results] == [
        ("bob", ErrorCode.RESOURCE_NOT_FOUND),
        ("alice", 0),
    ]
    (alice,) = (await ask(broker, 50, 0, {"users": None}))["results"]
    assert (alice["user"], alice["error_code"]) == ("alice", 0)
    assert alice["credential_infos"] == [{"mechanism": 1, "iterations": 4096}]
    users = [{"name": "bob"}, {"name": "alice"}, {"name": "alice"}]
    results = (await ask(broker, 50, 0, {"users": users}))["results"]
    assert [(one["user"], one["error_code"]) for one in results] == [
        ("bob", ErrorCode.RESOURCE_NOT_FOUND),
        ("alice", ErrorCode.DUPLICATE_RESOURCE),
    ]


@pytest.mark.parametrize("key", [29, 30, 31, 48, 49, 50, 51])
async def test_a_controller_that_refuses(
    broker: ControlledBroker, monkeypatch: pytest.MonkeyPatch, key: int
) -> None:
    from raftctl.errors import KafkaError

    async def call(*_: object) -> None:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    monkeypatch.setattr(broker, "call", call)
    message = {
        **ANYTHING,
        "creations": [rule("User:a", 3)],
        "filters": [ANYTHING],
        "entries": [quota("producer_byte_rate", 1.0, user="a")],
        "components": [],
        "strict": False,
        "validate_only": False,
        "users": None,
        "deletions": [{"name": "bob", "mechanism": 1}],
        "upsertions": [],
    }
    answer = await ask(broker, key, SERVED[key][-1], message)
    results = answer.get("results") or answer.get("entries") or answer.get("filter_results")
    errors = [one["error_code"] for one in results or [answer]]
    reads_its_own_image = key in (29, 48, 50)
    assert errors == [0 if reads_its_own_image else ErrorCode.REQUEST_TIMED_OUT]
