"""Which quota holds for a client, and what is kept of clients."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import pytest

from broker.plugin import client_quotas
from broker.quotas import ClientQuotas, QuotaType, StoredQuotas, Windows, load_callback
from broker.quotas import _scopes as scopes_module
from broker.quotas import _usages as usages_module
from raftctl.config import make_config
from raftctl.errors import ConfigError, ErrorCode, KafkaError
from raftctl.metadata.image import MetadataDelta, MetadataImage
from raftctl.metadata.records import ClientQuotaRecord
from raftctl.security import Principal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from raftctl.metadata.image.types import QuotaEntity

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
USER, ANY_USER = ("user", "alice"), ("user", None)
CLIENT, ANY_CLIENT = ("client-id", "app"), ("client-id", None)
SPECIFIC_FIRST: list[QuotaEntity] = [
    (CLIENT, USER),
    (ANY_CLIENT, USER),
    (USER,),
    (CLIENT, ANY_USER),
    (ANY_CLIENT, ANY_USER),
    (ANY_USER,),
    (CLIENT,),
    (ANY_CLIENT,),
]
"""KIP-546's order."""


def image_of(
    bounds: Sequence[tuple[QuotaEntity, float]], kind: QuotaType = QuotaType.PRODUCE
) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    for offset, (entity, bound) in enumerate(bounds, start=1):
        delta.replay(ClientQuotaRecord(entity, kind.value, bound), offset)
    return delta.apply(len(bounds), 1, 0)


def quotas_of(
    *bounds: tuple[QuotaEntity, float], kind: QuotaType = QuotaType.PRODUCE
) -> ClientQuotas:
    quotas = ClientQuotas(StoredQuotas())
    quotas.publish(image_of(bounds, kind))
    return quotas


def stored(*entities: QuotaEntity) -> StoredQuotas:
    callback = StoredQuotas()
    callback.publish(image_of([(one, 1.0 + SPECIFIC_FIRST.index(one)) for one in entities]))
    return callback


@pytest.mark.req("S5")
def test_the_most_specific_quota_goes_before_a_default() -> None:
    for count in range(1, len(SPECIFIC_FIRST) + 1):
        for entities in combinations(SPECIFIC_FIRST, count):
            callback = stored(*entities)
            scope = callback.scope(QuotaType.PRODUCE, ALICE, "app")
            expected = 1.0 + min(map(SPECIFIC_FIRST.index, entities))
            assert callback.limit(QuotaType.PRODUCE, scope) == expected, entities


@pytest.mark.parametrize(
    ("entity", "scope"),
    [
        ((ANY_CLIENT, USER), ("alice", "app")),
        ((USER,), ("alice", "")),
        ((ANY_USER,), ("alice", "")),
        ((ANY_CLIENT, ANY_USER), ("alice", "app")),
        ((ANY_CLIENT,), ("", "app")),
        ((CLIENT,), ("", "app")),
    ],
)
def test_a_default_is_for_each_client_and_a_users_quota_for_all_of_it(
    entity: QuotaEntity, scope: tuple[str, str]
) -> None:
    assert stored(entity).scope(QuotaType.PRODUCE, ALICE, "app") == scope


def test_a_client_without_an_id_has_the_quotas_of_its_user() -> None:
    callback = stored(*SPECIFIC_FIRST)
    scope = callback.scope(QuotaType.PRODUCE, ALICE, "")
    assert (scope, callback.limit(QuotaType.PRODUCE, scope)) == (("alice", ""), 3.0)
    callback = stored((ANY_CLIENT,))
    assert callback.limit(QuotaType.PRODUCE, callback.scope(QuotaType.PRODUCE, ALICE, "")) is None


def test_clients_of_other_names_are_not_bounded() -> None:
    quotas = quotas_of(((USER,), 1.0))
    assert quotas.record(QuotaType.PRODUCE, BOB, "app", 1e9, 0) == 0
    assert quotas.record(QuotaType.FETCH, ALICE, "app", 1e9, 0) == 0
    assert quotas.record(QuotaType.PRODUCE, ALICE, "app", 1e6, 0) > 0


def test_connections_of_a_user_share_its_quota_and_those_of_a_default_do_not() -> None:
    quotas = quotas_of(((USER,), 100.0))
    assert quotas.record(QuotaType.PRODUCE, ALICE, "one", 1_000, 0) == 0
    assert quotas.record(QuotaType.PRODUCE, ALICE, "two", 1_000, 0) == 10_000
    quotas = quotas_of(((ANY_CLIENT,), 100.0))
    assert quotas.record(QuotaType.PRODUCE, ALICE, "one", 1_000, 0) == 0
    assert quotas.record(QuotaType.PRODUCE, ALICE, "two", 1_000, 0) == 0


def test_nothing_is_active_without_a_quota_of_clients() -> None:
    assert not ClientQuotas(StoredQuotas()).is_active
    quotas = quotas_of(((USER,), 1.0))
    assert quotas.is_active
    quotas.publish(MetadataImage())
    assert not quotas.is_active


def test_a_changed_bound_holds_for_what_was_used_before() -> None:
    quotas = quotas_of(((USER,), 1_000.0))
    assert quotas.record(QuotaType.PRODUCE, ALICE, "app", 5_000, 0) == 0
    quotas.publish(image_of([((USER,), 100.0)]))
    assert quotas.record(QuotaType.PRODUCE, ALICE, "app", 0, 0) == 40_000


def test_time_on_the_loop_is_paid_for_at_most_a_window() -> None:
    quotas = quotas_of(((USER,), 1.0), kind=QuotaType.REQUEST)
    assert quotas.record(QuotaType.REQUEST, ALICE, None, 10.5, 0) == 500
    assert quotas.record(QuotaType.REQUEST, ALICE, None, 1_000, 0) == 1_000


def test_a_fetch_asks_for_no_more_than_all_windows_allow() -> None:
    quotas = quotas_of(((USER,), 1_000.0), kind=QuotaType.FETCH)
    assert quotas.fetch_bytes_max(ALICE, "app") == 10_000
    assert quotas.fetch_bytes_max(BOB, "app") is None


@pytest.mark.req("S5")
def test_newer_clients_are_refused_and_older_ones_wait_when_changes_are_too_many() -> None:
    quotas = quotas_of(((USER,), 2.0), kind=QuotaType.CONTROLLER_MUTATION)
    assert quotas.mutations(BOB, "app", 0, strict=True) is None
    strict = quotas.mutations(ALICE, "app", 0, strict=True)
    assert strict is not None
    strict.record(22 + 10, 0)
    assert strict.throttle_ms(0) == 0
    with pytest.raises(KafkaError) as refused:
        strict.record(1, 0)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert (strict.throttle_ms(0), strict.throttle_ms(4_000)) == (5_000, 1_000)
    permissive = quotas.mutations(ALICE, "app", 0, strict=False)
    assert permissive is not None
    permissive.record(2, 0)
    assert permissive.throttle_ms(0) == 6_000


@pytest.mark.req("S5")
def test_what_clients_used_is_bounded_and_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    usages: usages_module.Usages[str, list[int]] = usages_module.Usages(list)
    first = usages.of("a", 0)
    assert usages.of("a", usages_module.EXPIRY_MS) is first
    usages.of("b", 2 * usages_module.EXPIRY_MS + 1)
    assert len(usages) == 1
    assert usages.of("a", 2 * usages_module.EXPIRY_MS + 1) is not first
    monkeypatch.setattr(usages_module, "SCOPES_MAX", 3)
    kept = usages.of("b", 2 * usages_module.EXPIRY_MS + 2)
    for name in "cde":
        usages.of(name, 2 * usages_module.EXPIRY_MS + 3)
    assert len(usages) == 3
    assert usages.of("b", 2 * usages_module.EXPIRY_MS + 4) is not kept


def test_a_callback_that_is_not_installed_is_refused_by_name() -> None:
    assert isinstance(load_callback("", {}), StoredQuotas)
    with pytest.raises(ConfigError, match=r"client\.quota\.callback\.class: no plug-in 'mine'"):
        load_callback("mine", {})


class OneForAll:
    """A callback whose clients all share one bound of produced bytes (KIP-257)."""

    is_active = True

    def __init__(self, config: Mapping[str, str]) -> None:
        self.bound = float(config["client.quota.callback.bound"])

    def publish(self, image: MetadataImage) -> None:
        """It needs nothing of images."""

    def scope(self, kind: QuotaType, principal: Principal, client_id: str) -> tuple[str, ...]:
        """Everybody is in it."""
        return ("all",)

    def limit(self, kind: QuotaType, scope: tuple[str, ...]) -> float | None:
        """Only produced bytes are bounded."""
        return self.bound if kind is QuotaType.PRODUCE else None


class Installed:
    """An entry point."""

    name = "shared"

    def load(self) -> type[OneForAll]:
        """The class that it names."""
        return OneForAll


@pytest.mark.req("S5")
def test_a_plug_in_decides_with_whom_a_quota_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scopes_module, "entry_points", lambda group: [Installed()])
    keys = {
        "process.roles": "broker",
        "node.id": "1",
        "log.dirs": "/nowhere",
        "controller.quorum.voters": "0@127.0.0.1:1",
        "client.quota.callback.class": "shared",
        "quota.window.num": "5",
        "quota.window.size.seconds": "2",
    }
    callback = load_callback("shared", {"client.quota.callback.bound": "100"})
    quotas = ClientQuotas(callback, Windows(5, 2_000))
    quotas.publish(MetadataImage())
    assert quotas.is_active
    assert quotas.record(QuotaType.PRODUCE, ALICE, "one", 800, 0) == 0
    assert quotas.record(QuotaType.PRODUCE, BOB, "two", 80, 0) == 800
    assert quotas.record(QuotaType.FETCH, BOB, "two", 1e9, 0) == 0
    keys["client.quota.callback.bound"] = "10"
    quotas = client_quotas(make_config(keys))
    assert quotas.record(QuotaType.PRODUCE, ALICE, "one", 88, 0) == 800
    # A key that nobody reads is refused.
    del keys["client.quota.callback.class"]
    with pytest.raises(ConfigError, match=r"client\.quota\.callback\.bound"):
        make_config(keys)
