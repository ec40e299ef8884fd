"""Delegation tokens on the controller: who may have, renew and end one, and when it is over."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from raftctl.controller import ControllerConfig
from raftctl.controller.security import _token_control
from raftctl.errors import ErrorCode, InvariantViolation
from raftctl.integers import LONG_MAX
from raftctl.metadata.features import METADATA_VERSION_FEATURE, TOKENS_LEVEL
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta
from raftctl.metadata.records import DelegationTokenRecord, RemoveDelegationTokenRecord
from raftctl.metadata.requests.admin import SAFE_DOWNGRADE, FeatureUpdate, UpdateFeaturesRequest
from raftctl.metadata.requests.security import (
    CreateDelegationTokenRequest,
    DelegationTokenResponse,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
    TokenRequest,
)
from raftctl.security.delegation_tokens import TokenIndex, TokenSecret
from tests.kit.deltas import delta_between
from tests.unit.raftctl.controller.cluster import CLUSTER_ID, WALL_MS, Cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.metadata.image import MetadataImage

pytestmark = pytest.mark.req("S3")
KEY = "the key of the cluster"
MAX_MS, EXPIRY_MS, CHECK_MS = 10_000, 4_000, 1_000
ALICE, BOB, EVE = "User:alice", "User:bob", "User:eve"


def new_cluster(key: str | None = KEY) -> Cluster:
    return Cluster(
        ControllerConfig(
            cluster_id=CLUSTER_ID,
            leader_rebalance=False,
            token_secret=None if key is None else TokenSecret(key),
            token_max_lifetime_ms=MAX_MS,
            token_expiry_time_ms=EXPIRY_MS,
            token_check_interval_ms=CHECK_MS,
        )
    )


@pytest.fixture
def cluster() -> Cluster:
    return new_cluster()


def ask(cluster: Cluster, request: TokenRequest, who: str = ALICE) -> DelegationTokenResponse:
    response = cluster.handle(replace(request, requester=(who, "127.0.0.1")))
    assert isinstance(response, DelegationTokenResponse)
    if not response.error:
        assert response.offset == cluster.image.offset
    return response


def create(
    cluster: Cluster,
    who: str = ALICE,
    *,
    owner: tuple[str, str] | None = None,
    renewers: tuple[tuple[str, str], ...] = (),
    lifetime_ms: int = -1,
) -> DelegationTokenResponse:
    return ask(cluster, CreateDelegationTokenRequest(owner, renewers, lifetime_ms), who)


def renew(cluster: Cluster, token: bytes, who: str = ALICE, period_ms: int = -1) -> Any:
    found = ask(cluster, RenewDelegationTokenRequest(token, period_ms), who)
    return found.error or found.expires_ms - WALL_MS


def expire(cluster: Cluster, token: bytes, who: str = ALICE, period_ms: int = -1) -> Any:
    found = ask(cluster, ExpireDelegationTokenRequest(token, period_ms), who)
    return found.error or found.expires_ms - WALL_MS


# --- creation -------------------------------------------------------------------------------------


def test_a_token_belongs_to_who_asks_for_it(cluster: Cluster) -> None:
    cluster.now_ms = 7
    made = create(cluster, renewers=(("User", "bob"), ("User", "carol"), ("User", "bob")))
    assert cluster.image.tokens[made.token_id] == DelegationTokenRecord(
        made.token_id,
        owner=ALICE,
        requester=ALICE,
        renewers=(BOB, "User:carol"),
        issued_ms=WALL_MS + 7,
        max_ms=WALL_MS + 7 + MAX_MS,
        expires_ms=WALL_MS + 7 + EXPIRY_MS,
    )
    assert (made.issued_ms, made.max_ms) == (WALL_MS + 7, WALL_MS + 7 + MAX_MS)
    assert made.expires_ms == WALL_MS + 7 + EXPIRY_MS
    assert len(base64.urlsafe_b64decode(made.token_id + "==")) == 16, "as Apache Kafka writes ids"


def test_its_hmac_is_that_of_apache_kafka_and_no_text_has_it_or_the_key(cluster: Cluster) -> None:
    made = create(cluster)
    assert made.hmac == hmac.digest(KEY.encode(), made.token_id.encode(), hashlib.sha512)
    shown = repr(made) + repr(cluster.image) + repr(cluster.controller.__dict__)
    shown += repr(RenewDelegationTokenRequest(made.hmac, 1))
    shown += repr(ExpireDelegationTokenRequest(made.hmac, 1))
    assert KEY not in shown
    assert repr(made.hmac) not in shown
    assert repr(made.hmac)[2:20] not in shown


def test_a_token_may_be_for_another_user(cluster: Cluster) -> None:
    made = create(cluster, owner=("User", "bob"))
    token = cluster.image.tokens[made.token_id]
    assert (token.owner, token.requester) == (BOB, ALICE)


@pytest.mark.parametrize(
    ("asked_ms", "max_ms", "expires_ms"),
    [
        (-1, MAX_MS, EXPIRY_MS),
        (0, MAX_MS, EXPIRY_MS),
        (MAX_MS + 1, MAX_MS, EXPIRY_MS),
        (EXPIRY_MS + 1, EXPIRY_MS + 1, EXPIRY_MS),
        (3, 3, 3),
    ],
)
def test_lifetimes(cluster: Cluster, asked_ms: int, max_ms: int, expires_ms: int) -> None:
    made = create(cluster, lifetime_ms=asked_ms)
    assert (made.max_ms - WALL_MS, made.expires_ms - WALL_MS) == (max_ms, expires_ms)


def test_times_beyond_the_last_one() -> None:
    config = ControllerConfig(
        cluster_id=CLUSTER_ID,
        token_secret=TokenSecret(KEY),
        token_max_lifetime_ms=LONG_MAX,
        token_expiry_time_ms=LONG_MAX,
    )
    cluster = Cluster(config)
    made = create(cluster)
    assert (made.max_ms, made.expires_ms) == (LONG_MAX, LONG_MAX)
    assert renew(cluster, made.hmac, period_ms=LONG_MAX) == LONG_MAX - WALL_MS
    assert expire(cluster, made.hmac, period_ms=LONG_MAX) == LONG_MAX - WALL_MS


@pytest.mark.parametrize("owner", [("Group", "g"), ("", "a"), ("user", "a")])
def test_only_users_own_and_renew_tokens(cluster: Cluster, owner: tuple[str, str]) -> None:
    """A login acts for a user of the owner's name: an owner of another type would become one."""
    assert create(cluster, owner=owner).error == ErrorCode.INVALID_PRINCIPAL_TYPE
    refused = create(cluster, renewers=(("User", "bob"), owner))
    assert refused.error == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert not cluster.image.tokens


def test_names_and_numbers_have_bounds(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert create(cluster, owner=("User", "")).error == ErrorCode.INVALID_REQUEST
    long = ("User", "x" * (_token_control.NAME_LENGTH_MAX + 1))
    assert create(cluster, owner=long).error == ErrorCode.INVALID_REQUEST
    assert create(cluster, renewers=(long,)).error == ErrorCode.INVALID_REQUEST
    many = tuple(("User", str(number)) for number in range(_token_control.RENEWERS_MAX + 1))
    assert create(cluster, renewers=many).error == ErrorCode.INVALID_REQUEST
    assert create(cluster, renewers=many[1:]).error == ErrorCode.NONE
    assert create(cluster, owner=("User", "b"), renewers=many[1:]).error == ErrorCode.NONE
    monkeypatch.setattr(_token_control, "TOKENS_OF_REQUESTER_MAX", 3)
    monkeypatch.setattr(_token_control, "TOKENS_MAX", 4)
    assert create(cluster).error == ErrorCode.NONE
    assert create(cluster).error == ErrorCode.POLICY_VIOLATION, "one user takes not all the room"
    assert create(cluster, BOB).error == ErrorCode.NONE
    assert create(cluster, BOB).error == ErrorCode.POLICY_VIOLATION
    assert len(cluster.image.tokens) == 4


def test_a_request_of_nobody_is_refused(cluster: Cluster) -> None:
    response = cluster.handle(CreateDelegationTokenRequest(None, (), -1))
    assert isinstance(response, DelegationTokenResponse)
    assert response.error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


# --- renewal and expiry ---------------------------------------------------------------------------


def test_the_owner_and_the_renewers_renew(cluster: Cluster) -> None:
    token = create(cluster, EVE, owner=("User", "alice"), renewers=(("User", "bob"),)).hmac
    cluster.now_ms = 1_000
    assert renew(cluster, token) == 1_000 + EXPIRY_MS
    assert renew(cluster, token, BOB, 100) == 1_100, "it may be sooner"
    mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert renew(cluster, token, EVE) == mismatch, "who has created it does not own it"
    assert expire(cluster, token, EVE) == mismatch
    assert renew(cluster, token, "Group:alice") == mismatch
    assert expire(cluster, token, BOB) == 1_000
    assert not cluster.image.tokens


def test_no_renewal_goes_beyond_the_longest_lifetime(cluster: Cluster) -> None:
    token = create(cluster, lifetime_ms=6_000).hmac
    cluster.now_ms = 3_000
    assert renew(cluster, token, period_ms=EXPIRY_MS * 2) == 6_000
    assert expire(cluster, token, period_ms=100_000) == 6_000
    assert expire(cluster, token, period_ms=0) == 3_000


def test_a_token_that_is_over_can_only_be_removed(cluster: Cluster) -> None:
    made = create(cluster)
    cluster.now_ms = EXPIRY_MS
    assert renew(cluster, made.hmac, period_ms=1) == EXPIRY_MS + 1, "valid in its last millisecond"
    cluster.now_ms = EXPIRY_MS + 2
    assert renew(cluster, made.hmac) == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert renew(cluster, made.hmac, EVE) == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert expire(cluster, made.hmac, period_ms=5) == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert expire(cluster, made.hmac, EVE) == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert expire(cluster, made.hmac) == EXPIRY_MS + 2
    assert renew(cluster, made.hmac) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_a_token_is_found_by_its_whole_hmac_alone(cluster: Cluster) -> None:
    made = create(cluster)
    other = create(new_cluster("another key")).hmac
    for wrong in (b"", made.hmac[:-1], made.hmac + b"\0", other, made.token_id.encode()):
        assert renew(cluster, wrong) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert expire(cluster, wrong) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert made.token_id in cluster.image.tokens


def test_hmacs_are_compared_in_constant_time_and_the_index_keeps_none(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, secret = create(cluster), TokenSecret(KEY)
    compared: list[tuple[bytes, bytes]] = []
    true = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return true(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    index = TokenIndex(secret)
    found = index.find(cluster.image.tokens, made.hmac)
    assert found is cluster.image.tokens[made.token_id]
    assert compared == [(made.hmac, made.hmac)]
    assert repr(made.hmac) not in repr(vars(index))


def test_the_index_follows_every_image(cluster: Cluster) -> None:
    """Also back to an older one, after a change that was never committed."""
    index = TokenIndex(TokenSecret(KEY))
    images: list[MetadataImage] = [cluster.image]
    made = [create(cluster) for _ in range(3)]
    images.append(cluster.image)
    expire(cluster, made[1].hmac)
    images.append(cluster.image)
    for image in (images[1], images[2], images[0], images[1]):
        for one in made:
            assert index.find(image.tokens, one.hmac) is image.tokens.get(one.token_id)


def test_without_a_key_there_are_no_tokens() -> None:
    cluster = new_cluster(None)
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert create(cluster).error == disabled
    assert renew(cluster, b"x") == disabled
    assert expire(cluster, b"x") == disabled
    assert cluster.controller.deadline_ms() is None
    with pytest.raises(InvariantViolation):
        TokenSecret("")


# --- the sweep ------------------------------------------------------------------------------------


def test_tokens_that_are_over_are_removed_at_the_next_check(cluster: Cluster) -> None:
    first, second = create(cluster), create(cluster, lifetime_ms=10)
    assert cluster.tick(11) == [], "the first check was at once, when both were valid"
    assert cluster.controller.deadline_ms() == CHECK_MS
    assert cluster.tick(CHECK_MS) == [RemoveDelegationTokenRecord(second.token_id)]
    assert cluster.tick(EXPIRY_MS + 1) == []
    assert renew(cluster, first.hmac) == ErrorCode.DELEGATION_TOKEN_EXPIRED, "there, and over"
    assert cluster.tick(EXPIRY_MS + CHECK_MS + 1) == [RemoveDelegationTokenRecord(first.token_id)]


def test_a_new_controller_checks_at_once(cluster: Cluster) -> None:
    made = create(cluster, lifetime_ms=10)
    cluster.tick(1)
    image = cluster.image
    cluster.controller.renounce()
    assert cluster.controller.deadline_ms() is None
    cluster.now_ms = 11
    cluster.claim(image)
    assert cluster.late_tick(11) == [RemoveDelegationTokenRecord(made.token_id)]


# --- as metadata ----------------------------------------------------------------------------------


def test_a_snapshot_holds_tokens_and_a_replica_learns_what_is_gone(cluster: Cluster) -> None:
    made = [create(cluster, renewers=(("User", "bob"),)) for _ in range(3)]
    old = cluster.image
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in old.records():
        delta.replay(record, old.offset)
    assert delta.apply(old.offset, old.epoch, old.timestamp_ms) == old
    cluster.now_ms = 5
    renew(cluster, made[0].hmac)
    expire(cluster, made[1].hmac)
    new = cluster.image
    assert delta_between(old, new).apply(new.offset, new.epoch, new.timestamp_ms) == new
    assert len(new.tokens) == 2


@pytest.mark.req("C11")
def test_a_lower_level_has_no_place_for_tokens(cluster: Cluster) -> None:
    down = FeatureUpdate(METADATA_VERSION_FEATURE, TOKENS_LEVEL - 1, SAFE_DOWNGRADE)
    token = create(cluster).hmac

    def lowered() -> Any:
        return cluster.handle(UpdateFeaturesRequest((down,)))

    refused = lowered()
    assert "does not know delegation tokens" in refused.message
    expire(cluster, token)
    assert lowered().error == ErrorCode.NONE
    refused = create(cluster)
    assert refused.error == ErrorCode.UNSUPPORTED_VERSION
    assert f"raise it to {TOKENS_LEVEL}" in refused.message
    assert renew(cluster, token) == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    "break_it",
    [
        lambda delta, token: delta.replay(RemoveDelegationTokenRecord("another"), 1_000),
        lambda delta, token: delta.replay(replace(token, expires_ms=token.max_ms + 1), 1_000),
    ],
)
def test_records_that_cannot_be(cluster: Cluster, break_it: Callable[..., None]) -> None:
    made = create(cluster)
    with pytest.raises(InvariantViolation):
        break_it(MetadataDelta(cluster.image), cluster.image.tokens[made.token_id])
