"""Client quotas, access control lists and SCRAM credentials as metadata."""

from __future__ import annotations

import hashlib
import hmac
import math

import pytest

from raftctl.errors import ErrorCode
from raftctl.metadata.acls import matches
from raftctl.metadata.features import KEY_RULES_LEVEL, METADATA_VERSION_FEATURE
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta
from raftctl.metadata.requests.admin import (
    SAFE_DOWNGRADE,
    AdminResponse,
    FeatureUpdate,
    UpdateFeaturesRequest,
)
from raftctl.metadata.requests.security import (
    AclBinding,
    AclFilter,
    AlterClientQuotasRequest,
    AlterScramRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DeleteAclsResponse,
    QuotaAlteration,
    ScramDeletion,
    ScramUpsertion,
)
from tests.kit.deltas import delta_between
from tests.unit.raftctl.controller.cluster import Cluster

pytestmark = pytest.mark.req("C12")
Entity = tuple[tuple[str, "str | None"], ...]
ALICE: Entity = (("user", "alice"),)


@pytest.fixture
def cluster() -> Cluster:
    """Without brokers: nothing here concerns them."""
    return Cluster()


# --- quotas ---------------------------------------------------------------------------------------


def alter(
    cluster: Cluster, entity: Entity, key: str, value: float | None, *, dry: bool = False
) -> ErrorCode:
    wanted = QuotaAlteration(entity, ((key, value),))
    (outcome,) = cluster.admin(AlterClientQuotasRequest((wanted,), dry))
    assert bool(outcome.error) == bool(outcome.message)
    return outcome.error


@pytest.mark.parametrize("name", ["192.0.2.7", "2001:db8::1", None])
def test_an_address_has_a_quota_of_its_own_kind_alone(cluster: Cluster, name: str | None) -> None:
    entity: Entity = (("ip", name),)
    rate = "connection_creation_rate"
    for value in (1.0, 5.0, 2.0**31 - 1):
        assert alter(cluster, entity, rate, value) == ErrorCode.NONE
        assert dict(cluster.image.client_quotas[entity]) == {rate: value}
    for key, wrong in ((rate, 2.0**31), (rate, 0.0), (rate, 1.5), ("producer_byte_rate", 5.0)):
        assert alter(cluster, entity, key, wrong) == ErrorCode.INVALID_REQUEST
    both: Entity = (("ip", name), ("user", "alice"))
    assert alter(cluster, both, rate, 5.0) == ErrorCode.INVALID_REQUEST
    assert alter(cluster, (("ip", "300.1.2.3"),), rate, 5.0) == ErrorCode.INVALID_REQUEST
    assert alter(cluster, ALICE, rate, 5.0) == ErrorCode.INVALID_REQUEST
    assert alter(cluster, ALICE, "producer_byte_rate", 2.0**31) == ErrorCode.NONE


def test_quotas_are_set_changed_and_removed(cluster: Cluster) -> None:
    assert alter(cluster, ALICE, "producer_byte_rate", 1000.0, dry=True) == ErrorCode.NONE
    assert not cluster.image.client_quotas
    assert alter(cluster, ALICE, "producer_byte_rate", 1000.0) == ErrorCode.NONE
    assert alter(cluster, ALICE, "request_percentage", 12.5) == ErrorCode.NONE
    assert dict(cluster.image.client_quotas[ALICE]) == {
        "producer_byte_rate": 1000.0,
        "request_percentage": 12.5,
    }
    before = cluster.image
    assert alter(cluster, ALICE, "request_percentage", 12.5) == ErrorCode.NONE
    assert cluster.image is before
    for key in ("producer_byte_rate", "request_percentage", "consumer_byte_rate"):
        assert alter(cluster, ALICE, key, None) == ErrorCode.NONE
    assert not cluster.image.client_quotas


def test_an_entity_is_the_same_in_every_order(cluster: Cluster) -> None:
    alter(cluster, (("user", None), ("client-id", "c")), "producer_byte_rate", 1.0)
    alter(cluster, (("client-id", "c"), ("user", None)), "producer_byte_rate", 2.0)
    ((entity, quotas),) = cluster.image.client_quotas.items()
    assert entity == (("client-id", "c"), ("user", None))
    assert dict(quotas) == {"producer_byte_rate": 2.0}


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        ((), "producer_byte_rate", 1.0),
        ((("user", "a"), ("user", "b")), "producer_byte_rate", 1.0),
        ((("user", ""),), "producer_byte_rate", 1.0),
        ((("host", "a"),), "producer_byte_rate", 1.0),
        ((("user", "a"), ("ip", "1.2.3.4")), "connection_creation_rate", 1.0),
        ((("ip", "nowhere"),), "connection_creation_rate", 1.0),
        ((("ip", "1.2.3.4"),), "connection_creation_rate", 2.0**31),
        ((("ip", "1.2.3.4"),), "producer_byte_rate", 1.0),
        (ALICE, "connection_creation_rate", 1.0),
        (ALICE, "no_such_quota", 1.0),
        (ALICE, "producer_byte_rate", 0.0),
        (ALICE, "producer_byte_rate", 1.5),
        (ALICE, "request_percentage", -1.0),
        (ALICE, "request_percentage", math.nan),
        (ALICE, "request_percentage", math.inf),
    ],
)
def test_bad_quotas(cluster: Cluster, entity: Entity, key: str, value: float) -> None:
    before = cluster.image
    assert alter(cluster, entity, key, value) == ErrorCode.INVALID_REQUEST
    assert cluster.image is before


def test_what_is_named_twice_is_refused(cluster: Cluster) -> None:
    key = ("producer_byte_rate", 1.0)
    twice = QuotaAlteration(ALICE, (key, key))
    (outcome,) = cluster.admin(AlterClientQuotasRequest((twice,)))
    assert outcome.error == ErrorCode.INVALID_REQUEST
    once = QuotaAlteration(ALICE, (key,))
    outcomes = cluster.admin(AlterClientQuotasRequest((once, once)))
    assert [one.error for one in outcomes] == [ErrorCode.INVALID_REQUEST] * 2


# --- access control lists -------------------------------------------------------------------------

READ_T = AclBinding(2, "t", 3, "User:alice", "*", 3, 3)
WRITE_PREFIX = AclBinding(2, "te", 4, "User:bob", "*", 4, 3)
DENY_ALL = AclBinding(2, "*", 3, "User:eve", "10.0.0.1", 2, 2)
ANYTHING = AclFilter(1, None, 1, None, None, 1, 1)


def created(cluster: Cluster, *bindings: AclBinding) -> list[ErrorCode]:
    return [one.error for one in cluster.admin(CreateAclsRequest(bindings))]


def deleted(cluster: Cluster, *filters: AclFilter) -> DeleteAclsResponse:
    response = cluster.handle(DeleteAclsRequest(filters))
    assert isinstance(response, DeleteAclsResponse)
    return response


def test_rules_are_added_once_and_removed_by_filters(cluster: Cluster) -> None:
    assert created(cluster, READ_T, WRITE_PREFIX, READ_T) == [ErrorCode.NONE] * 3
    assert created(cluster, READ_T, DENY_ALL) == [ErrorCode.NONE] * 2
    assert len(cluster.image.acls) == 3
    alice = AclFilter(1, None, 1, "User:alice", None, 1, 1)
    response = deleted(cluster, alice, ANYTHING)
    first, rest = response.results
    assert first.bindings == (READ_T,)
    assert sorted(one.principal for one in rest.bindings) == ["User:bob", "User:eve"]
    assert not cluster.image.acls
    assert deleted(cluster, ANYTHING).results[0].bindings == ()


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        (1, None, {READ_T, WRITE_PREFIX, DENY_ALL}),
        (3, "t", {READ_T}),
        (4, "te", {WRITE_PREFIX}),
        (4, "test", set()),
        (2, "test", {WRITE_PREFIX, DENY_ALL}),
        (2, "t", {READ_T, DENY_ALL}),
        (3, None, {READ_T, DENY_ALL}),
    ],
)
def test_what_a_filter_means(pattern: int, name: str | None, expected: set[AclBinding]) -> None:
    wanted = AclFilter(2, name, pattern, None, None, 1, 1)
    rules = (READ_T, WRITE_PREFIX, DENY_ALL)
    assert {one for one in rules if matches(wanted, one)} == expected
    other = AclFilter(3, name, pattern, None, None, 1, 1)
    assert not any(matches(other, one) for one in rules)


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (AclBinding(1, "t", 3, "User:a", "*", 3, 3), "resource_type"),
        (AclBinding(2, "t", 2, "User:a", "*", 3, 3), "pattern_type"),
        (AclBinding(2, "", 3, "User:a", "*", 3, 3), "resource_name"),
        (AclBinding(2, "t", 3, "alice", "*", 3, 3), "principal"),
        (AclBinding(2, "t", 3, "User:a", "", 3, 3), "host"),
        (AclBinding(2, "t", 3, "User:a", "*", 1, 3), "operation"),
        (AclBinding(2, "t", 3, "User:a", "*", 3, 1), "permission_type"),
        (AclBinding(4, "my-cluster", 3, "User:a", "*", 3, 3), "kafka-cluster"),
        (AclBinding(100, "t", 3, "User:a", "*", 5, 3), "READ, WRITE or ALL"),
        (AclBinding(2, "t" * 40_000, 3, "User:a", "*", 3, 3), "longer"),
    ],
)
def test_bad_rules(cluster: Cluster, bad: AclBinding, told: str) -> None:
    refused, taken = cluster.admin(CreateAclsRequest((bad, READ_T)))
    assert (refused.error, taken.error) == (ErrorCode.INVALID_REQUEST, ErrorCode.NONE)
    assert told in refused.message
    assert len(cluster.image.acls) == 1


@pytest.mark.req("S6")
def test_rules_on_keys_are_for_filters_that_name_them(cluster: Cluster) -> None:
    of_key = AclBinding(100, "app/", 4, "User:alice", "*", 3, 3)
    assert created(cluster, of_key, READ_T) == [ErrorCode.NONE] * 2
    assert deleted(cluster, ANYTHING).results[0].bindings == (READ_T,)
    keys = AclFilter(100, None, 1, None, None, 1, 1)
    assert deleted(cluster, keys).results[0].bindings == (of_key,)


@pytest.mark.req("S6", "C11")
def test_rules_on_keys_need_a_level_that_has_them(cluster: Cluster) -> None:
    of_key = AclBinding(100, "app/", 4, "User:alice", "*", 3, 3)
    created(cluster, of_key)
    down = FeatureUpdate(METADATA_VERSION_FEATURE, KEY_RULES_LEVEL - 1, SAFE_DOWNGRADE)
    refused = cluster.handle(UpdateFeaturesRequest((down,)))
    assert isinstance(refused, AdminResponse)
    assert refused.error == ErrorCode.INVALID_UPDATE_VERSION
    assert "rules on keys" in refused.message
    deleted(cluster, AclFilter(100, None, 1, None, None, 1, 1))
    cluster.admin(UpdateFeaturesRequest((down,)))
    assert created(cluster, of_key, READ_T) == [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.NONE]


def test_a_filter_that_means_nothing(cluster: Cluster) -> None:
    created(cluster, READ_T)
    bad = AclFilter(1, None, 0, None, None, 1, 1)
    first, second = deleted(cluster, bad, ANYTHING).results
    assert (first.error, first.bindings) == (ErrorCode.INVALID_REQUEST, ())
    assert second.bindings == (READ_T,)


# --- SCRAM ----------------------------------------------------------------------------------------


def credential(user: str, mechanism: int = 1, password: bytes = b"pencil") -> ScramUpsertion:
    """RFC 5802: the salted password is PBKDF2 of the password."""
    digest = {1: "sha256", 2: "sha512"}.get(mechanism, "sha256")
    salted = hashlib.pbkdf2_hmac(digest, password, b"salt", 4096)
    return ScramUpsertion(user, mechanism, 4096, b"salt", salted)


def scram(cluster: Cluster, *changes: ScramUpsertion | ScramDeletion) -> list[ErrorCode]:
    deletions = tuple(one for one in changes if isinstance(one, ScramDeletion))
    upsertions = tuple(one for one in changes if isinstance(one, ScramUpsertion))
    outcomes = cluster.admin(AlterScramRequest(deletions, upsertions))
    return [one.error for one in outcomes]


def test_a_credential_checks_a_password_without_holding_it(cluster: Cluster) -> None:
    """The server's half of RFC 5802: the client's proof, with its key out, hashes to the stored."""
    assert scram(cluster, credential("alice")) == [ErrorCode.NONE]
    kept = cluster.image.scram["alice", 1]
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", kept.salt, kept.iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    assert hashlib.sha256(client_key).digest() == kept.stored_key
    assert hmac.digest(salted, b"Server Key", "sha256") == kept.server_key
    assert salted not in (kept.salt, kept.stored_key, kept.server_key)
    assert "salted_password" not in repr(credential("alice"))


def test_credentials_are_replaced_and_removed(cluster: Cluster) -> None:
    scram(cluster, credential("alice"), credential("alice", 2), credential("bob"))
    assert sorted(cluster.image.scram) == [("alice", 1), ("alice", 2), ("bob", 1)]
    old = cluster.image.scram["bob", 1]
    changes = (ScramDeletion("alice", 1), credential("bob", password=b"pen"))
    assert scram(cluster, *changes) == [ErrorCode.NONE] * 2
    assert sorted(cluster.image.scram) == [("alice", 2), ("bob", 1)]
    assert cluster.image.scram["bob", 1] != old


@pytest.mark.parametrize(
    ("error", "changes"),
    [
        (ErrorCode.RESOURCE_NOT_FOUND, (ScramDeletion("eve", 1),)),
        (ErrorCode.UNSUPPORTED_SASL_MECHANISM, (ScramDeletion("eve", 3),)),
        (ErrorCode.DUPLICATE_RESOURCE, (credential("eve"), credential("eve"))),
        (ErrorCode.DUPLICATE_RESOURCE, (ScramDeletion("eve", 1), credential("eve"))),
        (ErrorCode.UNACCEPTABLE_CREDENTIAL, (credential(""),)),
        (ErrorCode.UNACCEPTABLE_CREDENTIAL, (ScramUpsertion("eve", 1, 4095, b"s", b"x" * 32),)),
        (ErrorCode.UNACCEPTABLE_CREDENTIAL, (ScramUpsertion("eve", 1, 16385, b"s", b"x" * 32),)),
        (ErrorCode.UNACCEPTABLE_CREDENTIAL, (ScramUpsertion("eve", 1, 4096, b"", b"x" * 32),)),
        (ErrorCode.UNACCEPTABLE_CREDENTIAL, (ScramUpsertion("eve", 2, 4096, b"s", b"x" * 32),)),
    ],
)
def test_bad_credentials(
    cluster: Cluster, error: ErrorCode, changes: tuple[ScramUpsertion | ScramDeletion, ...]
) -> None:
    assert set(scram(cluster, *changes, credential("alice"))) == {error, ErrorCode.NONE}
    assert list(cluster.image.scram) == [("alice", 1)]


# --- all of them ----------------------------------------------------------------------------------


def filled(cluster: Cluster) -> Cluster:
    alter(cluster, ALICE, "producer_byte_rate", 1.0)
    alter(cluster, (("user", None),), "producer_byte_rate", 2.0)
    created(cluster, READ_T, DENY_ALL)
    scram(cluster, credential("alice"), credential("bob", 2))
    return cluster


def test_a_snapshot_holds_them(cluster: Cluster) -> None:
    image = filled(cluster).image
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in image.records():
        delta.replay(record, image.offset)
    loaded = delta.apply(image.offset, image.epoch, image.timestamp_ms)
    assert loaded == image


def test_a_replica_that_fetched_a_snapshot_learns_what_is_gone(cluster: Cluster) -> None:
    old = filled(cluster).image
    alter(cluster, ALICE, "producer_byte_rate", None)
    deleted(cluster, AclFilter(1, None, 1, "User:eve", None, 1, 1))
    scram(cluster, ScramDeletion("bob", 2))
    new = cluster.image
    assert delta_between(old, new).apply(new.offset, new.epoch, new.timestamp_ms) == new


@pytest.mark.req("C11")
def test_a_lower_level_has_no_place_for_them(cluster: Cluster) -> None:
    down = FeatureUpdate(METADATA_VERSION_FEATURE, 1, SAFE_DOWNGRADE)
    cluster.admin(UpdateFeaturesRequest((down,)))
    assert alter(cluster, ALICE, "producer_byte_rate", 1.0) == ErrorCode.UNSUPPORTED_VERSION
    assert created(cluster, READ_T) == [ErrorCode.UNSUPPORTED_VERSION]
    assert scram(cluster, credential("alice")) == [ErrorCode.UNSUPPORTED_VERSION]
